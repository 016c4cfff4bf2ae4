"""Order of places, differences that are none, shapes, NaN, padding, and the model of tolerances."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from diff_models import BASE, INPUTS, PADDED, mine, parameters, theirs

from jtransformer import diff
from jtransformer.diff.places import LOCALS, is_before, ordered
from jtransformer.diff.tolerance import tolerance
from jtransformer.diff.traces import stored_type
from jtransformer.modules.intermediates import all_names
from jtransformer.spec import EncoderDecoder, Precision

ONE = dataclasses.replace(BASE, layers=1)
IDS = diff.Inputs(np.zeros((1, 4), np.int32))


def trace(**values):
    arrays = {name.replace("__", "/"): np.asarray(value) for name, value in values.items()}
    return diff.Trace(arrays)


def test_places_are_in_the_order_of_the_models_own_names():
    spec = dataclasses.replace(BASE, stack=EncoderDecoder())
    for model in (BASE, spec):
        names = [*all_names(model, reads_source=model.has_encoder), "logits", "loss"]
        assert ordered(sorted(names)) == names
        inside = {n.split("layer_0/")[1] for n in names if "layer_0/" in n}
        assert inside <= set(LOCALS)


def test_an_unknown_place_stays_behind_what_precedes_it():
    assert ordered(["logits", "embedded", "rotated", "layer_0/stream"]) == [
        "embedded", "rotated", "layer_0/stream", "logits"]  # fmt: skip
    assert not is_before("rotated", "logits") and is_before("embedded", "logits")


def test_the_first_place_beyond_tolerance_is_named_with_its_size():
    values = dict(
        embedded=np.ones((1, 4, 3)), layer_0__stream=np.ones((1, 4, 3)), logits=np.ones(5)
    )
    other = {**values, "layer_0__stream": np.full((1, 4, 3), 1.5), "logits": np.zeros(5)}
    found = diff.compare(trace(**values), trace(**other), IDS)
    assert [row.beyond for row in found.rows] == [False, True, True]
    assert found.first is not None and found.first.name == "layer_0/stream"
    assert found.first.largest == 0.5


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        (np.ones((2, 3)), np.ones((3, 2)), r"shapes differ: [2, 3] and [3, 2]"),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), "NaN: 1 and 0 of 2 values"),
        (np.array([np.nan]), np.array([np.nan]), "NaN: 1 and 1 of 1 values"),
        (np.array([1.0, np.inf]), np.array([1.0, 2.0]), "infinite on one side: 1 of 2 values"),
    ],
)
def test_what_cannot_be_measured_is_a_difference_and_is_said(left, right, said):
    (row,) = diff.compare(trace(logits=left), trace(logits=right), IDS).rows
    assert row.beyond and row.problem == said


def test_sides_without_a_common_place_are_refused():
    with pytest.raises(ValueError, match="no place in common: one has 'logits', the other 'loss'"):
        diff.compare(trace(logits=1.0), trace(loss=1.0), IDS)


def test_padding_is_not_compared_and_scores_that_nobody_reads_are_not():
    base, twin = mine(ONE).trace(PADDED), theirs(ONE).trace(PADDED)
    dirty = dict(twin.values)
    for name, value in dirty.items():
        if name.endswith(("input", "query_turned", "stream", "logits")):
            dirty[name] = np.where(PADDED.valid.reshape(2, -1, *[1] * (value.ndim - 2)), value, 9.0)
    scores = dirty["layer_0/attention/scores"]
    hidden = np.triu(np.ones(scores.shape[-2:], bool), 1)
    dirty["layer_0/attention/scores"] = np.where(hidden, -3e38, scores)
    assert diff.compare(base, twin._replace(values=dirty), PADDED).equal
    dirty["logits"] = twin.values["logits"] + 1e-3
    assert not diff.compare(base, twin._replace(values=dirty), PADDED).equal


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_the_stored_type_is_read_from_the_numbers(name):
    leaf = jnp.asarray(np.random.default_rng(0).standard_normal(50), name).astype(jnp.float32)
    assert stored_type([leaf, jnp.ones(3)]) == name


def stored(name):
    return jax.tree.map(lambda x: np.asarray(jnp.asarray(x, name), np.float32), parameters(BASE))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_rounding_lies_below_the_tolerance_but_not_far_below(name):
    """Parameters that one side has in a coarser type, and computing in float32 against float64."""
    exact = theirs(BASE).trace(INPUTS)._replace(stored="float32")
    rounded = mine(BASE, stored(name)).trace(INPUTS)
    assert rounded.stored == name
    found = diff.compare(rounded, exact, INPUTS)
    assert found.equal
    shares = [row.relative / row.tolerance for row in found.rows if row.relative]
    assert max(shares) > 0.02 and len(shares) > 20


def test_a_thousandth_is_a_difference_at_every_place():
    exact = theirs(BASE).trace(INPUTS)
    own = mine(BASE).trace(INPUTS)
    for name in own.values:
        moved = {**exact.values, name: exact.values[name] * 1.001}
        first = diff.compare(own, exact._replace(values=moved), INPUTS).first
        assert first is not None and first.name == name


@pytest.mark.slow
def test_computing_in_16_bits_lies_below_the_tolerance():
    low = Precision(stream="bfloat16", attention="bfloat16", ffn="bfloat16", head="bfloat16")
    exact = theirs(BASE).trace(INPUTS)
    coarse = mine(dataclasses.replace(BASE, precision=low), parameters(BASE)).trace(INPUTS)
    assert coarse.computed == "bfloat16"
    found = diff.compare(coarse, exact, INPUTS)
    assert found.equal and max(row.relative / row.tolerance for row in found.rows) > 0.02


def test_the_tolerance_grows_with_depth_and_with_the_type():
    base = mine(ONE).trace(INPUTS)
    fine = tolerance(base, base)
    coarse = tolerance(base, base._replace(computed="bfloat16"))
    names = ["embedded", "layer_0/attention/scores", "layer_0/stream", "logits"]
    assert [*map(fine.at, names)] == sorted(map(fine.at, names))
    assert all(coarse.at(name) > 1000 * fine.at(name) for name in names)
    assert fine.backward("logits") > fine.at("logits")
    known = tolerance(base._replace(stored="bfloat16"), base)
    assert known.at("logits") > 1000 * fine.at("logits")
    unknown = tolerance(base._replace(stored=""), base)
    assert unknown.at("logits") == fine.at("logits")
