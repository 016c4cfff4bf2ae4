"""Tests for jtransformer.functional.position_bias."""

import math
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer import functional as F
from jtransformer.functional.masks import causal_mask
from jtransformer.functional.position_bias import alibi_slopes

attention_weights = at_once(F.attention_weights)
alibi_bias = at_once(F.alibi_bias)
t5_bias = at_once(F.t5_bias)
t5_bucket = at_once(F.t5_bucket)

B, T, S, N, H = 2, 3, 5, 4, 6
QUERIES = jnp.array([[0, 1, 2], [40, 7, 90]])
KEYS = jnp.array([[0, 1, 2, 9, 4], [60, 7, 20, 200, 41]])
FAR = 1_000_002
BOTH = pytest.mark.parametrize("bidirectional", [True, False])

RELATIVE = [-200, -128, -64, -20, -16, -9, -8, -7, -1, 0, 1, 7, 8, 9, 16, 20, 64, 127, 128, 200]


@pytest.mark.parametrize(
    ("bidirectional", "expected"),
    [
        (True, [15, 15, 14, 10, 10, 8, 8, 7, 1, 0, 17, 23, 24, 24, 26, 26, 30, 31, 31, 31]),
        (False, [31, 31, 26, 17, 16, 9, 8, 7, 1, *[0] * 11]),
    ],
)
def test_t5_worked_buckets(bidirectional, expected):
    """The sign of the relative position, or the direction, is mistaken."""
    found = t5_bucket(jnp.array(RELATIVE), bidirectional=bidirectional)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n_each", [2, 3, 8, 10, 16, 31, 32, 160])
@pytest.mark.parametrize("max_distance", [81, 128, 800, 1_024])
def test_t5_buckets_equal_the_formula_in_float64_at_every_distance(n_each, max_distance):
    distance = np.arange(100_001)
    exact = n_each // 2
    wider = np.log(np.maximum(distance, 1) / exact) / math.log(max_distance / exact)
    wider = wider * (n_each - exact)
    # A logarithm that should be a whole number is one, up to its last digits.
    wider = np.where(np.abs(wider - np.rint(wider)) < 1e-9, np.rint(wider), wider)
    expected = np.minimum(exact + np.floor(wider), n_each - 1)
    expected = np.where(distance < exact, distance, expected)
    behind = t5_bucket(
        jnp.array(-distance), bidirectional=False, n_buckets=n_each, max_distance=max_distance
    )
    np.testing.assert_array_equal(behind, expected)
    ahead = t5_bucket(
        jnp.array(distance), bidirectional=True, n_buckets=2 * n_each, max_distance=max_distance
    )
    np.testing.assert_array_equal(ahead[1:], expected[1:] + n_each)
    assert ahead[0] == 0


@pytest.mark.parametrize(
    ("n_buckets", "max_distance", "distance", "bucket"),
    [
        # 9 is 3 * 27^(1/3): JAX's float32 logarithm puts it, and 27, one bucket too low.
        (6, 81, 9, 4),
        (6, 81, 8, 3),
        (6, 81, 27, 5),
        # 20, 40 and 160 are 10 * 32^(j/10): NumPy's float64 logarithm puts them too low.
        (20, 320, 20, 12),
        (20, 320, 40, 14),
        (20, 320, 160, 18),
        (20, 320, 159, 17),
    ],
)
def test_t5_a_distance_on_a_boundary_belongs_to_the_bucket_that_starts_there(
    n_buckets, max_distance, distance, bucket
):
    options = dict(bidirectional=False, n_buckets=n_buckets, max_distance=max_distance)
    assert t5_bucket(jnp.array([-distance]), **options)[0] == bucket


@BOTH
def test_t5_buckets_of_the_farthest_positions(bidirectional):
    far = jnp.array([-(2**31), -(2**31) + 1, 2**31 - 1], jnp.int32)
    expected = [15, 15, 31] if bidirectional else [31, 31, 0]
    np.testing.assert_array_equal(t5_bucket(far, bidirectional=bidirectional), expected)
    # 8-bit positions cannot hold the distance at which the last bucket starts.
    small = jnp.array([-128, 127], jnp.int8)
    np.testing.assert_array_equal(
        t5_bucket(small, bidirectional=bidirectional),
        t5_bucket(small.astype(int), bidirectional=bidirectional),
    )


def test_t5_gradient_counts_the_pairs_of_each_bucket(normal):
    (table,) = normal((32, N))
    slopes = quickly(
        jax.grad(lambda table: t5_bias(table, QUERIES, KEYS, bidirectional=True).sum())
    )(table)
    relative = KEYS[:, None] - QUERIES[:, :, None]
    counts = np.bincount(t5_bucket(relative, bidirectional=True).ravel(), minlength=32)
    np.testing.assert_array_equal(slopes, np.tile(counts[:, None], (1, N)))


