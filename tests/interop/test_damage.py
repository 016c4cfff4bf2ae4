"""Directories that are damaged, or can be read in two ways: each is refused by name."""

import json
import os
import resource

import numpy as np
import pytest
import torch
from interop import references, rows_core
from safetensors.numpy import load_file, save_file

from jtransformer.interop import family_of, load, save
from jtransformer.interop.expressing import read_with
from jtransformer.interop.files import SAFE, SAFE_INDEX
from jtransformer.interop.mapping import flat
from jtransformer.spec import SpecError

ROW = next(row for row in rows_core.ROWS if row.name == "gpt2")
WTE, LAST = "transformer.wte.weight", "transformer.ln_f.bias"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A directory, by what it holds."""
    directory = tmp_path_factory.mktemp("whole")
    references.reference(ROW).save_pretrained(directory)
    return (directory / "config.json").read_bytes(), load_file(directory / SAFE)


@pytest.fixture
def directory(whole, tmp_path):
    (tmp_path / "config.json").write_bytes(whole[0])
    save_file(whole[1], tmp_path / SAFE)
    return tmp_path


def refused(directory, *said):
    with pytest.raises(SpecError) as caught:
        load(directory)
    for part in said:
        assert part in str(caught.value) and "\n" not in str(caught.value)


def in_two_shards(directory, tensors):
    """Divides the tensors; returns what the index has to say."""
    (directory / SAFE).unlink()
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for name, own in shards.items():
        save_file({tensor: tensors[tensor] for tensor in own}, directory / name)
    return {tensor: name for name, own in shards.items() for tensor in own}


def write_index(directory, weights):
    (directory / SAFE_INDEX).write_text(json.dumps({"weight_map": weights}))


def other_shard(name):
    return {"a.safetensors": "b.safetensors", "b.safetensors": "a.safetensors"}[name]


def test_null_an_index_that_says_what_is_there_is_read(whole, directory):
    write_index(directory, in_two_shards(directory, whole[1]))
    assert flat(load(directory).variables)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda weights: weights | {"nowhere": "a.safetensors"}, ("nowhere is in no file",)),
        (lambda weights: weights | {WTE: other_shard(weights[WTE])}, (WTE, "says")),
        (
            lambda weights: {name: file for name, file in weights.items() if name != WTE},
            (WTE, "says nothing of it"),
        ),
        (lambda weights: weights | {WTE: "c.safetensors"}, ("lacks c.safetensors",)),
    ],
)
def test_an_index_must_say_what_its_files_hold(whole, directory, change, said):
    write_index(directory, change(in_two_shards(directory, whole[1])))
    refused(directory, *said)


def test_two_shards_may_not_hold_one_tensor(whole, directory):
    weights = in_two_shards(directory, whole[1])
    tensors = load_file(directory / "a.safetensors") | load_file(directory / "b.safetensors")
    save_file(tensors, directory / "b.safetensors")
    write_index(directory, weights)
    refused(directory, "is in a.safetensors and in b.safetensors")


def test_one_file_beside_shards_is_refused(whole, directory):
    write_index(directory, in_two_shards(directory, whole[1]))
    save_file(whole[1], directory / SAFE)
    refused(directory, "holds both", SAFE, SAFE_INDEX)


@pytest.mark.parametrize("name", ["config.json", SAFE, "tokenizer.json"])
def test_a_link_that_leads_nowhere_is_named(directory, name):
    (directory / name).unlink(missing_ok=True)
    (directory / name).symlink_to(directory / "gone")
    refused(directory, name, "which is gone")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_numbers_that_are_not_finite_are_named(whole, directory, value):
    bias = whole[1][LAST].astype(np.float64)
    bias[2] = value
    save_file(whole[1] | {LAST: bias}, directory / SAFE)
    refused(directory, LAST, f"1 of {bias.size} numbers that are not finite")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (lambda tensor: tensor.to(torch.int8), "int8"),
        (lambda tensor: tensor.to(torch.float8_e4m3fn), "float8_e4m3fn"),
        (lambda tensor: tensor.to_sparse(), "float32 (sparse_coo)"),
        (lambda tensor: tensor.to("meta"), "float32 (meta)"),
    ],
)
def test_tensors_of_other_kinds_are_named(whole, directory, kind, said):
    tensors = {name: torch.from_numpy(array) for name, array in whole[1].items()}
    os.remove(directory / SAFE)
    torch.save(tensors | {LAST: kind(tensors[LAST])}, directory / "pytorch_model.bin")
    refused(directory, f"{LAST} ({said})")


def test_parameters_that_ask_for_gradients_are_read(whole, directory):
    tensors = {name: torch.from_numpy(array) for name, array in whole[1].items()}
    os.remove(directory / SAFE)
    tensors[LAST] = torch.nn.Parameter(tensors[LAST])
    torch.save(tensors, directory / "pytorch_model.bin")
    np.testing.assert_array_equal(
        load(directory).variables["params"]["final_norm"]["bias"], whole[1][LAST]
    )


LLAMA = dict(model_type="llama", hidden_size=12, num_attention_heads=3)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (dict(rope_theta=5e5, rope_parameters=dict(rope_theta=1e4)), "500000.0 in the config and"),
        (dict(rope_theta=0), "theta must be greater than 1, got 0"),
        (dict(rope_parameters=dict(rope_theta=0)), "theta must be greater than 1, got 0"),
        (dict(rope_parameters=dict(rope_type="longrope")), "'longrope'"),
    ],
)
def test_rotary_positions_are_given_once_and_not_guessed(fields, said):
    config = LLAMA | fields
    with pytest.raises(SpecError) as caught:
        read_with(family_of(config), config, "the config", frozenset())
    assert said in str(caught.value)


def test_a_full_disk_is_told_as_one(directory, tmp_path):
    loaded, before = load(directory), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError, match=r"model\.safetensors cannot be written"):
            save(tmp_path / "new", loaded.spec, loaded.variables)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "new" / "config.json").exists()
