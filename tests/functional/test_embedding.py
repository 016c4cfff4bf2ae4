"""Tests for jtransformer.functional.embedding."""

import math
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer.functional.embedding import embed, readout

B, T, V, D = 2, 3, 7, 4
TOKENS = jnp.array([[0, 6, 2], [2, 2, 5]])


@pytest.mark.parametrize("scales", [(None, None), (2.0, 0.25)])
def test_tied_gradient_is_the_sum_of_both(normal, scales):
    table, other = normal((V, D), (V, D))
    scale_in, scale_out = scales

    def loss(table_in, table_out):
        rows = embed(TOKENS, table_in, scale=scale_in)
        return jnp.sum(readout(rows, table_out, scale=scale_out) ** 2)

    by_end = quickly(jax.grad(loss, argnums=(0, 1)))
    both = by_end(table, table)
    tied = quickly(jax.grad(lambda table: loss(table, table)))(table)
    np.testing.assert_allclose(tied, both[0] + both[1], rtol=1e-5)
    never_read = jnp.array([token for token in range(V) if token not in np.asarray(TOKENS)])
    # A row that is never looked up still moves, through the head.
    assert (both[0][never_read] == 0).all()
    assert (jnp.abs(tied[never_read]).sum(-1) > 0).all()
    untied = by_end(table, other)[0]
    assert (untied[never_read] == 0).all() and not np.allclose(untied, both[0])


@pytest.mark.parametrize(
    ("width", "exact", "rounded"), [(3072, 55.425626, 55.5), (2048, 45.254834, 45.25)]
)
def test_the_scale_is_rounded_to_the_dtype_of_the_table(width, exact, rounded):
    """The scale of the embedding is applied in float32 where the model has it in bfloat16."""
    scale = math.sqrt(width)
    for dtype, expected in ((jnp.float32, exact), (jnp.bfloat16, rounded)):
        found = embed(TOKENS, jnp.ones((V, D), dtype), scale=scale)
        assert found.dtype == dtype
        np.testing.assert_allclose(found.astype(jnp.float32), expected, rtol=1e-7)


def test_the_rounded_scale_multiplies_the_rows():
    # In bfloat16 1.09375 * 55.5 is 60.75, and 1.09375 * 55.425626 would be 60.5.
    table = jnp.full((V, D), 1.09375, jnp.bfloat16)
    found = embed(TOKENS, table, scale=math.sqrt(3072)).astype(jnp.float32)
    np.testing.assert_array_equal(found, 60.75)


def test_the_scale_of_the_rows_is_not_that_of_the_head(normal):
    """The scale of the embedding reaches the logits through the tied table."""
    (table,) = normal((V, D))
    rows = embed(TOKENS, table, scale=3.0)
    np.testing.assert_array_equal(rows, 3 * embed(TOKENS, table))
    np.testing.assert_array_equal(readout(rows, table), readout(3 * embed(TOKENS, table), table))
    np.testing.assert_array_equal(embed(TOKENS, table, scale=1.0), embed(TOKENS, table))


def test_the_tied_head_of_t5_scales_its_states_and_not_the_bias(normal):
    """T5's tied head divides by the root of the width, an untied one does not."""
    width = 16
    hidden, table = normal((B, T, width), (V, width))
    bias = jnp.arange(V, dtype=jnp.float32)
    raw, scaled = readout(hidden, table), readout(hidden, table, scale=width**-0.5)
    np.testing.assert_allclose(raw / scaled, 4.0, rtol=1e-5)
    np.testing.assert_array_equal(jnp.argmax(raw, -1), jnp.argmax(scaled, -1))
    with_bias = readout(hidden, table, bias, scale=width**-0.5)
    np.testing.assert_allclose(with_bias, scaled + bias[None, None], atol=1e-6)
    np.testing.assert_array_equal(readout(hidden, table, scale=1.0), raw)
    low = readout(hidden.astype(jnp.bfloat16), table.astype(jnp.bfloat16), scale=0.3)
    assert low.dtype == jnp.bfloat16


@pytest.mark.parametrize("token", [4, -1])
def test_an_id_beyond_the_table_is_refused_where_it_is_known(token):
    """An id beyond the table reads a row of NaN, and a negative one wraps around."""
    with pytest.raises(ValueError, match="must lie in 0 … 3"):
        embed(jnp.array([0, token]), jnp.ones((4, 2)))


def test_a_traced_id_beyond_the_table_is_no_nan():
    table = jnp.arange(8.0).reshape(4, 2)
    found = quickly(embed)(jnp.array([9, -1, 2]), table)
    np.testing.assert_array_equal(found, table[jnp.array([3, 0, 2])])


def test_no_tokens():
    assert embed(jnp.zeros((B, 0), int), jnp.ones((V, D))).shape == (B, 0, D)


def test_widths_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"x.shape=\(2, 5\), kernel.shape=\(4, 7\)"):
        # The checked inner function is reached through the unchecked one.
        unwrap(unwrap(readout).__globals__["linear"])(jnp.ones((2, 5)), jnp.ones((4, 7)))


def test_tokens_known_before_tracing_may_be_read_inside_it():
    table, tokens = jnp.arange(8.0).reshape(4, 2), jnp.array([3, 0])
    looked_up = quickly(lambda table: embed(tokens, table))(table)
    np.testing.assert_array_equal(looked_up, table[np.array([3, 0])])
    total = quickly(jax.grad(lambda table: jnp.sum(embed(tokens, table))))(table)
    np.testing.assert_array_equal(total, [[1, 1], [0, 0], [0, 0], [1, 1]])
