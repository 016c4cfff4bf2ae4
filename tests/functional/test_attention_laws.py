"""Laws, neutral and live options of jtransformer.functional.attention."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jtransformer.functional.attention import attention_weights, dot_product_attention
from jtransformer.functional.masks import causal_mask

B, T, S, N, K, H, Hv = 2, 3, 5, 6, 2, 4, 7


@pytest.fixture
def make(normal):
    """Draws queries, keys and values."""
    return lambda S=S: normal((B, T, N, H), (B, S, K, H), (B, S, K, Hv))


def test_gauge_of_queries_and_keys(normal, make):
    q, k, v = make()
    turn = normal((H, H))[0] + 3 * jnp.eye(H)
    turned = dot_product_attention(q @ turn, k @ jnp.linalg.inv(turn).T, v)
    np.testing.assert_allclose(turned, dot_product_attention(q, k, v), atol=2e-5)


def test_equal_queries_and_keys_have_symmetric_scores_but_not_weights(make):
    q, _, _ = make()
    weights = attention_weights(q, q)
    ratio = jnp.log(weights) - jnp.log(jnp.diagonal(weights, axis1=2, axis2=3))[..., None]
    score = ratio + jnp.sum(q * q, -1).transpose(0, 2, 1)[..., None] / math.sqrt(H)
    np.testing.assert_allclose(score, jnp.swapaxes(score, 2, 3), atol=1e-4)
    assert not np.allclose(weights, jnp.swapaxes(weights, 2, 3), atol=1e-2)


def test_variance_of_a_score_is_the_head_width(normal):
    q, k = normal(*[(40_000, 16)] * 2)
    np.testing.assert_allclose(jnp.var(jnp.sum(q * k, -1)), 16, rtol=0.03)


def test_permutation_of_keys_is_not_felt_and_of_queries_is_followed(make):
    q, k, v = make()
    order = jnp.array([2, 0, 1])
    out = dot_product_attention(q, k, v)
    np.testing.assert_allclose(dot_product_attention(q[:, order], k, v), out[:, order], atol=1e-6)
    keys = jnp.array([4, 2, 0, 1, 3])
    np.testing.assert_allclose(dot_product_attention(q, k[:, keys], v[:, keys]), out, atol=1e-6)


def test_causal_past_is_not_moved_by_the_future(make):
    q, k, v = make(S=T)
    out = dot_product_attention(q, k, v, mask=causal_mask(T))
    moved = [each.at[:, 2].add(5.0) for each in (q, k, v)]
    after = dot_product_attention(*moved, mask=causal_mask(T))
    np.testing.assert_array_equal(after[:, :2], out[:, :2])
    assert not np.allclose(after[:, 2], out[:, 2])


def test_dropout_keeps_the_expectation_and_needs_its_key(make, key):
    q, k, v = make()
    out = dot_product_attention(q, k, v)
    np.testing.assert_array_equal(dot_product_attention(q, k, v, dropout_rate=0.5), out)
    np.testing.assert_array_equal(dot_product_attention(q, k, v, key=key), out)
    sample = jax.jit(
        jax.vmap(lambda key: dot_product_attention(q, k, v, dropout_rate=0.3, key=key))
    )
    draws = sample(jax.random.split(key, 1000))
    assert not np.allclose(draws[0], draws[1])
    np.testing.assert_allclose(draws.mean(0), out, atol=0.2)
    ones = dot_product_attention(q, k, jnp.ones_like(v), dropout_rate=0.3, key=key)
    assert not np.allclose(ones, 1, atol=0.05)  # a sampled row need not sum to 1


def test_null_neutral_options(make, key):
    q, k, v = make()
    out = dot_product_attention(q, k, v)
    neutral = [
        dict(mask=jnp.ones((T, S), bool)),
        dict(bias=jnp.zeros((1, N, 1, S))),
        dict(scale=H**-0.5),
        dict(dropout_rate=0.0, key=key),
    ]
    for options in neutral:
        np.testing.assert_array_equal(dot_product_attention(q, k, v, **options), out)


@pytest.mark.parametrize(
    "change",
    [
        dict(mask=causal_mask(T, S)),
        dict(bias=jnp.arange(S, dtype=jnp.float32)[None]),
        dict(scale=1.0),
        dict(soft_cap=0.5),
        dict(dropout_rate=0.5, key=jax.random.key(1)),
    ],
)
def test_live_each_knob_changes_the_output(make, change):
    q, k, v = make()
    assert not np.allclose(
        dot_product_attention(q, k, v), dot_product_attention(q, k, v, **change), atol=1e-3
    )


def test_float16_scores_do_not_overflow():
    q = jnp.full((1, 1, 1, 64), 60, jnp.float16)
    k = jnp.stack([q[0], -q[0]], axis=1)
    weights = attention_weights(q, k)
    assert weights.dtype == jnp.float16
    np.testing.assert_array_equal(weights.ravel(), [1, 0])
