"""Tests of what models do so that a kernel can compute their attention."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer.modules import apart, build
from jtransformer.spec import DotProduct, PrefixDecoder, presets

B, T = 2, 6
SPEC = dataclasses.replace(
    presets.decoder_lm(width=8, layers=2).model, heads=2, attention=DotProduct(window=3)
)
TOKENS = jnp.arange(B * T).reshape(B, T) % 7
REAL = jnp.arange(T)[None] < jnp.array([[6], [4]])
PADDED = dict(valid=REAL)
PACKED = dict(
    segments=jnp.array([[1, 1, 1, 2, 2, 2], [1, 1, 2, 2, 0, 0]]),
    positions=jnp.array([[0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 0, 0]]),
)


def mask_of(spec, **given):
    ordered = given.pop("ordered", False)
    found = []

    def seen(given):
        parameters = build(spec).init(jax.random.key(0), TOKENS)["params"]
        inputs = given | {"ordered": ordered}
        calls = apart.observe(spec, parameters, TOKENS, inputs, ()).calls
        found.append(calls[0].mask(spec, "attention"))

    jax.eval_shape(seen, given)
    return found[0]


def test_live_tokens_see_by_place_where_that_is_known():
    assert mask_of(SPEC).by_place
    assert mask_of(SPEC, segments=PACKED["segments"]).by_place
    for given in (PADDED, PACKED):
        assert not mask_of(SPEC, **given).by_place
        assert mask_of(SPEC, **given, ordered=True).by_place
    prefixed = dataclasses.replace(SPEC, stack=PrefixDecoder(), attention=DotProduct())
    assert not mask_of(prefixed, prefix_length=2).by_place


@pytest.mark.parametrize("given", [PADDED, PACKED, {}], ids=["padded", "packed", "full"])
def test_null_real_tokens_see_the_same_by_place(given):
    model = build(SPEC)
    variables = model.init(jax.random.key(0), TOKENS)

    @functools.partial(quickly, static_argnames="ordered")
    def gradient(variables, ordered):
        def loss(variables):
            logits = model.apply(variables, TOKENS, **given, ordered=ordered).logits
            return jnp.sum(jnp.where(REAL[:, :, None], jnp.sin(logits), 0)), logits

        return jax.grad(loss, has_aux=True)(variables)

    (slopes, logits), (slopes_by_place, by_place) = (
        gradient(variables, ordered) for ordered in (False, True)
    )
    np.testing.assert_array_equal(logits[REAL], by_place[REAL])
    jax.tree.map(np.testing.assert_array_equal, slopes, slopes_by_place)


def test_a_model_taken_apart_has_no_kernel():
    """Their derivatives are taken forward, which a kernel does not know."""

    def looked_at():
        parameters = build(SPEC).init(jax.random.key(0), TOKENS)["params"]
        (call, *_) = apart.observe(SPEC, parameters, TOKENS, {}, ()).calls
        assert not call.shared.placement.kernels

    jax.eval_shape(looked_at)
