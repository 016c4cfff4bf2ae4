"""Tests for jtransformer.functional.query_key_norms."""

import math
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer import functional as F

attention_weights = at_once(F.attention_weights)
dot_product_attention = at_once(F.dot_product_attention)
head_norm, width_norm, rope = at_once(F.head_norm), at_once(F.width_norm), at_once(F.rope)

B, T, S, N, K, H = 2, 3, 5, 6, 2, 4
BOTH = pytest.mark.parametrize("norm", [head_norm, width_norm])


def test_worked_heads():
    """By hand: means of squares 1 and 25 of the heads, and 13 of both together."""
    x = jnp.array([[1.0, 1.0, -1.0, 1.0], [1.0, 7.0, 5.0, 5.0]])[None, None]
    each = head_norm(x, epsilon=0.0)[0, 0]
    np.testing.assert_allclose(each, [[1, 1, -1, 1], [0.2, 1.4, 1, 1]], rtol=1e-6)
    together = width_norm(x, epsilon=0.0)[0, 0]
    np.testing.assert_allclose(together, x[0, 0] / math.sqrt(13), rtol=1e-6)


@pytest.mark.parametrize(("norm", "features"), [(head_norm, H), (width_norm, N * H)])
def test_scores_are_bounded_whatever_the_projections_became(normal, norm, features):
    q, k, scale_q, scale_k = normal((B, T, N, H), (B, S, N, H), (N, H), (N, H))
    scale_q, scale_k = (x[0] if norm is head_norm else x for x in (scale_q, scale_k))
    bound = features * jnp.abs(scale_q * scale_k).max()
    for size in (1e-1, 1e8):
        scores = jnp.einsum("BTNH,BSNH->BNTS", norm(size * q, scale_q), norm(size * k, scale_k))
        assert jnp.abs(scores).max() <= bound
    parallel = jnp.einsum("BTNH,BTNH->BTN", norm(q), norm(q, epsilon=0.0))
    np.testing.assert_allclose(
        parallel.sum(2) if norm is width_norm else parallel, features, rtol=1e-4
    )


def test_one_head_reaches_the_bound_of_the_width_alone():
    """Were the statistics those of a head, its score could not exceed H."""
    x = jnp.zeros((1, 1, N, H)).at[..., 2, :].set(3.0)
    scores = jnp.einsum("BTNH,BTNH->BTN", *[width_norm(x)] * 2)
    np.testing.assert_allclose(scores.ravel(), [0, 0, N * H, 0, 0, 0], rtol=1e-5)
    assert jnp.einsum("BTNH,BTNH->BTN", *[head_norm(x)] * 2).max() <= H


def test_a_head_feels_the_size_of_the_others_only_over_the_width(normal):
    (x,) = normal((B, T, N, H))
    louder = x.at[:, :, 0].multiply(10.0)
    quiet = np.s_[:, :, 1:]
    np.testing.assert_array_equal(head_norm(louder)[quiet], head_norm(x)[quiet])
    assert (jnp.abs(width_norm(louder)) < jnp.abs(width_norm(x)))[quiet].all()
    np.testing.assert_allclose(head_norm(louder)[:, :, 0], head_norm(x)[:, :, 0], atol=1e-4)


def test_each_head_and_channel_has_its_own_scale_over_the_width(normal):
    x, scale = normal((B, T, N, H), (N, H))
    np.testing.assert_allclose(width_norm(x, scale), width_norm(x) * scale[None, None], rtol=1e-6)
    (one,) = normal((H,))
    np.testing.assert_allclose(head_norm(x, one), head_norm(x) * one[None, None, None], rtol=1e-6)


@BOTH
def test_null_unit_scale_is_no_scale(normal, norm):
    (x,) = normal((B, T, N, H))
    ones = jnp.ones(H) if norm is head_norm else jnp.ones((N, H))
    np.testing.assert_array_equal(norm(x, ones), norm(x))


@BOTH
def test_gauge_of_queries_and_keys_is_gone(normal, norm):
    """`Q -> QR, K -> KR^-T` leaves plain scores alone, and these not."""
    q, k, turn = normal((B, T, N, H), (B, S, N, H), (H, H))
    turn = turn + 3 * jnp.eye(H)
    turned = q @ turn, k @ jnp.linalg.inv(turn).T
    plain = attention_weights(q, k)
    np.testing.assert_allclose(attention_weights(*turned), plain, atol=2e-5)
    normed = attention_weights(norm(q), norm(k))
    after = attention_weights(*(norm(x) for x in turned))
    assert not np.allclose(after, normed, atol=0.02)
    rotation = jnp.linalg.qr(turn)[0]
    rotated = attention_weights(norm(q @ rotation), norm(k @ rotation))
    np.testing.assert_allclose(rotated, normed, atol=1e-5)


@BOTH
def test_the_norm_comes_before_the_positions(normal, norm):
    """A rotation keeps the statistics, but a scale after it is not a scale before it."""
    x, scale = normal((B, T, N, H), (N, H))
    scale = scale[0] if norm is head_norm else scale
    positions = jnp.arange(1, T + 1)[None]
    np.testing.assert_allclose(
        rope(norm(x), positions), norm(rope(x, positions)), rtol=1e-4, atol=1e-5
    )
    before, after = rope(norm(x, scale), positions), norm(rope(x, positions), scale)
    assert not np.allclose(before, after, atol=0.02)


def test_with_the_norm_scores_keep_their_offset_law(normal):
    q, k, scale = normal((B, T, N, H), (B, S, N, H), (H,))

    def scores(shift):
        turned = [rope(head_norm(x, scale), jnp.arange(x.shape[1])[None] + shift) for x in (q, k)]
        return jnp.einsum("BTNH,BSNH->BNTS", *turned)

    np.testing.assert_allclose(scores(0), scores(15), atol=1e-5)


def test_grouped_keys_are_normalised_alike(normal):
    """The key heads are fewer: the width of their norm is K H, not N H."""
    q, k, v = normal((B, T, N, H), (B, S, K, H), (B, S, K, H))
    weights = dot_product_attention(width_norm(q), width_norm(k), v)
    assert weights.shape == q.shape
    squares = jnp.square(width_norm(k, epsilon=0.0)).mean((2, 3))
    np.testing.assert_allclose(squares, jnp.ones((B, S)), rtol=1e-5)


@BOTH
def test_float16_squares_do_not_overflow(norm):
    x = jnp.full((1, 1, N, H), 3000.0, jnp.float16)
    out = norm(x)
    assert out.dtype == jnp.float16
    np.testing.assert_array_equal(out, jnp.ones_like(x))


@BOTH
def test_zeros_stay_zeros_and_send_back_finite_slopes(norm):
    x = jnp.zeros((1, 1, N, H))
    np.testing.assert_array_equal(norm(x), x)
    assert jnp.isfinite(quickly(jax.grad(lambda x: norm(x).sum()))(x)).all()


def test_wrong_arguments_are_named():
    x = jnp.ones((B, T, N, H))
    with pytest.raises(ValueError, match=r"scale.shape=\(24,\) .* use \(6, 4\)"):
        unwrap(width_norm)(x, jnp.ones(N * H))
    for norm in (head_norm, width_norm):
        with pytest.raises(ValueError, match="epsilon=-1"):
            norm(x, epsilon=-1.0)