def biases(normal):
    (table,) = normal((32, N))
    return [
        lambda q, k: t5_bias(table, q, k, bidirectional=True),
        lambda q, k: t5_bias(table, q, k, bidirectional=False),
        lambda q, k: alibi_bias(alibi_slopes(N), q, k),
    ]


def test_biases_depend_on_the_offset_only(normal):
    for bias in biases(normal):
        near, far = bias(QUERIES, KEYS), bias(QUERIES + FAR, KEYS + FAR)
        np.testing.assert_array_equal(near, far)


def test_one_row_of_positions_serves_the_batch(normal):
    for bias in biases(normal):
        full = bias(QUERIES, jnp.tile(KEYS[:1], (B, 1)))
        np.testing.assert_array_equal(bias(QUERIES, KEYS[:1]), full)
        np.testing.assert_array_equal(bias(QUERIES[:1], KEYS)[0], full[0])
        np.testing.assert_array_equal(bias(QUERIES[:1], KEYS[:1]), full[:1])


@pytest.mark.parametrize(
    ("n_heads", "expected"),
    [
        (1, [0.00390625]),
        (3, [0.0625, 0.00390625, 0.25]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (8, [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]),
        (12, [*(2.0**-n for n in range(1, 9)), 0.707107, 0.353553, 0.176777, 0.0883883]),
    ],
)
def test_alibi_slopes_of_any_number_of_heads(n_heads, expected):
    """Head counts that are no power of two get one geometric sequence, or are sorted."""
    np.testing.assert_allclose(alibi_slopes(n_heads), expected, rtol=2e-6)
    assert alibi_slopes(n_heads).dtype == jnp.float32


def test_alibi_slopes_follow_the_published_recursion():
    def published(n):
        if math.log2(n).is_integer():
            start = 2 ** (-(2 ** -(math.log2(n) - 3)))
            return [start**power for power in range(1, n + 1)]
        lower = 2 ** math.floor(math.log2(n))
        return published(lower) + published(2 * lower)[0::2][: n - lower]

    for n in (*range(1, 34), 71, 112):
        np.testing.assert_allclose(alibi_slopes(n), published(n), rtol=1e-6)


def test_alibi_by_hand():
    found = alibi_bias(jnp.array([0.5, 0.25]), jnp.array([[1, 2]]), jnp.array([[0, 1, 4]]))
    np.testing.assert_array_equal(found[0, 0], [[-0.5, 0, -1.5], [-1, -0.5, -1]])
    np.testing.assert_array_equal(found[0, 1], [[-0.25, 0, -0.75], [-0.5, -0.25, -0.5]])


def test_alibi_under_a_causal_mask_is_the_form_of_bloom(normal):
    q, k = normal((B, S, N, H), (B, S, N, H))
    positions = jnp.arange(S)[None]
    slopes = alibi_slopes(N)
    by_key = slopes[None, :, None, None] * jnp.arange(S, dtype=jnp.float32)[None, None, None]
    weights = [
        attention_weights(q, k, mask=causal_mask(S), bias=bias)
        for bias in (alibi_bias(slopes, positions, positions), by_key)
    ]
    np.testing.assert_allclose(*weights, atol=1e-6)
    plain = attention_weights(q, k, mask=causal_mask(S))
    assert not np.allclose(weights[0], plain, atol=1e-2)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_alibi_stays_finite_where_all_keys_are_far(dtype):
    slopes = jnp.array([1.0, -1.0], dtype)
    found = alibi_bias(slopes, jnp.array([[0]]), jnp.array([[200_000, 300_000]]))
    assert found.dtype == dtype and jnp.isfinite(found).all()
    assert (found[0, 0] < -60_000).all() and (found[0, 1] > 60_000).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(bidirectional=True, n_buckets=31), "got n_buckets=31, bidirectional=True"),
        (dict(bidirectional=True, n_buckets=2), "at least 2, got n_buckets=2, bidirectional=True"),
        (dict(bidirectional=False, n_buckets=1), "got n_buckets=1, bidirectional=False"),
        (dict(bidirectional=False, max_distance=16), "exceed the 16 buckets .* max_distance=16"),
    ],
)
def test_buckets_that_cannot_be_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        t5_bucket(jnp.arange(3), **options)


def test_positions_that_would_be_misread_are_named():
    def bias(q, k):
        return unwrap(alibi_bias)(jnp.ones(2), q, k)

    with pytest.raises(ValueError, match="key_positions must be integers, got dtype=float32"):
        bias(QUERIES, KEYS.astype(jnp.float32))
    with pytest.raises(ValueError, match=r"B full or 1, got query_positions.shape=\(3,\)"):
        bias(QUERIES[0], KEYS)
    with pytest.raises(ValueError, match=r"key_positions.shape=\(3, 5\)"):
        bias(QUERIES, jnp.zeros((3, 5), int))
    with pytest.raises(ValueError, match="relative_positions must be integers, got dtype=float32"):
        unwrap(t5_bucket)(jnp.ones(3), bidirectional=True)
    with pytest.raises(ValueError, match="at least one head, got N=0"):
        alibi_slopes(0)
