"""What a directory may hold: forms of weights, what is refused, and what is carried along."""

import json
import os
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from interop import references, rows_core
from safetensors.numpy import load_file, save_file

from jtransformer.interop import load, save
from jtransformer.interop.mapping import flat, nested
from jtransformer.spec import SpecError

ROW = next(row for row in rows_core.ROWS if row.name == "gpt2")
WTE, QKV = "transformer.wte.weight", "transformer.h.0.attn.c_attn.weight"


@pytest.fixture(scope="module")
def model():
    return references.reference(ROW)


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    """A directory, its tensors and its leaves as they must be read."""
    directory = tmp_path_factory.mktemp("saved")
    model.save_pretrained(directory)
    return directory, load_file(directory / "model.safetensors"), flat(load(directory).variables)


@pytest.fixture
def write(saved, tmp_path):
    """Writes a directory with other tensors or settings."""
    directory, tensors, _ = saved
    config = json.loads((directory / "config.json").read_text())

    def write(change=lambda tensors: tensors, *, kind="safe", **settings):
        (tmp_path / "config.json").write_text(json.dumps(config | settings))
        content = change(dict(tensors))
        if kind == "safe":
            save_file(content, tmp_path / "model.safetensors")
        else:
            named = {name: torch.from_numpy(array) for name, array in content.items()}
            torch.save(named, tmp_path / "pytorch_model.bin")
        return tmp_path

    return write


def assert_equal(variables, leaves):
    found = flat(variables)
    assert found.keys() == leaves.keys()
    for path, leaf in leaves.items():
        np.testing.assert_array_equal(np.asarray(found[path]), np.asarray(leaf), err_msg=path)


def refused(directory, *said):
    with pytest.raises(SpecError) as caught:
        load(directory)
    sentence = str(caught.value)
    assert "\n" not in sentence
    for part in said:
        assert part in sentence


def test_shards_hold_the_same(model, saved, tmp_path):
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_equal(load(tmp_path).variables, saved[2])


def test_shards_are_written_and_read(saved, tmp_path):
    loaded = load(saved[0])
    save(tmp_path, loaded.spec, loaded.variables, shard_bytes=10_000)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_equal(load(tmp_path).variables, saved[2])
    # One file in their place: no index of shards that are gone is left to be read.
    save(tmp_path, loaded.spec, loaded.variables)
    assert not (tmp_path / "model.safetensors.index.json").exists()


def test_a_missing_shard_is_named(model, tmp_path):
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    gone = sorted(tmp_path.glob("*.safetensors"))[1]
    gone.unlink()
    refused(tmp_path, "lacks", gone.name)


def test_an_index_may_not_lead_elsewhere(model, tmp_path):
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {WTE: "../elsewhere.safetensors"}}))
    refused(tmp_path, "'../elsewhere.safetensors'", "no file beside it")


def test_pickled_weights_hold_the_same(write, saved):
    assert_equal(load(write(kind="pickled")).variables, saved[2])


