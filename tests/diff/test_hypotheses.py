"""Every known difference is planted in a twin of ours in NumPy, and found as what explains it."""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from diff_faults import by_heads, channels_first, flipped, kernels, layered, swapped
from diff_models import (
    BASE,
    INPUTS,
    PADDED,
    D,
    N,
    mine,
    parameters,
    theirs,
)

from jtransformer import diff
from jtransformer.spec import DotProduct, Learned, RMSNorm, Sinusoidal, TokenHead

ONE = dataclasses.replace(BASE, layers=1)
SQUARE = dataclasses.replace(ONE, head_width=D // N, ffn_width=D, position=Sinusoidal())
"""Every matrix of its layer is square."""


def one(**fields):
    return dataclasses.replace(ONE, **fields)


class Planted(NamedTuple):
    """A fault, and what is to be said of it.

    Attributes:
        kind: What it is about.
        words: How the hypothesis begins that explains it.
        conventions: What the twin does in another way.
        spec: The model.
        weights: What the twin's loading of parameters does in another way.
        place: Where it shows first.
    """

    kind: str
    words: str
    place: str
    conventions: dict[str, Any]
    spec: Any = ONE
    weights: Any = None


PARALLEL = one(sublayers="parallel")
GROUPED = one(key_value_heads=2)
NORMED = one(attention=DotProduct(query_key_norm="width"))
PLANTED = {
    "pairing": Planted(
        "rope pairing", "with interleaved pairing", "attention/query_turned",
        dict(pairing="interleaved")),
    "gelu": Planted(
        "GELU tanh/exact", "with the tanh form of GELU", "ffn/activation", dict(ffn="gelu_tanh")),
    "epsilon": Planted(
        "norm epsilon", "with a norm epsilon of 1e-06", "attention/input", dict(epsilon=1e-6)),
    "placement": Planted(
        "norm placement", "with norms behind the sums (post)", "attention/input",
        dict(placement="post")),
    "transposed": Planted(
        "transposed square matrix", "with the matrix attention/out transposed",
        "attention/output", {}, SQUARE, kernels("attention", out=flipped)),
    "transposed, all": Planted(
        "transposed square matrix", "with all square matrices of the layers transposed",
        "attention/query", {}, SQUARE, layered(lambda layer: kernels("ffn", **{
            "in": flipped, "out": flipped})({"layer_0": kernels("attention", query=flipped,
            key=flipped, value=flipped, out=flipped)({"layer_0": layer})["layer_0"]})["layer_0"])),
    "head order": Planted(
        "head order", "with key heads tiled", "attention/scores", dict(head_order="tile"),
        GROUPED),
    "packing": Planted(
        "QKV packing", "with fused queries, keys and values read as lying by heads, not side",
        "attention/query", {}, ONE, layered(by_heads)),
    "scale": Planted(
        "missing scale", "without a scale of the scores", "attention/scores", dict(scale=1.0)),
    "scale of the width": Planted(
        "missing scale", "with the scale (width)^-0.5", "attention/scores",
        dict(scale=D**-0.5)),
    "embedding scale": Planted(
        "embedding scale", "with the embedding scale", "embedded", dict(scale_embedding=True)),
    "mask": Planted(
        "mask polarity", "with the mask inverted", "attention/weights", dict(mask="inverted")),
    "no mask": Planted(
        "mask polarity", "without a mask", "attention/weights", dict(mask="none")),
    "positions": Planted(
        "off-by-one positions", "with positions that begin at 1", "embedded", dict(first=1),
        one(position=Sinusoidal())),
    "learned positions": Planted(
        "off-by-one positions", "with positions that begin at 2", "embedded", dict(first=2),
        one(position=Learned(max_length=11))),
    "queries ahead": Planted(
        "off-by-one positions", "with queries one position ahead of the keys",
        "attention/query_turned", dict(query_ahead=1)),
    "direction": Planted(
        "rotation direction", "with the opposite rotation", "attention/query_turned",
        dict(direction=-1)),
    "layout": Planted(
        "sinusoid layout", "with sines and cosines concatenated", "embedded",
        dict(layout="concatenated"), one(position=Sinusoidal())),
    "split layout": Planted(
        "sinusoid layout", "with sines and cosines split", "embedded", dict(layout="split"),
        one(position=Sinusoidal())),
    "scope": Planted(
        "QK-norm scope", "with queries and keys normalised over each head",
        "attention/query_normed", dict(query_key_norm="head"), NORMED),
    "one norm": Planted(
        "one or two norms in a parallel block",
        "with a parallel block whose sublayers share a norm", "ffn/input",
        dict(sublayers="parallel_one_norm"), PARALLEL),
    "gate": Planted(
        "gate and up swapped", "with gate and up swapped", "ffn/gate", {}, one(ffn="swiglu"),
        layered(swapped)),
    "reshape": Planted(
        "head reshape", "with the projections read as channels by heads", "attention/query", {},
        ONE, kernels("attention", query=channels_first, key=channels_first,
                     value=channels_first)),
    "taken apart": Planted(
        "head reshape", "with the heads taken apart without a transposition", "attention/query",
        dict(taken_apart=False)),
    "joined": Planted(
        "head reshape", "with the heads joined without a transposition", "attention/output",
        dict(joined=False)),
    "labels": Planted(
        "label shift", "with labels that are not shifted", "loss", dict(label_shift=0)),
    "labels twice": Planted(
        "label shift", "with labels shifted twice", "loss", dict(label_shift=2)),
    "tied scale": Planted(
        "tied head scale", "with the factor (width)^-0.5 of the tied head", "logits",
        dict(tied_scale=D**-0.5)),
    "final norm": Planted(
        "norm placement", "without the final norm", "logits", dict(final_norm=False)),
    "norm kind": Planted(
        "norm kind", "with layer norms", "attention/input", dict(norm="layer_norm"),
        one(norm=RMSNorm())),
}  # fmt: skip


QUICK = {"pairing", "embedding scale", "labels"}
"""Those that are planted in every run of the tests; the rest takes a minute."""


def row(name):
    return pytest.param(PLANTED[name], id=name, marks=() if name in QUICK else pytest.mark.slow)


def of(planted, inputs=INPUTS, **fields):
    """Compares a model of ours with its twin that has a fault."""
    tree = parameters(planted.spec)
    wrong = tree if planted.weights is None else planted.weights(tree)
    twin = theirs(planted.spec, wrong, **planted.conventions, **fields)
    return diff.difference(mine(planted.spec, tree), twin, inputs)


@pytest.mark.parametrize("planted", [row(name) for name in PLANTED])
def test_a_planted_fault_is_found_as_the_best_explanation(planted):
    found = of(planted)
    first = found.comparison.first
    assert first is not None and first.name in (f"layer_0/{planted.place}", planted.place)
    best = found.rounds[0].best[0]
    assert (best.kind, len(found.rounds[0].best)) == (planted.kind, 1)
    assert best.words.startswith(planted.words)
    assert best.next_first is None, "the rest agrees"
    assert best.after.largest < 1e-4 * best.before.largest or best.before.largest < 1e-2
    assert best.sentence.startswith(f"{best.words} the difference at {first.name} falls from")


CLEAN = {
    "rope": ONE,
    "sinusoidal": SQUARE,
    "grouped": GROUPED,
    "parallel": PARALLEL,
    "normed": NORMED,
    "post": one(norm_placement="post"),
    "branch": one(norm_placement="branch", norm=RMSNorm(), ffn="swiglu"),
}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spec, id=name, marks=() if name == "rope" else pytest.mark.slow)
        for name, spec in CLEAN.items()
    ],
)
@pytest.mark.parametrize(
    "inputs", [INPUTS, pytest.param(PADDED, marks=pytest.mark.slow)], ids=["whole", "padded"]
)
def test_nothing_is_claimed_where_no_fault_is_planted(spec, inputs):
    found = diff.difference(mine(spec), theirs(spec), inputs)
    assert found.equal and found.rounds == ()
    assert len(found.comparison.rows) > 10 and not found.comparison.only_b


