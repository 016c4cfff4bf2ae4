"""Tests for jtransformer.functional.masks: drawn by hand as ones and zeros."""

from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer.functional import masks as M

B, T, S = 2, 3, 5
LINE = jnp.arange(3)[None]


def positions(*rows):
    return jnp.array(rows, jnp.int32)


def assert_drawn(mask, drawing):
    """Compares a mask with its drawing: one for visible, axes as drawn or `1 1 T S`."""
    assert mask.dtype == jnp.bool_
    assert mask.ndim == 4
    drawing = np.array(drawing)
    if drawing.ndim == 2:
        drawing = drawing[None, None]
    np.testing.assert_array_equal(np.asarray(mask, int), drawing)


def test_worked_masks(golden):
    figures = golden("masks")
    assert_drawn(M.causal_mask(4), figures["causal_4"])
    assert_drawn(M.prefix_mask(4, 2), figures["prefix_4_2"])
    assert_drawn(M.prefix_mask(6, 3), figures["prefix_6_3"])


def test_causal_is_aligned_to_the_end():
    assert_drawn(M.causal_mask(2, 4), [[1, 1, 1, 0], [1, 1, 1, 1]])
    assert_drawn(M.causal_mask(1, 3), [[1, 1, 1]])


def test_window():
    drawing = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert_drawn(M.window_mask(4, window=2), drawing)
    assert_drawn(M.window_mask(2, 4, window=2), drawing[2:])
    assert_drawn(M.window_mask(4, window=1), np.eye(4))
    np.testing.assert_array_equal(M.window_mask(4, window=4), M.causal_mask(4))


def test_window_that_looks_ahead():
    line = positions([0, 1, 2, 3])
    drawing = [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert_drawn(M.visible(line, line, causal=False, window=2), drawing)


def test_prefix_per_row():
    mask = M.prefix_mask(3, jnp.array([0, 2]))
    assert_drawn(mask[:1], [[1, 0, 0], [1, 1, 0], [1, 1, 1]])
    assert_drawn(mask[1:], [[1, 1, 0], [1, 1, 0], [1, 1, 1]])


@pytest.mark.parametrize("prefix", range(6))
def test_prefix_rule_counted_from_one(prefix):
    expected = np.zeros((5, 5), int)
    for i in range(1, 6):
        for j in range(1, 6):
            expected[i - 1, j - 1] = (i <= prefix and j <= prefix) or (i > prefix and j <= i)
    assert_drawn(M.prefix_mask(5, prefix), expected)


def test_padding():
    mask = M.padding_mask(jnp.array([[True, True, False], [True, False, False]]))
    assert_drawn(mask, [[[[1, 1, 0]]], [[[1, 0, 0]]]])


def test_cross_attention_sees_every_real_source_position_and_has_no_triangle():
    valid = jnp.array([[True, True, False], [True, False, False]])
    assert_drawn(M.cross_mask(2, valid), [[[[1, 1, 0]] * 2], [[[1, 0, 0]] * 2]])
    assert_drawn(M.cross_mask(4, jnp.ones((1, 2), bool)), np.ones((4, 2)))


def test_wait_k():
    assert_drawn(M.wait_k_mask(4, 3, k=1), [[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]])
    assert_drawn(M.wait_k_mask(2, 5, k=2), [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
    for k in (5, 2**40):
        assert_drawn(M.wait_k_mask(2, 5, k=k), np.ones((2, 5)))


def test_wait_k_of_the_paper_counted_from_one():
    for k in (1, 2, 3):
        drawing = M.wait_k_mask(6, 4, k=k)[0, 0]
        np.testing.assert_array_equal(drawing.sum(1), [min(k + t - 1, 4) for t in range(1, 7)])


def test_padding_and_segments_combine_with_a_cross_mask():
    valid = jnp.array([[True, True, True, False]])
    mask = M.combine_masks(M.cross_mask(3, valid), M.wait_k_mask(3, 4, k=2))
    assert_drawn(mask, [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]])


def test_segments():
    mask = M.segment_mask(jnp.array([[1, 1, 2]]), jnp.array([[1, 1, 2, 2, 3]]))
    assert_drawn(mask, [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0]])


def test_combination_of_packed_causal_padded():
    segments = jnp.array([[1, 1, 2, 2]])
    valid = jnp.array([[True, True, True, False]])
    mask = M.combine_masks(
        M.causal_mask(4), M.segment_mask(segments, segments), M.padding_mask(valid)
    )
    assert_drawn(mask, [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]])
    line = jnp.arange(4)[None]
    general = M.visible(line, line, query_segments=segments, key_segments=segments, key_valid=valid)
    np.testing.assert_array_equal(general, mask)


def test_combination_of_two_and_four_axes():
    square = jnp.tril(jnp.ones((3, 3), bool))
    valid = jnp.array([[True, True, False], [False, True, True]])
    mask = M.combine_masks(square, M.padding_mask(valid))
    assert_drawn(mask[:1], [[1, 0, 0], [1, 1, 0], [1, 1, 0]])
    assert_drawn(mask[1:], [[0, 0, 0], [0, 1, 0], [0, 1, 1]])
    np.testing.assert_array_equal(M.combine_masks(square), square)


