"""Tests for jtransformer.stats.trend: slopes by hand, their coverage, and the words."""

import math

import numpy as np
import pytest

from jtransformer.stats.estimates import Estimate
from jtransformer.stats.trend import trend, trend_word

SIZES = {"a": 1000.0, "b": 2000.0, "c": 4000.0}


def table(*by_seed):
    """Losses by scale and seed from one row per seed."""
    return {
        scale: {seed: row[i] for seed, row in enumerate(by_seed)} for i, scale in enumerate(SIZES)
    }


NOTHING = table((0, 0, 0), (0, 0, 0), (0, 0, 0))


def test_the_slope_is_the_one_computed_by_hand():
    """Slopes 0.01, 0.02 and 0 per doubling: mean 0.01, sd 0.01, t = sqrt(3) on 2 df."""
    own = table((0.0, 0.01, 0.02), (0.1, 0.12, 0.14), (0.3, 0.3, 0.3))
    slope = trend(own, NOTHING, SIZES).slope
    np.testing.assert_allclose(slope.value, 0.01)
    np.testing.assert_allclose(slope.standard_error, 0.01 / math.sqrt(3))
    np.testing.assert_allclose(slope.half_width, 4.3026527 * 0.01 / math.sqrt(3), rtol=1e-7)
    # With 2 degrees of freedom p = 1 - t / sqrt(2 + t ** 2).
    np.testing.assert_allclose(slope.p, 1 - math.sqrt(3 / 5))


def test_uneven_scales_weigh_by_their_logarithm():
    """Over log2 = 0, 1, 4 the centred x are -5/3, -2/3, 7/3, their squares sum to 78/9."""
    sizes = {"a": 10.0, "b": 20.0, "c": 160.0}
    own = {"a": {0: 0.3}, "b": {0: 0.6}, "c": {0: 0.0}}
    nothing = {scale: {0: 0.0} for scale in sizes}
    found = trend(own, nothing, sizes)
    np.testing.assert_allclose(found.slope.value, (-5 * 0.3 - 2 * 0.6) / 3 / (78 / 9))
    assert found.slope.low is None


def test_differences_are_paired_by_seed():
    """What a seed does to both arms drops out, and so does a seed that one of them lacks."""
    shift = table((1.0, 2.0, 9.0), (5.0, 0.0, 1.0), (7.0, 7.0, 7.0))
    own = {
        scale: {seed: loss + 0.02 * math.log2(SIZES[scale] / 1000) for seed, loss in row.items()}
        for scale, row in shift.items()
    }
    del own["b"][2]
    found = trend(own, shift, SIZES)
    assert list(found.by_seed) == [0, 1]
    np.testing.assert_allclose(found.slope.value, 0.02)
    np.testing.assert_allclose(found.by_seed[1], (0.0, 0.02, 0.04), atol=1e-12)


def test_a_scale_that_one_arm_lacks_is_left_out():
    own = table((0.0, 0.5, 0.02), (0.1, 0.5, 0.14))
    del own["b"]
    found = trend(own, NOTHING, SIZES)
    assert found.scales == ("a", "c") and found.sizes == (1000.0, 4000.0)
    np.testing.assert_allclose(found.slope.value, 0.015)


@pytest.mark.parametrize("kept", [(), ("a",)])
def test_without_two_scales_there_is_no_trend(kept):
    own = {scale: NOTHING[scale] for scale in kept}
    assert trend(own, NOTHING, SIZES) is None
    assert trend({s: {9: 1.0} for s in SIZES}, NOTHING, SIZES) is None, "no seed in common"


def test_the_line_goes_through_the_means_and_on():
    own = table((0.0, 0.01, 0.02), (0.1, 0.12, 0.14), (0.3, 0.3, 0.3))
    found = trend(own, NOTHING, SIZES)
    middle, beyond = found.at([2000.0, 16000.0])
    np.testing.assert_allclose(middle.value, np.mean([0.01, 0.12, 0.3]))
    np.testing.assert_allclose(beyond.value, np.mean([0.04, 0.18, 0.3]))
    spread = np.std([0.04, 0.18, 0.3], ddof=1) / math.sqrt(3)
    np.testing.assert_allclose(beyond.half_width, 4.3026527 * spread, rtol=1e-7)


@pytest.mark.parametrize("seeds", [3, pytest.param(5, marks=pytest.mark.slow), 10])
def test_law_the_slopes_interval_covers_as_it_says(seeds):
    """2,000 ladders of 4 scales; a seed's differences hang together, and noise grows with size."""
    generator = np.random.default_rng(seeds)
    sizes = {"a": 1e4, "b": 4e4, "c": 16e4, "d": 64e4}
    true, covered = -0.002, 0
    x = np.log2(list(sizes.values()))
    for _ in range(2000):
        shared = generator.normal(0, 0.01, (seeds, 1))
        noise = generator.normal(0, [0.002, 0.003, 0.004, 0.006], (seeds, 4))
        rows = 0.03 + true * x + shared + noise
        own = {s: dict(enumerate(rows[:, i])) for i, s in enumerate(sizes)}
        slope = trend(own, {s: dict.fromkeys(range(seeds), 0.0) for s in sizes}, sizes).slope
        covered += slope.low <= true <= slope.high
    assert 0.93 <= covered / 2000 <= 0.97


def interval(low, high):
    return Estimate(value=(low + high) / 2, low=low, high=high)


BELOW, ABOVE, NEITHER = interval(-3, -1), interval(1, 3), interval(-1, 1)
UP, DOWN = interval(0.01, 0.03), interval(-0.03, -0.01)


@pytest.mark.parametrize(
    "slope, p, ends, word",
    [
        (UP, 0.01, (NEITHER, ABOVE), "grows"),
        (DOWN, 0.01, (BELOW, BELOW), "grows"),
        (UP, 0.01, (BELOW, BELOW), "shrinks"),
        (DOWN, 0.05, (ABOVE, ABOVE), "shrinks"),
        (UP, 0.01, (BELOW, NEITHER), "vanishes"),
        (DOWN, 0.01, (ABOVE, NEITHER), "vanishes"),
        (UP, 0.01, (ABOVE, NEITHER), "grows"),
        (UP, 0.01, (BELOW, ABOVE), "reverses"),
        (DOWN, 0.01, (ABOVE, BELOW), "reverses"),
        (UP, 0.01, (NEITHER, NEITHER), "cannot tell"),
        (UP, 0.051, (NEITHER, ABOVE), "cannot tell"),
        (UP, None, (NEITHER, ABOVE), "cannot tell"),
        (UP, 0.01, (None, ABOVE), "grows"),
        (interval(-0.004, 0.001), 0.5, (BELOW, BELOW), "holds"),
        (interval(0.001, 0.004), 0.001, (ABOVE, ABOVE), "holds"),
        (interval(-0.006, 0.001), 0.5, (BELOW, BELOW), "cannot tell"),
        (Estimate(value=0.0), None, (BELOW, BELOW), "cannot tell"),
    ],
)
def test_words(slope, p, ends, word):
    assert trend_word(slope, p, ends, 0.005) == word