def test_nothing_is_claimed_where_no_convention_explains():
    """Other parameters are no convention."""
    tree = parameters(ONE)
    random = np.random.default_rng(1)
    noise = jax.tree.map(lambda x: x + random.standard_normal(x.shape).astype(x.dtype), tree)
    found = diff.difference(mine(ONE, tree), theirs(ONE, noise), INPUTS)
    assert not found.equal
    assert all(not round.best and not round.others for round in found.rounds)


@pytest.mark.slow
def test_hypotheses_of_equal_effect_are_both_named():
    """Where only the end is to be seen, queries ahead and keys behind are one and the same."""
    found = diff.difference(mine(ONE), theirs(ONE, only=("logits",), query_ahead=1), INPUTS)
    assert {trial.words for trial in found.rounds[0].best} == {
        "with queries one position ahead of the keys",
        "with keys one position behind the queries",
    }


@pytest.mark.slow
def test_two_faults_are_found_one_after_the_other():
    twin = theirs(ONE, pairing="interleaved", ffn="gelu_tanh")
    first, second = diff.difference(mine(ONE), twin, INPUTS).rounds
    assert first.best[0].kind == "rope pairing"
    assert first.best[0].next_first == second.first.name == "layer_0/ffn/activation"
    assert second.best[0].kind == "GELU tanh/exact" and second.best[0].next_first is None


