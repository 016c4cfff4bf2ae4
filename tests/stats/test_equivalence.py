"""Tests for jtransformer.stats.equivalence: by hand and by its laws."""

import math

import numpy as np
import pytest
import scipy.stats

from jtransformer.stats import Estimate, p_equivalent


def estimate(value, error=0.002, df=3):
    return Estimate(value=value, standard_error=error, degrees_of_freedom=df)


def test_by_hand():
    # The nearer margin is (0.005 - 0.001) / 0.002 = 2 standard errors away, on 3 degrees.
    x = 2 / math.sqrt(3)
    tail = 0.5 - (x / (1 + x * x) + math.atan(x)) / math.pi
    np.testing.assert_allclose(p_equivalent(estimate(0.001), 0.005), tail, rtol=1e-9)
    np.testing.assert_allclose(p_equivalent(estimate(-0.001), 0.005), tail, rtol=1e-9)


def test_it_is_the_larger_of_two_one_sided_tests():
    for value in (-0.004, 0.0, 0.003, 0.2):
        above = scipy.stats.t.sf((value + 0.005) / 0.002, 3)
        below = scipy.stats.t.cdf((value - 0.005) / 0.002, 3)
        got = p_equivalent(estimate(value), 0.005)
        np.testing.assert_allclose(got, max(above, below), rtol=1e-12)


def test_at_the_margin_nothing_is_known():
    np.testing.assert_allclose(p_equivalent(estimate(0.005), 0.005), 0.5)


def test_it_is_the_90_percent_interval_within_the_margin():
    half = 2.353363 * 0.002
    for value, within in ((0.005 - half - 1e-7, True), (0.005 - half + 1e-7, False)):
        assert (p_equivalent(estimate(value), 0.005) <= 0.05) == within


def test_live_the_margin_and_the_noise():
    assert p_equivalent(estimate(0.001), 0.006) < p_equivalent(estimate(0.001), 0.005)
    # Fewer seeds never make arms equal: more noise, larger p.
    assert p_equivalent(estimate(0.001, error=0.02), 0.005) > 0.4
    assert p_equivalent(Estimate(value=0.001), 0.005) is None


@pytest.mark.parametrize("margin", [0.0, -0.005, math.nan])
def test_error_margin(margin):
    with pytest.raises(ValueError, match="margin must be positive, got margin="):
        p_equivalent(estimate(0.001), margin)
