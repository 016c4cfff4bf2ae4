"""Tests for jtransformer.data.draws."""

import numpy as np
import pytest

from jtransformer.data.draws import EVALUATION, Purpose, permutation, uniforms
from jtransformer.spec import RunSpec, SpecError

QUESTIONS = Purpose.QUESTIONS


@pytest.mark.parametrize("width", [1, 4, 6, 33])
def test_a_row_does_not_depend_on_its_neighbours(width):
    whole = uniforms(3, QUESTIONS, (0, 40), width)
    assert whole.shape == (40, width)
    for first, count in [(0, 7), (7, 1), (8, 32), (39, 1)]:
        found = uniforms(3, QUESTIONS, (first, count), width)
        np.testing.assert_array_equal(found, whole[first : first + count])
    far = uniforms(3, QUESTIONS, (10**12, 2), width)
    np.testing.assert_array_equal(far[1:], uniforms(3, QUESTIONS, (10**12 + 1, 1), width))


def test_numbers_are_uniform_and_unrelated():
    drawn = uniforms(0, QUESTIONS, (0, 2000), 50)
    assert 0 <= drawn.min() and drawn.max() < 1
    counts = np.histogram(drawn, bins=20, range=(0, 1))[0]
    # Chi-square of 19 degrees of freedom: 43.8 is exceeded once in a thousand.
    assert ((counts - 5000) ** 2 / 5000).sum() < 43.8
    assert abs(np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]) < 0.015
    assert len(np.unique(drawn)) == drawn.size


def test_the_numbers_are_those_of_philox():
    generator = np.random.Generator(np.random.Philox(key=np.array([5, QUESTIONS], np.uint64)))
    np.testing.assert_array_equal(uniforms(5, QUESTIONS, (0, 3), 8), generator.random((3, 8)))
    assert uniforms(0, QUESTIONS, (0, 1), 2)[0].tolist() == [0.8144335776159864, 0.4396808049627232]


def test_live_seed_and_purpose_decide():
    keys = [(0, QUESTIONS), (1, QUESTIONS), (0, Purpose.PACKING), (EVALUATION, QUESTIONS)]
    assert len({uniforms(*key, (0, 1), 4).tobytes() for key in keys}) == 4
    orders = {permutation(*key, 30).tobytes() for key in keys}
    assert len(orders) == 4
    assert sorted(permutation(0, Purpose.PACKING, 30)) == list(range(30))


def test_no_seed_is_that_of_evaluation():
    with pytest.raises(SpecError, match="seed must be at most"):
        RunSpec(seed=EVALUATION)
