"""Tests for jtransformer.functional.dropout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer import functional as F

dropout = at_once(F.dropout)


def test_zeroes_the_share_and_keeps_the_expectation(key):
    x = jnp.full((100, 200), 3.0)
    out = dropout(x, rate=0.25, key=key)
    np.testing.assert_allclose(jnp.mean(out == 0), 0.25, atol=0.01)
    np.testing.assert_allclose(jnp.unique(out), [0, 4])
    np.testing.assert_allclose(out.mean(), 3, rtol=0.01)


def test_null_no_key_or_no_rate(key):
    x = jax.random.normal(key, (3, 4))
    np.testing.assert_array_equal(dropout(x, rate=0.5), x)
    np.testing.assert_array_equal(dropout(x, rate=0.0, key=key), x)


def test_live_rate_and_key(key):
    x = jnp.ones(1000)
    draw = dropout(x, rate=0.5, key=key)
    assert not jnp.array_equal(draw, dropout(x, rate=0.2, key=key))
    assert not jnp.array_equal(draw, dropout(x, rate=0.5, key=jax.random.fold_in(key, 1)))
    np.testing.assert_array_equal(draw, dropout(x, rate=0.5, key=key))


def test_a_zeroed_entry_sends_no_gradient_even_if_it_is_infinite(key):
    x = jnp.full(100, jnp.inf)
    out, pull = jax.vjp(lambda x: dropout(x, rate=0.5, key=key), x)
    np.testing.assert_array_equal(pull(jnp.ones(100))[0] == 0, out == 0)


def test_remat_replays_the_same_mask(key):
    x = jax.random.normal(key, (8,))

    def loss(x):
        return jnp.sum(dropout(jnp.sin(x), rate=0.5, key=key) ** 2)

    np.testing.assert_array_equal(
        quickly(jax.grad(jax.checkpoint(loss)))(x), quickly(jax.grad(loss))(x)
    )


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_a_rate_out_of_range_is_named(rate):
    with pytest.raises(ValueError, match=f"got rate={rate}"):
        dropout(jnp.ones(3), rate=rate)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_rate_that_is_an_array_drops_as_the_number_does(dtype, key):
    x = jax.random.normal(key, (40, 30), dtype)
    program = jax.jit(lambda rate: F.dropout(x, rate=rate, key=key))
    for rate in (0.1, 0.3, 0.75):
        found, expected = program(jnp.float32(rate)), F.dropout(x, rate=rate, key=key)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found == 0, expected == 0)
        found, expected = (np.asarray(y, np.float32) for y in (found, expected))
        np.testing.assert_allclose(found, expected, rtol=2 * float(jnp.finfo(dtype).eps))
    assert program._cache_size() == 1
    np.testing.assert_array_equal(F.dropout(x, rate=jnp.float32(0.3)), x)


def test_a_key_for_each_row_drops_in_it_what_it_drops_alone(key):
    x, keys = jax.random.normal(key, (3, 4, 5)), jax.random.split(key, 3)
    found = dropout(x, rate=0.5, key=keys)
    alone = [F.dropout(row, rate=0.5, key=own) for row, own in zip(x, keys, strict=True)]
    np.testing.assert_array_equal(found, jnp.stack(alone))
    assert not np.array_equal(found[0] == 0, found[1] == 0)
    # A key of the old kind is an array of numbers, and one key for all rows.
    old = jax.random.PRNGKey(0)
    np.testing.assert_array_equal(
        F.dropout(x[:2], rate=0.5, key=old), F.dropout(x[:2], rate=0.5, key=jax.random.key(0))
    )


@pytest.mark.parametrize("keys", [2, 4])
def test_error_keys_for_another_number_of_rows(key, keys):
    with pytest.raises(ValueError, match=rf"got {keys} keys for x.shape=\(3, 5\)"):
        F.dropout(jnp.ones((3, 5)), rate=0.5, key=jax.random.split(key, keys))


def test_attention_and_parallel_sublayers_take_a_key_for_each_row(key):
    q, k, v = jax.random.normal(key, (3, 2, 3, 2, 4))
    table, positions = jax.random.normal(key, (5, 4)), jnp.arange(3)[None]
    keys = jax.random.split(key, 2)
    options = dict(query_positions=positions, key_positions=positions)

    def each(function):
        program = quickly(function)

        def of_rows(rows, keys):
            return program(*[x[rows] for x in (q, k, v)], keys)

        both = of_rows(slice(None), keys)
        alone = [of_rows(slice(row, row + 1), keys[row : row + 1]) for row in (0, 1)]
        np.testing.assert_allclose(both, jnp.concatenate(alone), atol=1e-6)
        one = of_rows(slice(None), keys[0])
        assert not np.allclose(one, both, atol=1e-2)

    each(lambda q, k, v, key: F.dot_product_attention(q, k, v, dropout_rate=0.5, key=key))
    each(lambda q, k, v, key: F.relative_attention(
        q, k, v, table, table, **options, dropout_rate=0.5, key=key))  # fmt: skip
    each(lambda q, k, v, key: F.parallel_residual(
        q, [jnp.sin, jnp.cos], dropout_rate=0.5, key=key))  # fmt: skip
