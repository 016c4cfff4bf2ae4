"""Laws of attention, alone and with the projections around it."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer import functional as F
from jtransformer.functional import causal_mask

attention_weights = at_once(F.attention_weights)
dot_product_attention = at_once(F.dot_product_attention)

B, T, S, D, N, K, H, Hv = 2, 3, 5, 8, 6, 2, 4, 7
LINE = jnp.arange(T)[None]


@pytest.fixture
def make(normal):
    """Draws queries, keys and values."""
    return lambda S=S: normal((B, T, N, H), (B, S, K, H), (B, S, K, Hv))


def turned_and_not(normal, prepare):
    """Attention before and after `Q -> Q R, K -> K R^-T`, with `prepare` applied to heads."""
    q, k, v = normal((B, T, N, H), (B, T, K, H), (B, T, K, Hv))
    turn = normal((H, H))[0] + 3 * jnp.eye(H)
    pairs = (q, k), (q @ turn, k @ jnp.linalg.inv(turn).T)
    return [dot_product_attention(prepare(left), prepare(right), v) for left, right in pairs]


def test_gauge_of_queries_and_keys(normal):
    before, after = turned_and_not(normal, lambda x: x)
    np.testing.assert_allclose(after, before, atol=2e-5)


@pytest.mark.parametrize("prepare", [lambda x: F.rope(x, LINE), F.rms_norm], ids=["rope", "norm"])
def test_gauge_is_fixed_by_positions_and_by_norms_of_queries_and_keys(normal, prepare):
    before, after = turned_and_not(normal, prepare)
    assert not np.allclose(after, before, atol=0.05)


def self_attention(x, w_q, w_k, w_v, **options):
    return dot_product_attention(*(F.linear(x, w) for w in (w_q, w_k, w_v)), **options)


@pytest.fixture
def block(normal):
    """Draws a stream and the projections of its queries, keys and values."""
    return lambda: normal((B, T, D), (D, N, H), (D, K, H), (D, K, H))


def test_one_packed_projection_equals_three(block):
    x, *kernels = block()
    packed = F.linear(x, jnp.concatenate(kernels, axis=1))
    q, k, v = jnp.split(packed, [N, N + K], axis=2)
    np.testing.assert_allclose(
        dot_product_attention(q, k, v), self_attention(x, *kernels), atol=1e-5
    )


def test_not_linear_in_its_input_but_in_its_values(block):
    x, *kernels = block()
    out = self_attention(x, *kernels)
    assert not np.allclose(self_attention(2 * x, *kernels), 2 * out, atol=0.1)
    other = jnp.flip(x, 0)
    both = self_attention(x + other, *kernels)
    assert not np.allclose(both, out + self_attention(other, *kernels), atol=0.1)
    np.testing.assert_allclose(self_attention(x, *kernels[:2], 2 * kernels[2]), 2 * out, rtol=1e-5)


@pytest.mark.parametrize("silenced", ["heads", "output"])
def test_a_source_is_not_felt_through_a_cross_attention_of_zeros(block, normal, silenced):
    x, w_q, w_k, w_v = block()
    source, w_o = normal((B, S, D), (N, H, D))
    on = {"heads_on": jnp.zeros(N, bool)} if silenced == "heads" else {}
    w_zero = jnp.zeros_like(w_o) if silenced == "output" else w_o

    def stream(source, w_o, **options):
        k, v = F.linear(source, w_k), F.linear(source, w_v)
        heads = dot_product_attention(F.linear(x, w_q), k, v, **options)
        return x + F.linear(heads, w_o, axes=2)

    moved = source.at[:, 1].add(3.0)
    np.testing.assert_array_equal(stream(moved, w_zero, **on), stream(source, w_zero, **on))
    slope = quickly(jax.grad(lambda source: (stream(source, w_zero, **on) ** 2).sum()))(source)
    assert (slope == 0).all()
    assert not np.allclose(stream(moved, w_o), stream(source, w_o), atol=0.1)


def test_permutation_equivariance_and_invariance_of_the_mean_fail_under_a_causal_mask(block):
    x, *kernels = block()
    rows = jnp.array([2, 0, 1])
    for mask, holds in ((None, True), (causal_mask(T), False)):
        out = self_attention(x, *kernels, mask=mask)
        after = self_attention(x[:, rows], *kernels, mask=mask)
        assert np.allclose(after, out[:, rows], atol=1e-5) == holds
        assert np.allclose(after.mean(1), out.mean(1), atol=1e-5) == holds
        assert not np.allclose(after, out, atol=0.1)


def test_a_prompt_in_chunks_equals_the_whole(normal):
    # A buffer of 8 slots; the prefix of 3 lies in the first chunk.
    q, k, v = normal((B, 6, N, H), (B, 6, K, H), (B, 6, K, Hv))
    line, slots = jnp.arange(6)[None], jnp.arange(8)[None]
    options = dict(window=4, prefix_length=3)
    attend = quickly(dot_product_attention)
    whole = attend(q, k, v, mask=F.visible(line, line, **options))
    chunks = []
    for begin, end in ((0, 4), (4, 5), (5, 6)):
        # What is not yet written is no zero, so that only the mask can keep it out.
        filled = [jnp.full((B, 8, *x.shape[2:]), 9.0).at[:, :end].set(x[:, :end]) for x in (k, v)]
        mask = F.Visibility(line[:, begin:end], slots, **options, key_valid=slots < end)
        chunks.append(attend(q[:, begin:end], *filled, mask=mask))
    np.testing.assert_allclose(jnp.concatenate(chunks, axis=1), whole, atol=1e-6)


def test_equal_queries_and_keys_have_symmetric_scores_but_not_weights(make):
    q, _, _ = make()
    weights = attention_weights(q, q)
    ratio = jnp.log(weights) - jnp.log(jnp.diagonal(weights, axis1=2, axis2=3))[..., None]
    score = ratio + jnp.sum(q * q, -1).transpose(0, 2, 1)[..., None] / math.sqrt(H)
    np.testing.assert_allclose(score, jnp.swapaxes(score, 2, 3), atol=1e-4)
    assert not np.allclose(weights, jnp.swapaxes(weights, 2, 3), atol=1e-2)


def test_variance_of_a_score_is_the_head_width(normal):
    """The logarithms of two weights of a row differ by the difference of two scores."""
    q, k = normal((1, 20_000, 1, H), (1, 2, 1, H))
    k = jnp.sqrt(H) * k / jnp.linalg.norm(k, axis=-1, keepdims=True)

    def variance(**scale):
        logarithms = jnp.log(attention_weights(q, k, **scale))
        return jnp.var(logarithms[..., 0] - logarithms[..., 1])

    apart = float(jnp.sum(jnp.square(k[0, 0] - k[0, 1])))
    np.testing.assert_allclose(variance(scale=1.0), apart, rtol=0.05)
    np.testing.assert_allclose(variance(), apart / H, rtol=0.05)


def test_permutation_of_keys_is_not_felt_and_of_queries_is_followed(make):
    q, k, v = make()
    order = jnp.array([2, 0, 1])
    out = dot_product_attention(q, k, v)
    np.testing.assert_allclose(dot_product_attention(q[:, order], k, v), out[:, order], atol=1e-6)
    keys = jnp.array([4, 2, 0, 1, 3])
    np.testing.assert_allclose(dot_product_attention(q, k[:, keys], v[:, keys]), out, atol=1e-6)


def test_dropout_keeps_the_expectation_and_needs_its_key(make, key):
    q, k, v = make()
    out = dot_product_attention(q, k, v)
    np.testing.assert_array_equal(dot_product_attention(q, k, v, dropout_rate=0.5), out)
    np.testing.assert_array_equal(dot_product_attention(q, k, v, key=key), out)

    @quickly
    @functools.partial(jax.vmap, in_axes=(0, None))
    def sample(key, v):
        return dot_product_attention(q, k, v, dropout_rate=0.3, key=key)

    keys = jax.random.split(key, 1000)
    draws = sample(keys, v)
    assert not np.allclose(draws[0], draws[1])
    np.testing.assert_allclose(draws.mean(0), out, atol=0.2)
    ones = sample(keys, jnp.ones_like(v))
    assert not np.allclose(ones[0], 1, atol=0.05)  # a sampled row need not sum to 1


def test_float16_scores_do_not_overflow():
    q = jnp.full((1, 1, 1, 64), 60, jnp.float16)
    k = jnp.stack([q[0], -q[0]], axis=1)
    weights = attention_weights(q, k)
    assert weights.dtype == jnp.float16
    np.testing.assert_array_equal(weights.ravel(), [1, 0])
