"""Tests for jtransformer.interop.layouts."""

import numpy as np
import pytest

from jtransformer.interop.layouts import (
    Concatenated,
    Flat,
    Grouped,
    Same,
    Straight,
    Transposed,
)

D, N, K, H, F = 10, 6, 2, 4, 7
QKV = ((D, N, H), (D, K, H), (D, K, H))
BIASES = ((N, H), (K, H), (K, H))
CASES = {
    "same": (Same(), ((F, D),)),
    "flat": (Flat(), ((N, H),)),
    "flat row": (Flat(leading=1), ((F,),)),
    "transposed": (Transposed(), ((D, F),)),
    "transposed heads": (Transposed(), ((D, N, H),)),
    "transposed output": (Transposed(2), ((N, H, D),)),
    "straight": (Straight(), ((D, F),)),
    "straight output": (Straight(2), ((N, H, D),)),
    "concatenated linear": (Concatenated(Transposed()), QKV),
    "concatenated conv": (Concatenated(Straight()), QKV),
    "concatenated biases": (Concatenated(Flat()), BIASES),
    "gate and up": (Concatenated(Transposed()), ((D, F), (D, F))),
    "grouped linear": (Grouped(Transposed()), QKV),
    "grouped conv": (Grouped(Straight()), QKV),
    "grouped biases": (Grouped(Flat()), BIASES),
}


def drawn(shapes):
    generator = np.random.default_rng(0)
    return [generator.normal(size=shape) for shape in shapes]


@pytest.mark.parametrize("name", CASES)
def test_reading_is_the_inverse_of_writing(name):
    layout, shapes = CASES[name]
    ours = drawn(shapes)
    theirs = layout.write(ours)
    assert theirs.shape == layout.theirs(shapes)
    for own, again in zip(ours, layout.read(theirs, shapes), strict=True):
        assert again.shape == own.shape
        np.testing.assert_array_equal(again, own)


def test_linear_and_conv1d_compute_the_same():
    x = drawn([(3, D)])[0]
    for layout, product in ((Transposed(), lambda w: x @ w.T), (Straight(), lambda w: x @ w)):
        (kernel,) = drawn([(D, F)])
        np.testing.assert_allclose(product(layout.write([kernel])), x @ kernel)


def test_a_square_matrix_of_conv1d_is_not_transposed():
    """Known fault HF-01: with `[[1, 2], [3, 4]]` and x = [1, 0] the right answer is [1, 2]."""
    stored, x = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 0.0])
    (kernel,) = Straight(2).read(stored, [(1, 2, 2)])
    np.testing.assert_array_equal(x @ kernel.reshape(2, 2), [1, 2])
    (transposed,) = Transposed(2).read(stored, [(1, 2, 2)])
    np.testing.assert_array_equal(x @ transposed.reshape(2, 2), [1, 3])


def test_gpt2_stores_queries_keys_and_values_inputs_first():
    """Known fault HF-01: the shape of GPT-2's c_attn."""
    head = (768, 12, 64)
    assert Concatenated(Straight()).theirs([head, head, head]) == (768, 2304)


def test_grouped_rows_alternate_by_key_heads():
    """Each key head has its queries, its key and its value side by side."""
    rows = np.arange((N + 2 * K) * H)
    query, key, value = Grouped(Flat()).read(rows, BIASES)
    grouped = rows.reshape(K, N // K + 2, H)
    for group in range(K):
        own = slice(group * (N // K), (group + 1) * (N // K))
        np.testing.assert_array_equal(query[own], grouped[group, : N // K])
        np.testing.assert_array_equal(key[group], grouped[group, -2])
        np.testing.assert_array_equal(value[group], grouped[group, -1])


def test_grouped_with_as_many_key_heads_is_three_per_head():
    rows = np.arange(N * 3 * H)
    parts = Grouped(Flat()).read(rows, [(N, H)] * 3)
    for place, part in enumerate(parts):
        np.testing.assert_array_equal(part, rows.reshape(N, 3, H)[:, place])
