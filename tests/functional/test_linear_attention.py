"""Tests for jtransformer.functional.linear_attention."""

import functools
import re
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer import functional as F
from jtransformer.functional.activations import elu_plus_one, relu
from jtransformer.functional.linear_attention import (
    LinearAttentionState,
    linear_attention,
    linear_attention_step,
)

attention_weights = at_once(F.attention_weights)

B, T, S, N, K, H, Hv = 2, 7, 5, 6, 2, 4, 3
STATIC = ("feature_map", "causal", "chunk_size")
READ = quickly(linear_attention, static_argnames=STATIC)
STEP = quickly(linear_attention_step, static_argnames=("feature_map", "chunk_size"))
EMPTY = LinearAttentionState.empty(B, K, H, Hv)


@pytest.fixture
def make(normal):
    """Draws queries, keys and values."""

    def draw(T=T, S=T, dtype=jnp.float32):
        return normal((B, T, N, H), (B, S, K, H), (B, S, K, Hv), dtype=dtype)

    return draw


def explicit(q, k, v, visible_TS):
    """Weights of every pair, normalised over the keys, in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    phi_q, phi_k = (np.where(x < 0, np.exp(np.minimum(x, 0)), x + 1) for x in (q, k))
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for n in range(N):
        kernel = np.einsum("bth,bsh->bts", phi_q[:, :, n], phi_k[:, :, n // (N // K)]) * visible_TS
        weights = kernel / kernel.sum(-1, keepdims=True)
        out[:, :, n] = weights @ v[:, :, n // (N // K)]
    return out


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 7, 64])
def test_chunks_of_any_size_equal_the_explicit_weights(make, chunk_size):
    arrays = make()
    expected = explicit(*arrays, np.tril(np.ones((T, T))))
    np.testing.assert_allclose(READ(*arrays, chunk_size=chunk_size), expected, atol=2e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_padding_counts_neither_above_nor_below_the_line(make, causal):
    """Padding of zeros has features too: left in the normaliser it would shrink the output."""
    arrays = make()
    valid = np.array([True, True, False, True, False, False, True])
    visible = np.tril(np.ones((T, T))) * valid if causal else np.ones((T, 1)) * valid
    out = READ(*arrays, causal=causal, key_valid=jnp.array(valid[None]), chunk_size=3)
    np.testing.assert_allclose(out, explicit(*arrays, visible), atol=2e-6)


def test_all_keys_need_not_be_as_many_as_queries(make):
    arrays = make(S=S)
    expected = explicit(*arrays, np.ones((T, S)))
    np.testing.assert_allclose(READ(*arrays, causal=False), expected, atol=2e-6)


def test_it_is_attention_with_the_logarithms_of_the_products_as_scores(make):
    """A softmax over `log(φ(q) φ(k))` has the weights of linear attention."""
    q, k, v = make(S=S)
    products = jnp.einsum(
        "BTNH,BSNH->BNTS", elu_plus_one(q), jnp.repeat(elu_plus_one(k), N // K, 2)
    )
    weights = attention_weights(jnp.zeros_like(q), jnp.zeros_like(k), bias=jnp.log(products))
    read = jnp.einsum("BNTS,BSNV->BTNV", weights, jnp.repeat(v, N // K, 2))
    np.testing.assert_allclose(READ(q, k, v, causal=False), read, atol=2e-6)


def test_query_heads_of_a_group_are_neighbours():
    """Tiled instead of repeated keys would give 10, 20, 10, 20."""
    q, k = jnp.ones((1, 1, 4, 1)), jnp.ones((1, 1, 2, 1))
    v = jnp.array([10.0, 20.0])[None, None, :, None]
    for causal in (True, False):
        out = READ(q, k, v, causal=causal)
        np.testing.assert_allclose(out.ravel(), [10, 10, 20, 20], rtol=1e-6)


@pytest.mark.parametrize("lengths", [[1] * T, [4, 1, 2], [T]], ids=str)
@pytest.mark.usefixtures("float64")
def test_steps_of_any_length_equal_the_whole(make, lengths):
    """A prompt longer than one token, then tokens one by one, each with the state's own count."""
    arrays = make(dtype=jnp.float64)
    state, outs = LinearAttentionState.empty(B, K, H, Hv, dtype=jnp.float64), []
    for end, length in zip(np.cumsum(lengths), lengths, strict=True):
        tokens = [x[:, end - length : end] for x in arrays]
        state, out = STEP(state, *tokens, chunk_size=3)
        outs.append(out)
    whole_state, whole = STEP(
        LinearAttentionState.empty(B, K, H, Hv, dtype=jnp.float64), *arrays, chunk_size=2
    )
    np.testing.assert_allclose(jnp.concatenate(outs, 1), READ(*arrays), atol=1e-14)
    np.testing.assert_allclose(whole, READ(*arrays), atol=1e-14)
    for found, expected in zip(state, whole_state, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_a_state_is_the_sum_over_its_tokens_and_has_their_size_only(make):
    q, k, v = make()
    state, _ = STEP(EMPTY, q, k, v)
    features = np.where(k < 0, np.exp(np.minimum(k, 0)), k + 1)
    sums = np.einsum("bskc,bskv->bkcv", features, v)
    np.testing.assert_allclose(state.sums, sums, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state.normaliser, features.sum(1), rtol=1e-5)
    assert [x.shape for x in state] == [x.shape for x in EMPTY]


def test_steps_run_inside_a_scan(make):
    q, k, v = make()
    tokens = [jnp.moveaxis(x, 1, 0)[:, :, None] for x in (q, k, v)]
    _, outs = quickly(
        lambda: jax.lax.scan(lambda s, x: linear_attention_step(s, *x), EMPTY, tokens)
    )()
    np.testing.assert_allclose(jnp.moveaxis(outs[:, :, 0], 0, 1), READ(q, k, v), atol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_padding_is_felt_by_no_bit_not_even_as_nan(make, causal):
    valid = jnp.array([[True] * 5 + [False] * 2, [False] + [True] * 4 + [False] * 2])

    @quickly
    def value_and_slopes(*arrays):
        read = functools.partial(linear_attention, causal=causal, key_valid=valid, chunk_size=3)
        out, pull = jax.vjp(read, *arrays)
        return out, *pull(jnp.cos(out))

    q, k, v = make()
    spoilt = [jnp.where(valid[:, :, None, None], x, jnp.nan) for x in (k, v)]
    results = value_and_slopes(q, k, v)
    for found, expected in zip(value_and_slopes(q, *spoilt), results, strict=True):
        np.testing.assert_array_equal(found, expected)
    for slope in results[2:]:
        assert (np.asarray(slope)[~valid] == 0).all()


def test_a_query_that_sees_nothing_gets_zeros_and_sends_none(make):
    arrays = make()
    valid = jnp.arange(T)[None] >= 2

    def blind(*arrays):
        return linear_attention(*arrays, key_valid=valid, chunk_size=3)[:, :2]

    np.testing.assert_array_equal(quickly(blind)(*arrays), jnp.zeros((B, 2, N, Hv)))
    slopes = quickly(jax.grad(lambda *a: blind(*a).sum(), argnums=(0, 1, 2)))(*arrays)
    assert all((slope == 0).all() for slope in slopes)
    none = READ(*arrays, causal=False, key_valid=jnp.zeros((1, T), bool))
    np.testing.assert_array_equal(none, jnp.zeros((B, T, N, Hv)))


def test_features_that_vanish_give_zeros_and_no_nan(make):
    """A rectified query without a positive channel has no weights at all."""
    q, k, v = make()
    q = q.at[:, 3].set(-1.0)

    def read(*arrays):
        return linear_attention(*arrays, feature_map=relu)

    np.testing.assert_array_equal(quickly(read)(q, k, v)[:, 3], jnp.zeros((B, N, Hv)))
    for slope in quickly(jax.grad(lambda *a: read(*a).sum(), argnums=(0, 1, 2)))(q, k, v):
        assert jnp.isfinite(slope).all()


@pytest.mark.parametrize("causal", [True, False])
def test_slopes_of_tiny_totals_do_not_overflow(make, causal):
    """The square of a total of e-60 is 0 in float32, and a slope that divides by it is NaN."""
    q, k, v = make()
    far = q * 0.1 - 60
    slopes = quickly(jax.grad(lambda *arrays: linear_attention(*arrays, causal=causal).sum()))
    slope = slopes(far, k, v)
    with jax.enable_x64(True):
        exact = slopes(*(jnp.asarray(np.asarray(x), jnp.float64) for x in (far, k, v)))
    np.testing.assert_allclose(slope, np.asarray(exact), rtol=1e-4, atol=1e-5)


def test_features_may_have_another_width(make):
    """Pairs of channels: `φ(q) φ(k) = (q k)^2`, here of 16 features for 4 channels."""

    def pairs(x):
        return jnp.einsum("...H,...C->...HC", x, x).reshape(*x.shape[:-1], -1)

    q, k, v = make()
    state = LinearAttentionState.empty(B, K, H * H, Hv)
    _, out = STEP(state, q, k, v, feature_map=pairs)
    scores = jnp.einsum("BTNH,BSNH->BNTS", q, jnp.repeat(k, N // K, 2)) ** 2
    weights = jnp.where(jnp.tril(jnp.ones((T, T), bool))[None, None], scores, 0)
    read = jnp.einsum(
        "BNTS,BSNV->BTNV", weights / weights.sum(-1, keepdims=True), jnp.repeat(v, 3, 2)
    )
    np.testing.assert_allclose(out, read, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(READ(q, k, v, feature_map=pairs), out, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_a_state_counts_in_float32(dtype):
    """After 4096 equal tokens a sum in low precision would have stopped growing."""
    ones = [jnp.ones((1, 4096, 1, 1), dtype)] * 3
    state, out = STEP(LinearAttentionState.empty(1, 1, 1, 1), *ones)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, ones[0])
    assert state.sums.item() == 2 * 4096


def test_chunk_size_is_felt_by_cost_alone(make):
    """Pairs of tokens are formed within a chunk only: no array grows with the square of T."""
    q, k, v = make(T=19, S=19)
    sizes = {}
    for chunk_size in (5, 19):
        read = functools.partial(linear_attention, chunk_size=chunk_size)
        shapes = re.findall(r"\[(\d+(?:,\d+)*)\]", str(jax.make_jaxpr(read)(q, k, v)))
        sizes[chunk_size] = [shape.split(",") for shape in shapes]
    assert any(shape.count("19") == 2 for shape in sizes[19])
    assert not any(shape.count("19") == 2 for shape in sizes[5])
    np.testing.assert_allclose(READ(q, k, v, chunk_size=5), READ(q, k, v), atol=2e-6)


def test_no_tokens_leave_the_state_as_it_is(make):
    state, out = STEP(EMPTY, *make(T=0, S=0))
    assert out.shape == (B, 0, N, Hv)
    assert all((x == 0).all() for x in state)
    zeros = READ(*make(S=0), causal=False)
    np.testing.assert_array_equal(zeros, jnp.zeros((B, T, N, Hv)))


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (((2, 7, 6, 4), (2, 7, 4, 4), (2, 7, 4, 3)), {}, r"N=6, K=4; use a K out of \[1, 2, 3"),
        (((2, 7, 6, 4), (2, 7, 2, 5), (2, 7, 2, 3)), {}, r"k.shape=\(2, 7, 2, 5\)"),
        (((3, 7, 6, 4), (2, 7, 2, 4), (2, 7, 2, 3)), {}, r"q.shape=\(3, 7, 6, 4\)"),
        (((2, 7, 6, 4), (2, 7, 2, 4), (2, 6, 2, 3)), {}, r"v.shape=\(2, 6, 2, 3\)"),
        (((2, 7, 6, 4), (2, 9, 2, 4), (2, 9, 2, 3)), {}, "T=7, S=9; use causal=False"),
        (None, dict(chunk_size=0), "chunk_size=0"),
        (None, dict(key_valid=jnp.ones((2, 7))), "key_valid must be boolean.*dtype=float32"),
        (None, dict(key_valid=jnp.ones((2, 6), bool)), r"key_valid.shape=\(2, 6\)"),
    ],
)
def test_wrong_arguments_are_named(shapes, options, message):
    shapes = shapes or ((2, 7, 6, 4), (2, 7, 2, 4), (2, 7, 2, 3))
    with pytest.raises(ValueError, match=message):
        unwrap(linear_attention)(*(jnp.ones(shape) for shape in shapes), **options)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (LinearAttentionState.empty(B, N, H, Hv), r"use \(\(2, 2, 4, 3\), \(2, 2, 4\)\)"),
        (EMPTY._replace(normaliser=jnp.zeros((B, K))), r"normaliser.shape=\(2, 2\)"),
        (jax.tree.map(lambda x: x.astype(jnp.bfloat16), EMPTY), "sums.dtype=bfloat16"),
        (
            EMPTY._replace(normaliser=EMPTY.normaliser.astype(jnp.float16)),
            "normaliser.dtype=float16",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_named(make, state, message):
    with pytest.raises(ValueError, match=message):
        unwrap(linear_attention_step)(state, *make())


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.int32])
def test_an_empty_state_of_few_bits_is_refused(dtype):
    with pytest.raises(ValueError, match="of at least 32 bits, got dtype="):
        LinearAttentionState.empty(B, K, H, Hv, dtype=dtype)


@pytest.mark.usefixtures("float64")
def test_a_state_of_lower_precision_than_its_tokens_is_refused(make):
    with pytest.raises(
        ValueError, match=r"at least float64 for q.dtype=float64, got sums.dtype=float32"
    ):
        linear_attention_step(EMPTY, *make(dtype=jnp.float64))