def test_ragged_prompts_in_a_fixed_buffer():
    # Row 0 has 3 tokens so far and adds 2, row 1 has 1: the buffer of 6 keys is not all filled.
    queries = positions([3, 4], [1, 2])
    slots = positions([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5])
    mask = M.visible(queries, slots, key_valid=slots < queries[:, -1:] + 1)
    assert_drawn(mask[:1], [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]])
    assert_drawn(mask[1:], [[1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]])


def test_chunks_equal_the_rows_of_the_whole():
    line = jnp.arange(6)[None]
    whole = M.visible(line, line, window=3, prefix_length=2)
    chunks = [M.visible(line[:, a:b], line, window=3, prefix_length=2) for a, b in ((0, 4), (4, 6))]
    np.testing.assert_array_equal(jnp.concatenate(chunks, axis=2), whole)


def test_positions_may_start_anywhere():
    line = jnp.arange(4)[None]
    np.testing.assert_array_equal(
        M.visible(line + 7, line + 7, window=2), M.visible(line, line, window=2)
    )


def test_null_without_conditions_all_is_visible():
    queries, keys = jnp.zeros((B, T), int), jnp.arange(S)[None]
    assert_drawn(M.visible(queries, keys, causal=False), np.ones((B, 1, T, S)))


NULL = [
    dict(window=100),
    dict(prefix_length=0),
    dict(query_segments=jnp.zeros((B, T), int), key_segments=jnp.zeros((B, S), int)),
    dict(key_valid=jnp.ones((B, S), bool)),
]
LIVE = [
    dict(causal=False),
    dict(window=1),
    dict(prefix_length=5),
    dict(prefix_length=jnp.array([0, 5])),
    dict(query_segments=jnp.ones((B, T), int), key_segments=jnp.zeros((B, S), int)),
    dict(key_valid=jnp.zeros((B, S), bool)),
]


@pytest.mark.parametrize(("changes", "equal"), [(NULL, True), (LIVE, False)], ids=["null", "live"])
def test_each_knob(changes, equal):
    queries, keys = positions([2, 3, 4], [1, 2, 3]), positions(range(5), range(5))
    baseline = M.visible(queries, keys)
    for change in changes:
        assert jnp.array_equal(M.visible(queries, keys, **change), baseline) == equal, change


def test_under_jit_with_traced_positions_and_prefix():
    line = jnp.tile(jnp.arange(4)[None], (2, 1))

    def mask(line, prefix, valid):
        return M.visible(line, line, prefix_length=prefix, key_valid=valid)

    arguments = line, jnp.array([1, 3]), line < 3
    np.testing.assert_array_equal(quickly(mask)(*arguments), mask(*arguments))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: M.causal_mask(4, 3), "got T=4, S=3"),
        (lambda: M.window_mask(4, 3, window=1), "got T=4, S=3"),
        (lambda: M.window_mask(4, window=0), "got window=0"),
        (lambda: M.prefix_mask(4, 5), "got prefix=5, T=4"),
        (lambda: M.prefix_mask(4, -1), "got prefix=-1"),
        (lambda: M.combine_masks(), "at least one mask"),
        (lambda: M.combine_masks(M.causal_mask(3), M.causal_mask(4)), "got shapes"),
        (lambda: M.combine_masks(jnp.ones((2, 3, 3), bool)), r"mask.shape=\(2, 3, 3\)"),
        (lambda: unwrap(M.combine_masks)(jnp.ones((3, 3))), "dtype=float32"),
        (lambda: unwrap(M.padding_mask)(jnp.ones((2, 3), int)), "valid must be boolean"),
        (lambda: unwrap(M.cross_mask)(4, jnp.ones((2, 3))), "source_valid must be boolean"),
        (lambda: unwrap(M.segment_mask)(LINE > 0, LINE), "query_segments must be integers"),
        (lambda: unwrap(M.segment_mask)(LINE, LINE / 2), "key_segments must be integers"),
        (lambda: unwrap(M.segment_mask)(LINE, LINE[0]), r"key_segments.shape=\(3,\)"),
        (lambda: unwrap(M.segment_mask)(LINE, jnp.tile(LINE, (2, 1))), r"shape=\(2, 3\)"),
        (lambda: M.wait_k_mask(2, 3, k=0), "k must be at least 1, got k=0"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_window_wider_than_any_text_hides_nothing():
    for window in (2**31 - 1, 2**40):
        np.testing.assert_array_equal(M.window_mask(3, window=window), M.causal_mask(3))


def test_positions_of_one_byte_do_not_wrap_around():
    positions = jnp.array([[120, 121, 122]], jnp.int8)
    found = M.visible(positions, positions, window=10)
    np.testing.assert_array_equal(found, M.causal_mask(3))