class Malicious:
    """Runs a command where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("form", ["plain", "zip"])
def test_a_pickle_that_would_run_code_is_refused(write, tmp_path, form):
    directory, mark = write(kind="pickled"), tmp_path / "it_ran"
    content, path = {WTE: Malicious(mark)}, directory / "pytorch_model.bin"
    path.write_bytes(pickle.dumps(content)) if form == "plain" else torch.save(content, path)
    refused(directory, "pytorch_model.bin", "could run code")
    assert not mark.exists()


def test_a_pickle_of_something_else_is_refused(write):
    directory = write(kind="pickled")
    torch.save([1, 2], directory / "pytorch_model.bin")
    refused(directory, "no state_dict")


@pytest.mark.parametrize("size", [0, 7, 100, -1])
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_truncated_file_is_named(write, name, size):
    path = write(kind="safe" if name.endswith("safetensors") else "pickled") / name
    content = path.read_bytes()
    path.write_bytes(content[:size])
    refused(path.parent, name)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "cannot be read"), ("{", "cannot be read"), ("[1]", "object"), ("\xff\xfe", "config")],
)
def test_a_config_that_is_none_is_named(write, text, said):
    directory = write()
    (directory / "config.json").write_bytes(text.encode("latin-1"))
    refused(directory, "config.json", said)


def test_what_is_not_there_is_named(write, tmp_path):
    refused(tmp_path / "nowhere", "is no directory")
    refused(tmp_path, "holds no config.json")
    directory = write()
    (directory / "model.safetensors").unlink()
    refused(directory, "holds no weights")


def test_missing_extra_and_misshapen_tensors_are_listed(write):
    def change(tensors):
        del tensors["transformer.ln_f.bias"], tensors["transformer.h.1.mlp.c_fc.weight"]
        tensors["transformer.h.2.mlp.c_fc.weight"] = np.zeros((2, 2), np.float32)
        tensors[QKV] = np.ascontiguousarray(tensors[QKV].T)
        return tensors

    refused(
        write(change),
        "lacks transformer.h.1.mlp.c_fc.weight, transformer.ln_f.bias",
        "has besides transformer.h.2.mlp.c_fc.weight",
        f"has other shapes of {QKV} [60, 20] instead of [20, 60]",
    )


def test_a_tensor_of_integers_is_no_parameter(write):
    refused(write(lambda t: t | {WTE: t[WTE].astype(np.int32)}), f"in {WTE} (I32)")


def test_gamma_and_beta_are_scale_and_bias(write, saved):
    """Known fault HF-04: names of norms, and keys that match nothing."""

    def renamed(tensors):
        names = {name: name for name in tensors}
        for norm in ("ln_1", "ln_2", "ln_f"):
            for new, old in (("weight", "gamma"), ("bias", "beta")):
                ends = f"{norm}.{new}"
                names |= {n: n[: -len(new)] + old for n in names if n.endswith(ends)}
        return {names[name]: array for name, array in tensors.items()}

    assert_equal(load(write(renamed)).variables, saved[2])

    def twice(tensors):
        return tensors | {"transformer.ln_f.gamma": np.full(20, 2, np.float32)}

    refused(write(twice), "two names of one tensor")


def test_names_without_the_head_hold_the_same(write, saved):
    def bare(tensors):
        return {name.removeprefix("transformer."): array for name, array in tensors.items()}

    assert_equal(load(write(bare)).variables, saved[2])


def test_buffers_are_no_parameters(write, saved):
    def with_buffers(tensors):
        mask = np.tril(np.ones((1, 1, 40, 40), np.float32))
        return tensors | {
            "transformer.h.0.attn.bias": mask,
            "transformer.h.1.attn.masked_bias": np.full((), -1e4, np.float32),
        }

    assert_equal(load(write(with_buffers)).variables, saved[2])


class TestTiedHead:
    """Known fault TIE-02: the head of a tied model is absent from a file, or is there too."""

    def test_it_is_not_in_the_file_of_the_reference(self, saved):
        assert WTE in saved[1] and "lm_head.weight" not in saved[1]

    def test_it_may_be_there_and_equal(self, write, saved):
        change = lambda t: t | {"lm_head.weight": t[WTE].copy()}  # noqa: E731
        assert_equal(load(write(change)).variables, saved[2])

    def test_it_may_stand_for_the_embeddings(self, write, saved):
        def change(tensors):
            tensors["lm_head.weight"] = tensors.pop(WTE)
            return tensors

        assert_equal(load(write(change)).variables, saved[2])

    def test_it_may_not_differ(self, write):
        def change(tensors):
            other = tensors[WTE].copy()
            other[-1, -1] += 1e-6
            return tensors | {"lm_head.weight": other}

        refused(write(change), "tie_word_embeddings", "they differ")

    def test_a_head_of_its_own_must_be_there(self, write):
        refused(write(tie_word_embeddings=False), "lacks lm_head.weight")

    def test_a_head_of_its_own_is_read(self, write):
        change = lambda t: t | {"lm_head.weight": 2 * t[WTE]}  # noqa: E731
        loaded = load(write(change, tie_word_embeddings=False))
        params = loaded.variables["params"]
        np.testing.assert_array_equal(params["head"]["kernel"], 2 * params["embedding"]["table"].T)


@pytest.mark.parametrize("kind", ["safe", "pickled"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_and_written_to_the_bit(model, saved, tmp_path, dtype, kind):
    half = references.reference(ROW).to(dtype)
    source, target = tmp_path / "source", tmp_path / "target"
    half.save_pretrained(source)
    if kind == "pickled":
        (source / "model.safetensors").unlink()
        torch.save(half.state_dict(), source / "pytorch_model.bin")
    name = str(dtype).removeprefix("torch.")
    loaded = load(source, dtype="stored")
    expected = jax.tree.map(lambda leaf: leaf.astype(name), nested(saved[2]))
    assert_equal(loaded.variables, flat(expected))
    assert {str(leaf.dtype) for leaf in flat(loaded.variables).values()} == {name}
    assert {leaf.dtype for leaf in flat(load(source).variables).values()} == {jnp.dtype("float32")}
    save(target, loaded.spec, loaded.variables)
    assert json.loads((target / "config.json").read_text())["dtype"] == name
    assert_equal(load(target, dtype="stored").variables, flat(loaded.variables))


def test_variables_of_another_model_are_refused(saved, tmp_path):
    loaded = load(saved[0])
    params = dict(loaded.variables["params"])
    del params["final_norm"]
    with pytest.raises(SpecError, match="do not belong to the spec: final_norm/bias"):
        save(tmp_path / "new", loaded.spec, {"params": params})
    leaf = np.full_like(params["position"]["table"], np.nan)
    params = loaded.variables["params"] | {"position": {"table": leaf}}
    with pytest.raises(SpecError, match="hold numbers in position/table that are not finite"):
        save(tmp_path / "new", loaded.spec, {"params": params})
    assert not (tmp_path / "new").exists()
