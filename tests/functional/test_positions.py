"""Tests for jtransformer.functional.positions."""

import math
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer.functional.attention import dot_product_attention
from jtransformer.functional.masks import visible
from jtransformer.functional.positions import (
    learned_positions,
    sinusoidal_embedding,
    sinusoidal_positions,
    token_positions,
)
from jtransformer.functional.rope import rope

LAYOUTS = pytest.mark.parametrize("layout", ["interleaved", "split", "concatenated"])


def reference(T, D, layout):
    """One entry after the other; the concatenated form is that of tensor2tensor."""
    table = np.zeros((T, D))
    pairs = D // 2 if layout == "concatenated" else (D + 1) // 2
    for t in range(T):
        for i in range(pairs):
            if layout == "interleaved":
                angle = t / 10_000 ** (2 * i / D)
                table[t, 2 * i] = math.sin(angle)
                if 2 * i + 1 < D:
                    table[t, 2 * i + 1] = math.cos(angle)
            elif layout == "split":
                # As Marian's: feature j of D has the power 2 (j // 2) / D, sines are the even ones.
                table[t, i] = math.sin(t / 10_000 ** (2 * (2 * i // 2) / D))
                if pairs + i < D:
                    table[t, pairs + i] = math.cos(t / 10_000 ** (2 * ((2 * i + 1) // 2) / D))
            else:
                angle = t * math.exp(-i * math.log(10_000) / max(pairs - 1, 1))
                table[t, i], table[t, pairs + i] = math.sin(angle), math.cos(angle)
    return table


@LAYOUTS
@pytest.mark.parametrize("D", [2, 3, 6, 7])
def test_matches_loops(layout, D):
    table = sinusoidal_positions(5, D, layout=layout)
    assert table.dtype == jnp.float32
    np.testing.assert_allclose(table, reference(5, D, layout), atol=1e-7)


@pytest.mark.usefixtures("float64")
def test_worked_table(golden):
    expected = golden("sinusoidal")["interleaved_4x6"]
    np.testing.assert_allclose(sinusoidal_positions(4, 6), expected, atol=1e-15)


def test_frequencies_and_odd_width():
    """The exponent is doubled, the cosine has a frequency of its own, an odd width fails."""
    row = [0.841471, 0.540302, 0.010000, 0.999950]
    np.testing.assert_allclose(sinusoidal_positions(2, 4)[1], row, atol=1e-6)
    row = [0.841471, 0.540302, 0.025116, 0.999685, 0.000631]
    np.testing.assert_allclose(sinusoidal_positions(2, 5)[1], row, atol=1e-6)
    assert sinusoidal_positions(2, 5, layout="concatenated")[1, 4] == 0
    row = [0.841471, 0.025116, 0.000631, 0.540302, 0.999685]
    np.testing.assert_allclose(sinusoidal_positions(2, 5, layout="split")[1], row, atol=1e-6)


def test_far_out_the_last_digits_are_right():
    far = 131_072
    table = sinusoidal_positions(far + 1, 8)
    expected = [f(far / 10_000 ** (2 * i / 8)) for i in range(4) for f in (math.sin, math.cos)]
    np.testing.assert_allclose(table[far], expected, atol=1e-7)


@LAYOUTS
def test_products_depend_on_the_offset_only(layout):
    table = np.asarray(sinusoidal_positions(60, 16, layout=layout), np.float64)
    for offset in (0, 1, 7):
        products = [table[t] @ table[t + offset] for t in range(50)]
        np.testing.assert_allclose(products, products[0], atol=1e-5)


@LAYOUTS
def test_a_fixed_offset_is_a_rotation(layout):
    D, offset = 8, 5
    table = np.asarray(sinusoidal_positions(40, D, layout=layout), np.float64)
    rotation = np.zeros((D, D))
    for i in range(D // 2):
        of_paper = layout != "concatenated"
        angle = offset / 10_000 ** (2 * i / D if of_paper else i / (D // 2 - 1))
        block = [2 * i, 2 * i + 1] if layout == "interleaved" else [i, i + D // 2]
        rotation[np.ix_(block, block)] = [
            [math.cos(angle), math.sin(angle)],
            [-math.sin(angle), math.cos(angle)],
        ]
    np.testing.assert_allclose(table[offset:], table[:-offset] @ rotation.T, atol=1e-5)


def test_live_the_layouts_differ_and_split_alone_permutes_the_paper_s():
    interleaved, split, concatenated = (
        np.asarray(sinusoidal_positions(9, 8, layout=layout))
        for layout in ("interleaved", "split", "concatenated")
    )
    assert not np.allclose(np.sort(interleaved[8]), np.sort(concatenated[8]), atol=1e-2)
    assert not np.allclose(interleaved, split, atol=1e-2)
    np.testing.assert_array_equal(split, interleaved[:, [0, 2, 4, 6, 1, 3, 5, 7]])


def test_learned_positions_are_rows():
    table = jnp.arange(12.0).reshape(4, 3)
    found = learned_positions(jnp.array([[3, 0], [1, 1]]), table)
    np.testing.assert_array_equal(found, np.asarray(table)[[[3, 0], [1, 1]]])
    with pytest.raises(ValueError, match=r"0 … 3 \(the rows of the table\), got 0 … 4"):
        learned_positions(jnp.arange(5), table)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((-1, 4), {}, "got T=-1, D=4"),
        ((4, 1), {}, "got T=4, D=1"),
        ((4, 4), dict(layout="stacked"), "Unknown layout 'stacked'; use 'interleaved', 'split' or"),
    ],
)
def test_wrong_arguments_are_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        unwrap(sinusoidal_positions)(*arguments, **options)


@LAYOUTS
@pytest.mark.parametrize("D", [2, 5, 8])
def test_rows_at_given_positions_are_those_of_the_table(layout, D):
    positions = jnp.array([[3, 0, 11], [7, 7, 1]])
    table = np.asarray(sinusoidal_positions(12, D, layout=layout))
    rows = sinusoidal_embedding(positions, D, layout=layout)
    np.testing.assert_allclose(rows, table[np.asarray(positions)], atol=1e-6)


def test_rows_far_out_keep_six_digits():
    far = np.array([131_071, 1_000_003, 2**31 - 1])
    angle = far[:, None] * 10_000.0 ** (-np.arange(0, 16, 2) / 16)
    rows = np.asarray(sinusoidal_embedding(jnp.asarray(far)[None], 16))[0]
    np.testing.assert_allclose(rows[:, 0::2], np.sin(angle), atol=1e-6)
    np.testing.assert_allclose(rows[:, 1::2], np.cos(angle), atol=1e-6)


def test_error_rows_name_width_and_layout():
    with pytest.raises(ValueError, match="D >= 2, got D=1"):
        sinusoidal_embedding(jnp.arange(3), 1)
    with pytest.raises(ValueError, match="Unknown layout 'mixed'"):
        unwrap(sinusoidal_embedding)(jnp.arange(3), 4, layout="mixed")
    with pytest.raises(ValueError, match="positions must be integers, got dtype=float32"):
        unwrap(sinusoidal_embedding)(jnp.ones(3), 4)


@pytest.mark.usefixtures("float64")
@LAYOUTS
def test_rows_at_given_positions_are_exact_in_double_precision(layout):
    table = sinusoidal_positions(12, 7, layout=layout)
    rows = sinusoidal_embedding(jnp.array([11, 0, 5]), 7, layout=layout)
    assert rows.dtype == table.dtype == jnp.float64
    np.testing.assert_allclose(rows, table[np.array([11, 0, 5])], atol=1e-14)


VALID = jnp.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], bool)


def test_padding_on_the_left_shifts_no_position():
    """A position is the column, or one counter is shared by all rows."""
    found = token_positions(VALID)
    np.testing.assert_array_equal(found, [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])
    assert found.dtype == jnp.int32
    one_more = jnp.concatenate([VALID, jnp.ones((2, 1), bool)], axis=1)
    np.testing.assert_array_equal(token_positions(one_more)[:, -1], [3, 5])
    # The same, from the lengths alone: one step, then a ragged chunk.
    lengths = VALID.sum(1, dtype=jnp.int32)
    np.testing.assert_array_equal(token_positions(VALID[:, :1] | True, first=lengths), [[3], [5]])
    chunk = token_positions(VALID[:, :3], first=lengths)
    np.testing.assert_array_equal(chunk, [[2, 2, 3], [5, 6, 7]])


def test_positions_that_start_after_the_padding_id():
    """RoBERTa's positions start at its padding id + 1, and its table is longer by as much."""
    ids, padding = jnp.array([[0, 5, 6, 2, 1, 1]]), 1
    found = token_positions(ids != padding, first=padding + 1)
    np.testing.assert_array_equal(found, [[2, 3, 4, 5, 1, 1]])
    table = jnp.ones((10, 4))
    assert learned_positions(token_positions(jnp.ones((1, 8), bool), first=2), table).shape
    with pytest.raises(ValueError, match=r"0 … 9 \(the rows of the table\), got 2 … 10"):
        learned_positions(token_positions(jnp.ones((1, 9), bool), first=2), table)


def test_a_padded_batch_equals_each_sequence_alone(normal):
    @quickly
    def read(q, k, v, valid):
        positions = token_positions(valid)
        mask = visible(positions, positions, key_valid=valid)
        return dot_product_attention(rope(q, positions), rope(k, positions), v, mask=mask)

    heads = normal(*[(2, 5, 3, 4)] * 3)
    alone = read(*(x[:1, 2:] for x in heads), VALID[:1, 2:])
    np.testing.assert_allclose(read(*heads, VALID)[:1, 2:], alone, atol=1e-6)


def test_positions_of_tokens_compile_with_the_count_as_an_argument():
    counted = quickly(lambda valid, first: token_positions(valid, first=first))
    found = counted(VALID, jnp.array([0, 7]))
    np.testing.assert_array_equal(found, [[0, 0, 0, 1, 2], [7, 8, 9, 10, 11]])


def test_error_positions_of_tokens():
    with pytest.raises(ValueError, match="first must not be negative, got first=-1"):
        token_positions(VALID, first=-1)
    with pytest.raises(ValueError, match="first must not be negative, got first=-5"):
        unwrap(token_positions)(VALID, first=np.int64(-5))
    with pytest.raises(ValueError, match=r"Boolean with the axes B T, got valid.shape=\(5,\)"):
        unwrap(token_positions)(VALID[0])
    with pytest.raises(ValueError, match="dtype=int32"):
        unwrap(token_positions)(VALID.astype(jnp.int32))
