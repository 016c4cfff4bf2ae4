"""Tests for jtransformer.functional.attention."""

import functools
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer import functional as F
from jtransformer.functional.masks import causal_mask, padding_mask

attention_weights = at_once(F.attention_weights)
dot_product_attention = at_once(F.dot_product_attention)

B, T, S, N, K, H, Hv = 2, 3, 5, 6, 2, 4, 7


@pytest.fixture
def make(normal):
    """Draws queries, keys and values."""
    return lambda K=K, S=S: normal((B, T, N, H), (B, S, K, H), (B, S, K, Hv))


@pytest.mark.usefixtures("float64")
def test_worked_two_queries(golden):
    figures = golden("two_query_attention")
    q, k, v = (jnp.array(figures[name])[None, :, None] for name in "qkv")
    for scale, name in ((None, "scaled"), (1.0, "unscaled")):
        weights = attention_weights(q, k, scale=scale)[0, 0]
        np.testing.assert_allclose(weights, figures[f"{name}_weights"], atol=1e-14)
        out = dot_product_attention(q, k, v, scale=scale)[0, :, 0]
        np.testing.assert_allclose(out, figures[f"{name}_out"], atol=1e-14)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_a_hidden_key_is_felt_by_no_bit(make, dtype):
    q, k, v = (each.astype(dtype) for each in make())
    attend = quickly(
        functools.partial(dot_product_attention, mask=padding_mask(jnp.arange(S)[None] < 3))
    )
    out = attend(q, k, v)
    assert out.dtype == dtype
    changed = [each.at[:, 3:].set(1000) for each in (k, v)]
    np.testing.assert_array_equal(attend(q, *changed), out)


def test_a_query_that_sees_nothing_gets_zeros_and_sends_none(make):
    arrays = make()
    mask = jnp.ones((T, S), bool).at[1].set(False)

    @quickly
    def both(*arrays):
        attend = functools.partial(dot_product_attention, mask=mask)
        out, forward = jax.jvp(attend, arrays, arrays)
        _, pull = jax.vjp(attend, *arrays)
        of_blind = jnp.zeros_like(out).at[:, 1].set(1)
        return out, forward, pull(of_blind), pull(jnp.ones_like(out))

    out, forward, of_blind, of_all = both(*arrays)
    assert all((found[:, 1] == 0).all() for found in (out, forward, of_all[0]))
    assert (out[:, 0] != 0).all()
    assert (attention_weights(*arrays[:2], mask=mask)[:, :, 1] == 0).all()
    assert all((pulled == 0).all() for pulled in of_blind)
    assert all(jnp.isfinite(found).all() for found in (forward, *of_all))


def test_a_bias_of_minus_infinity_hides_too(make):
    q, k, v = make()
    mask = causal_mask(T, S).at[..., 1, :].set(False)
    hiding = jnp.where(mask, 0, -jnp.inf)

    def loss(q, **options):
        out = dot_product_attention(q, k, v, **options)
        return (out**2).sum(), out

    by_mask, by_bias = (
        quickly(jax.grad(functools.partial(loss, **options), has_aux=True))(q)
        for options in (dict(mask=mask), dict(bias=hiding))
    )
    for found, expected in zip(by_bias, by_mask, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_head_that_is_off_reads_zeros_and_sends_none(make):
    arrays = make()
    on = jnp.arange(N) != 4

    @quickly
    def both(on, *arrays):
        out, pull = jax.vjp(lambda *a: dot_product_attention(*a, heads_on=on), *arrays)
        return out, pull(jnp.ones_like(out))

    out, (by_q, by_k, by_v) = both(on, *arrays)
    whole, (whole_by_q, _, _) = both(jnp.ones(N, bool), *arrays)
    np.testing.assert_array_equal(out[:, :, on], whole[:, :, on])
    np.testing.assert_array_equal(by_q[:, :, on], whole_by_q[:, :, on])
    assert (out[:, :, 4] == 0).all()
    assert (by_q[:, :, 4] == 0).all()
    np.testing.assert_array_equal(whole, quickly(dot_product_attention)(*arrays))
    # Heads 3 to 5 read the second key head: with all of them off it gets nothing.
    _, pulled = both(jnp.arange(N) < 3, *arrays)
    assert all((by[:, :, 1] == 0).all() and (by[:, :, 0] != 0).any() for by in pulled[1:])
    assert all((by != 0).any() for by in (by_k[:, :, 1], by_v[:, :, 1]))


def test_heads_can_be_switched_by_a_mapped_array(make):
    arrays = make()
    each_off = ~jnp.eye(N, dtype=bool)
    mapped = quickly(jax.vmap(lambda on: dot_product_attention(*arrays, heads_on=on)))(each_off)
    silent = (mapped == 0).all(axis=(1, 2, 4))
    np.testing.assert_array_equal(silent, np.eye(N, dtype=bool))


def test_no_keys_give_zeros(make):
    q, k, v = make(S=0)
    np.testing.assert_array_equal(dot_product_attention(q, k, v), jnp.zeros((B, T, N, Hv)))


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (
            ((1, 2, 6, 4), (1, 3, 4, 4), (1, 3, 4, 4)),
            {},
            r"N=6, K=4; use a K out of \[1, 2, 3, 6\]",
        ),
        (((1, 2, 6, 4), (1, 3, 2, 5), (1, 3, 2, 4)), {}, r"k.shape=\(1, 3, 2, 5\)"),
        (((2, 2, 6, 4), (1, 3, 2, 4), (1, 3, 2, 4)), {}, r"q.shape=\(2, 2, 6, 4\)"),
        (((1, 2, 6, 4), (1, 3, 2, 4), (1, 4, 2, 4)), {}, r"v.shape=\(1, 4, 2, 4\)"),
        (None, dict(mask=jnp.ones((3, 2), bool)), r"mask.shape=\(3, 2\) for B, N, T, S = "),
        (None, dict(mask=jnp.ones((1, 2, 3), bool)), r"mask.shape=\(1, 2, 3\)"),
        (None, dict(bias=jnp.ones((2, 1, 2, 3))), r"bias.shape=\(2, 1, 2, 3\)"),
        (None, dict(soft_cap=0.0), "soft_cap must be positive and finite, got 0.0"),
        (None, dict(dropout_rate=1.0), r"\[0, 1\), got dropout_rate=1.0"),
        (None, dict(heads_on=jnp.ones(4, bool)), r"bool, heads_on.shape=\(4,\) for N=6"),
        (None, dict(heads_on=jnp.ones(6)), "must be boolean.*got dtype=float32"),
    ],
)
def test_wrong_arguments_are_named(shapes, options, message):
    shapes = shapes or ((1, 2, 6, 4), (1, 3, 2, 4), (1, 3, 2, 4))
    with pytest.raises(ValueError, match=message):
        unwrap(dot_product_attention)(*(jnp.ones(shape) for shape in shapes), **options)
