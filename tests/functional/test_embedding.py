"""Tests for jtransformer.functional.embedding."""

from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jtransformer.functional.embedding import embed, readout

B, T, V, D = 2, 3, 7, 4
TOKENS = jnp.array([[0, 6, 2], [2, 2, 5]])


def test_rows_of_the_table(normal):
    (table,) = normal((V, D))
    found = embed(TOKENS, table)
    for b, t in np.ndindex(B, T):
        np.testing.assert_array_equal(found[b, t], table[int(TOKENS[b, t])])
    assert embed(TOKENS, table.astype(jnp.bfloat16)).dtype == jnp.bfloat16


def test_readout_is_a_product_with_each_row(normal):
    (table,) = normal((V, D))
    (hidden,) = normal((B, T, D))
    bias = jnp.arange(V, dtype=jnp.float32)
    in64 = np.asarray(hidden, np.float64), np.asarray(table, np.float64)
    expected = np.zeros((B, T, V))
    for b, t, token in np.ndindex(B, T, V):
        expected[b, t, token] = sum(in64[0][b, t] * in64[1][token])
    np.testing.assert_allclose(readout(hidden, table), expected, atol=1e-5)
    np.testing.assert_allclose(readout(hidden, table, bias), expected + np.asarray(bias), atol=1e-5)
    without = readout(hidden, table)
    np.testing.assert_array_equal(readout(hidden, table, jnp.zeros(V)), without)


def test_tied_gradient_is_the_sum_of_both(normal):
    table, other = normal((V, D), (V, D))

    def loss(table_in, table_out):
        return jnp.sum(readout(embed(TOKENS, table_in), table_out) ** 2)

    both = jax.grad(loss, argnums=(0, 1))(table, table)
    tied = jax.grad(lambda table: loss(table, table))(table)
    np.testing.assert_allclose(tied, both[0] + both[1], rtol=1e-5)
    never_read = [token for token in range(V) if token not in np.asarray(TOKENS)]
    assert (both[0][jnp.array(never_read)] == 0).all()
    assert (jnp.abs(tied[jnp.array(never_read)]).sum(-1) > 0).all()


@pytest.mark.parametrize("token", [4, -1])
def test_an_id_beyond_the_table_is_refused_where_it_is_known(token):
    with pytest.raises(ValueError, match="must lie in 0 … 3"):
        embed(jnp.array([0, token]), jnp.ones((4, 2)))


def test_a_traced_id_beyond_the_table_is_no_nan():
    table = jnp.arange(8.0).reshape(4, 2)
    found = jax.jit(embed)(jnp.array([9, -1, 2]), table)
    np.testing.assert_array_equal(found, table[jnp.array([3, 0, 2])])


def test_no_tokens():
    assert embed(jnp.zeros((B, 0), int), jnp.ones((V, D))).shape == (B, 0, D)


def test_widths_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"x.shape=\(2, 5\), kernel.shape=\(4, 7\)"):
        # The checked inner function is reached through the unchecked one.
        unwrap(unwrap(readout).__globals__["linear"])(jnp.ones((2, 5)), jnp.ones((4, 7)))


def test_tokens_known_before_tracing_may_be_read_inside_it():
    table, tokens = jnp.arange(8.0).reshape(4, 2), jnp.array([3, 0])
    looked_up = jax.jit(lambda table: embed(tokens, table))(table)
    np.testing.assert_array_equal(looked_up, table[np.array([3, 0])])
    total = jax.grad(lambda table: jnp.sum(embed(tokens, table)))(table)
    np.testing.assert_array_equal(total, [[1, 1], [0, 0], [0, 0], [1, 1]])
