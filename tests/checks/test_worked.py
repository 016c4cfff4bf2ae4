"""The worked figures: those of the tests, reproduced by our parts, and broken by wrong ones."""

import json
import pathlib

import jax.numpy as jnp
import pytest

from jtransformer import functional as F
from jtransformer.checks import run_all
from jtransformer.checks.worked import figures
from jtransformer.cli.check_parts import functional_parts

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
NAMES = (
    "activations",
    "norms",
    "norm_jacobians",
    "worked_block",
    "two_head_block",
    "two_query_attention",
    "rope",
    "sinusoidal",
    "masks",
    "losses",
)


def judged(law, **changes):
    parts = functional_parts()._replace(**changes)
    report = run_all(lambda tokens: tokens, vocabulary=4, length=4, parts=parts, laws=[law])
    return report[law]


@pytest.mark.parametrize("name", NAMES)
def test_the_figures_are_those_of_the_tests(name):
    assert figures(name) == json.loads((GOLDEN / f"{name}.json").read_text())


def swapped(heads):
    return jnp.swapaxes(heads.reshape(*heads.shape[:-2], *heads.shape[:-3:-1]), -1, -2)


def wrong_heads(x, kernels, mask):
    *inwards, wo = kernels
    q, k, v = (swapped(jnp.einsum("TD,DNH->TNH", x, w))[None] for w in inwards)
    drawn = None if mask is None else mask[None, None]
    return F.linear(F.dot_product_attention(q, k, v, mask=drawn), wo, axes=2)[0]


def shifted_mask(T):
    return F.causal_mask(T + 1)[..., :-1, 1:]


def interleaved(x, positions):
    return F.rope(x, positions, pairing="interleaved")


WRONG = {
    "activations": dict(activations={"gelu": F.gelu_tanh}),
    "norms": dict(layer_norm=lambda x, epsilon: F.rms_norm(x, epsilon=epsilon)),
    "Jacobians of norms": dict(rms_norm=lambda x, epsilon: F.rms_norm(x, epsilon=10 * epsilon)),
    "two queries": dict(attention_weights=lambda q, k, mask: F.attention_weights(q, k, scale=1.0)),
    "masks": dict(causal_mask=shifted_mask),
    "rotary positions": dict(rope={"half": interleaved}),
    "sinusoidal positions": dict(
        sinusoidal=lambda T, D: F.sinusoidal_positions(T, D, layout="concatenated")
    ),
    "losses": dict(cross_entropy=lambda logits, labels, weights, eta: jnp.float32(0.9)),
    "blocks of one head": dict(residual=lambda x, f, norm_in, norm_out: x + f(x)),
    "blocks of two heads": dict(attention_layer=wrong_heads),
}
FAST = ("norms", "rotary positions", "blocks of two heads")


@pytest.mark.parametrize(
    "law", [law if law in FAST else pytest.param(law, marks=pytest.mark.slow) for law in WRONG]
)
def test_our_parts_reproduce_the_figures_and_wrong_ones_do_not(law):
    assert judged(law).verdict == "pass", judged(law)
    assert judged(law, **WRONG[law]).verdict == "fail"


def test_what_is_not_given_is_not_judged():
    row = judged("masks", causal_mask=None)
    assert row.verdict == "not applicable" and "causal_mask" in row.detail
    assert judged("norms", layer_norm=None, rms_norm=None).verdict == "not applicable"
