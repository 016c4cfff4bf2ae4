"""Tests for jtransformer.functional.relative_attention."""

import functools
import re
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer import functional as F
from jtransformer.functional.masks import causal_mask
from jtransformer.functional.relative_attention import relative_attention
from jtransformer.functional.visibility import Visibility

dot_product_attention = at_once(F.dot_product_attention)
relative_bias = at_once(F.relative_bias)

B, T, S, N, K, H, Hv, M = 2, 3, 11, 4, 2, 6, 7, 5
READ = quickly(relative_attention, static_argnames=("scale", "dropout_rate"))
POSITIONS = dict(query_positions=jnp.arange(4, 4 + T)[None], key_positions=jnp.arange(S)[None])


@pytest.fixture
def make(normal):
    """Draws queries, keys, values, and the two tables."""

    def draw(T=T, S=S, M=M, dtype=jnp.float32):
        shapes = (B, T, N, H), (B, S, K, H), (B, S, K, Hv), (M, H), (M, Hv)
        return normal(*shapes, dtype=dtype)

    return draw


def test_worked_biases():
    """By hand: a query at 2 sees keys at 0 … 5 from two before it to two or more after it."""
    table = jnp.array([[10.0, -1.0], [11, -2], [12, -3], [13, -4], [14, -5]])
    bias = relative_bias(table, jnp.array([[2, 9]]), jnp.arange(6)[None])
    assert bias.shape == (1, 2, 2, 6)
    np.testing.assert_array_equal(bias[0, 0, 0], [10, 11, 12, 13, 14, 14])
    np.testing.assert_array_equal(bias[0, 1, 0], [-1, -2, -3, -4, -5, -5])
    np.testing.assert_array_equal(bias[0, 0, 1], [10] * 6)


def test_a_distance_is_that_of_the_key_from_the_query():
    """The other sign would read the past with the rows of the future."""
    q, k = jnp.ones((1, 1, 1, 1)), jnp.zeros((1, 3, 1, 1))
    v = jnp.array([1.0, 2.0, 3.0])[None, :, None, None]
    only_the_past = jnp.array([[100.0], [0.0], [0.0]])
    positions = dict(query_positions=jnp.array([[1]]), key_positions=jnp.arange(3)[None])
    assert relative_attention(q, k, v, only_the_past, **positions).item() == 1
    added = jnp.array([[10.0], [20.0], [30.0]])
    out = relative_attention(q, k, v, only_the_past, added, **positions)
    assert out.item() == 11


@pytest.mark.parametrize(
    "options",
    [{}, dict(mask=causal_mask(T, S)), dict(scale=0.7, dropout_rate=0.4, key=jax.random.key(2))],
    ids=["plain", "masked", "dropped"],
)
def test_zero_tables_are_plain_attention_exactly(make, options):
    q, k, v, *tables = make()
    # Not compiled: a compiler is free to contract the sum with a bias of zeros.
    plain = F.dot_product_attention(q, k, v, **options)
    for zeros in ([jnp.zeros((M, H))], [jnp.zeros_like(table) for table in tables]):
        out = relative_attention(q, k, v, *zeros, **POSITIONS, **options)
        np.testing.assert_array_equal(out, plain)


@pytest.mark.parametrize("scale", [None, 2.0])
def test_rows_of_the_tables_are_added_to_keys_and_values(make, scale):
    """One query finds one row at each key, so both sums can be formed beforehand."""
    q, k, v, key_table, value_table = make(T=1)
    positions = dict(query_positions=jnp.array([[4]]), key_positions=jnp.arange(S)[None])
    options = dict(dropout_rate=0.4, key=jax.random.key(2), mask=causal_mask(1, S), scale=scale)
    out = READ(q, k, v, key_table, value_table, **positions, **options)
    rows = jnp.array([0, 0, 0, 1, 2, 3, 4, 4, 4, 4, 4])
    moved = k + key_table[rows][None, :, None], v + value_table[rows][None, :, None]
    np.testing.assert_allclose(out, dot_product_attention(q, *moved, **options), atol=5e-6)