@pytest.mark.slow
def test_two_faults_at_one_place_are_found_together():
    """Neither makes the queries agree without the other."""
    twin = theirs(ONE, pairing="interleaved", direction=-1)
    (round,) = diff.difference(mine(ONE), twin, INPUTS).rounds
    (best,) = round.best
    assert best.kind == "rope pairing and rotation direction" and best.next_first is None
    assert best.words == "with interleaved pairing and with the opposite rotation"


@pytest.mark.slow
def test_a_matrix_of_one_layer_is_found_in_that_layer():
    spec = dataclasses.replace(SQUARE, layers=2)
    tree = parameters(spec)
    wrong = {**tree, "layer_1": kernels("attention", key=flipped)({"layer_1": tree["layer_1"]})[
        "layer_1"]}  # fmt: skip
    found = diff.difference(mine(spec, tree), theirs(spec, wrong), INPUTS)
    (best,) = found.rounds[0].best
    assert best.words == "with the matrix attention/key transposed in layer 1 alone"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("padding", "words"),
    [("seen", "with padding seen"), ("inverted", "with padding the only thing that is seen")],
)
def test_the_polarity_of_padding_is_found(padding, words):
    found = diff.difference(mine(ONE), theirs(ONE, padding=padding), PADDED)
    assert (found.rounds[0].best[0].kind, found.rounds[0].best[0].words) == ("mask polarity", words)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_parameters_that_were_rounded_are_found(dtype):
    tree = parameters(ONE)
    coarse = jax.tree.map(lambda x: np.asarray(jax.numpy.asarray(x, dtype), np.float32), tree)
    found = diff.difference(mine(ONE, tree), theirs(ONE, coarse), INPUTS)
    best = found.rounds[0].best[0]
    assert (best.kind, best.words) == ("dtype", f"with parameters rounded to {dtype}")
    assert best.next_first is None


@pytest.mark.slow
def test_computing_in_bfloat16_is_found():
    """Parameters that are in bfloat16 already show what was computed, not how they are stored."""
    tree = jax.tree.map(
        lambda x: np.asarray(jax.numpy.asarray(x, "bfloat16"), np.float32), parameters(ONE)
    )
    twin = mine(ONE, tree)
    low = twin.but(variables=jax.tree.map(lambda x: x.astype("bfloat16"), twin.variables))

    def wide(tokens):
        values = low.trace(diff.Inputs(tokens)).values
        return {name: np.asarray(value, np.float32) for name, value in values.items()}

    found = diff.difference(twin, diff.Called("theirs", wide), INPUTS)
    best = found.rounds[0].best[0]
    assert (best.kind, best.words, best.next_first) == ("dtype", "computed in bfloat16", None)


@pytest.mark.slow
def test_a_head_that_is_tied_on_the_other_side_is_found():
    spec = one(head=TokenHead(tied=False))
    found = diff.difference(mine(spec), theirs(spec), INPUTS)
    best = found.rounds[0].best[0]
    assert (found.rounds[0].first.name, best.kind) == ("logits", "tied head")