def test_positions_are_felt_by_their_differences_only(make, normal):
    arrays = make()
    (table,) = normal((M, N))

    def shifted(shift):
        return {name: positions + shift for name, positions in POSITIONS.items()}

    for shift in (-20, 100_000):
        np.testing.assert_array_equal(READ(*arrays, **shifted(shift)), READ(*arrays, **POSITIONS))
        np.testing.assert_array_equal(
            relative_bias(table, *shifted(shift).values()),
            relative_bias(table, *POSITIONS.values()),
        )


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int16])
def test_positions_in_few_bits_do_not_wrap_around(normal, dtype):
    """As bytes 120 - (-120) is -16, and 0 - 1 without a sign is 255."""
    (table,) = normal((M, N))
    low, high = (0, 255) if dtype == jnp.uint8 else (-120, 120)
    query, key = (jnp.array([[low, high]], each) for each in (dtype, dtype))
    wide = [x.astype(jnp.int32) for x in (query, key)]
    found = unwrap(relative_bias)(table, query, key)  # The checker knows signed integers only.
    np.testing.assert_array_equal(found, relative_bias(table, *wide))


def test_far_distances_count_as_the_farthest(make):
    arrays = make()
    near = dict(POSITIONS, key_positions=jnp.array([[0] + [4] * 9 + [8]]))
    far = dict(near, key_positions=near["key_positions"].at[0, 0].set(-1000).at[0, -1].set(9999))
    np.testing.assert_array_equal(READ(*arrays, **near), READ(*arrays, **far))


def test_each_batch_row_has_its_own_positions(make):
    arrays = make()
    other = dict(query_positions=jnp.array([[9, 0, 5]]), key_positions=jnp.arange(S)[None, ::-1])
    both = {name: jnp.concatenate([POSITIONS[name], other[name]]) for name in POSITIONS}
    out = READ(*arrays, **both)
    np.testing.assert_allclose(out[0], READ(*arrays, **POSITIONS)[0], rtol=1e-6)
    np.testing.assert_allclose(out[1], READ(*arrays, **other)[1], rtol=1e-6)
    assert not np.allclose(out[1], READ(*arrays, **POSITIONS)[1], atol=0.01)


def test_a_token_keeps_its_distances_when_keys_are_reordered(make):
    q, k, v, *tables = make()
    order = jnp.array([4, 0, 9, 3, 10, 1, 2, 8, 5, 7, 6])
    reordered = dict(POSITIONS, key_positions=POSITIONS["key_positions"][:, order])
    out = READ(q, k[:, order], v[:, order], *tables, **reordered)
    np.testing.assert_allclose(out, READ(q, k, v, *tables, **POSITIONS), atol=2e-6)


def test_decoding_equals_the_full_pass(make):
    arrays = make(T=S)
    positions = jnp.arange(S)[None]
    full = READ(*arrays, query_positions=positions, key_positions=positions, mask=causal_mask(S))
    q, *rest = arrays
    at = jnp.array([[6]])
    seen = (positions <= at)[:, None, None]
    step = READ(q[:, 6:7], *rest, query_positions=at, key_positions=positions, mask=seen)
    np.testing.assert_allclose(step[:, 0], full[:, 6], atol=2e-6)


def test_a_bias_of_distances_is_a_table_that_each_query_reads_alike(normal, make):
    """Where all queries are one vector, Shaw's key table is a bias shared by all heads."""
    _, k, v, key_table, _ = make()
    q = jnp.broadcast_to(normal((H,))[0], (B, T, N, H))
    table = jnp.broadcast_to((key_table @ q[0, 0, 0])[:, None], (M, N))
    bias = relative_bias(table, *POSITIONS.values())
    out = dot_product_attention(q, k, v, scale=1.0, bias=bias)
    np.testing.assert_allclose(READ(q, k, v, key_table, **POSITIONS, scale=1.0), out, atol=5e-6)


def test_a_query_that_sees_nothing_gets_zeros_and_sends_none(make):
    arrays = make()
    mask = jnp.ones((T, S), bool).at[1].set(False)

    def blind(*arrays):
        return relative_attention(*arrays, **POSITIONS, mask=mask)[:, 1]

    np.testing.assert_array_equal(quickly(blind)(*arrays), jnp.zeros((B, N, Hv)))
    slopes = quickly(jax.grad(lambda *a: blind(*a).sum(), argnums=tuple(range(5))))(*arrays)
    assert all((slope == 0).all() for slope in slopes)


@pytest.mark.parametrize("n_tables", [1, 2])
def test_what_stands_in_padding_is_not_felt_even_as_nan(make, n_tables):
    q, k, v, *tables = make()
    tables = tables[:n_tables]
    valid = jnp.ones((B, S), bool).at[1, 7:].set(False).at[0, 2].set(False)
    mask = Visibility(*POSITIONS.values(), key_valid=valid)

    def read(k, v, mask=mask):
        return relative_attention(q, k, v, *tables, **POSITIONS, mask=mask)

    def slopes(*arrays):
        return quickly(jax.grad(lambda *a: (read(*a) ** 2).sum(), (0, 1)))(*arrays)

    clean, dirty = (k, v), [x.at[~valid].set(jnp.nan) for x in (k, v)]
    np.testing.assert_array_equal(read(*dirty), read(*clean))
    np.testing.assert_array_equal(read(*clean), read(*clean, mask.draw()))
    jax.tree.map(np.testing.assert_array_equal, slopes(*dirty), slopes(*clean))


def test_weights_of_one_distance_are_summed_in_float32(normal):
    """The sum of 4096 equal weights in float16 would stop growing at a half of the right one."""
    ones = jnp.ones((1, 1, 1, 1), jnp.float16)
    k = jnp.zeros((1, 4096, 1, 1), jnp.float16)
    tables = jnp.zeros((1, 1), jnp.float16), jnp.full((1, 1), 8, jnp.float16)
    positions = dict(query_positions=jnp.array([[0]]), key_positions=jnp.arange(4096)[None])
    out = relative_attention(ones, k, k, *tables, **positions)
    assert out.dtype == jnp.float16
    np.testing.assert_allclose(out.item(), 8, rtol=1e-3)


def test_no_vector_is_formed_for_each_pair_of_tokens(make):
    """Neither forward nor backward: B N T S entries at most, not T S H."""
    arrays = make(T=13, S=23)
    positions = dict(query_positions=jnp.arange(13)[None], key_positions=jnp.arange(23)[None])

    def slopes(*arrays):
        read = functools.partial(relative_attention, **positions)
        return jax.grad(lambda *a: read(*a).sum(), argnums=tuple(range(5)))(*arrays)

    shapes = re.findall(r"\[(\d+(?:,\d+)*)\]", str(jax.make_jaxpr(slopes)(*arrays)))
    pairs = [s.split(",") for s in shapes if {"13", "23"} <= set(s.split(","))]
    assert pairs
    assert not [shape for shape in pairs if str(H) in shape or str(Hv) in shape]


def test_null_and_live_options(make):
    q, k, v, key_table, value_table = make()
    out = READ(q, k, v, key_table, **POSITIONS)
    np.testing.assert_array_equal(READ(q, k, v, key_table, None, **POSITIONS), out)
    assert not np.allclose(READ(q, k, v, key_table, value_table, **POSITIONS), out, atol=0.01)
    assert not np.allclose(dot_product_attention(q, k, v), out, atol=0.01)


@pytest.mark.parametrize(
    ("index", "shape", "message"),
    [
        (3, (4, H), r"key_table must have 2m \+ 1 rows.*M=4; use 5"),
        (3, (M, H + 1), r"key_table.shape=\(5, 7\); use \(5, 6\)"),
        (4, (6, Hv), r"value_table must have 2m \+ 1 rows.*M=6; use 7"),
        (4, (M, H), r"value_table.shape=\(5, 6\); use \(5, 7\)"),
        (4, (M + 2, Hv), r"key_table.shape=\(5, 6\), value_table.shape=\(7, 7\)"),
        (2, (B, S, K + 1, Hv), r"v.shape=\(2, 11, 3, 7\)"),
        (0, (B, T, 3, H), "N=3, K=2"),
    ],
)
def test_wrong_shapes_are_named(make, index, shape, message):
    arrays = list(make())
    arrays[index] = jnp.ones(shape)
    with pytest.raises(ValueError, match=message):
        unwrap(relative_attention)(*arrays, **POSITIONS)


def test_wrong_positions_are_named(make):
    arrays = make()
    table = jnp.ones((M, N))
    short = dict(POSITIONS, query_positions=jnp.arange(2)[None])
    with pytest.raises(ValueError, match=r"query_positions.shape=\(1, 2\) for q.shape=\(2, 3, 4"):
        unwrap(relative_attention)(*arrays, **short)
    one = jnp.array([[0]])
    with pytest.raises(ValueError, match="must be integers, got dtype=float32"):
        unwrap(relative_bias)(table, one, one.astype(jnp.float32))
    with pytest.raises(ValueError, match=r"query_positions.shape=\(3,\)"):
        unwrap(relative_bias)(table, jnp.arange(3), one)
    with pytest.raises(ValueError, match=r"key_positions.shape=\(3, 1\)"):
        unwrap(relative_bias)(table, jnp.zeros((2, 1), int), jnp.zeros((3, 1), int))
    with pytest.raises(ValueError, match=r"table must have 2m \+ 1 rows.*M=2; use 3"):
        relative_bias(jnp.ones((2, N)), one, one)
