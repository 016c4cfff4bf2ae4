"""Tests for jtransformer.stats.paired: by hand, by enumeration and by integration."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from jtransformer.stats import (
    BOOTSTRAP_SEEDS,
    Estimate,
    bootstrap,
    effect_size,
    mean_estimate,
    paired_t,
    sign_flip,
    smallest_p,
)

# Skewed, so that the corrections of the bootstrap have something to do.
SKEWED = np.array([-0.031, -0.0274, -0.0252, -0.0217, -0.0149, -0.0043])


def generator():
    return np.random.default_rng(5)


def test_paired_t_by_hand():
    got = paired_t([0.1, 0.3, 0.2, 0.4])
    # Mean 0.25, sd 0.1290994, standard error 0.0645497, t = 3.872983 on 3 degrees of freedom.
    np.testing.assert_allclose(got.value, 0.25)
    np.testing.assert_allclose(got.standard_error, 0.0645497, atol=1e-7)
    half = 3.182446 * 0.0645497
    np.testing.assert_allclose([got.low, got.high], [0.25 - half, 0.25 + half], atol=1e-6)
    # The t distribution with 3 degrees of freedom has a closed form.
    x = 3.872983 / math.sqrt(3)
    cdf = 0.5 + (x / (1 + x * x) + math.atan(x)) / math.pi
    np.testing.assert_allclose(got.p, 2 * (1 - cdf), atol=1e-7)


def test_mean_estimate_needs_values_that_vary():
    assert mean_estimate([2.0]).low is None
    assert mean_estimate([2.0, 2.0, 2.0]).low is None
    assert mean_estimate([2.0, 2.1]).degrees_of_freedom == 1


def corrected_percentiles(values):
    """Efron's interval from all n ** n resamples of a few values: no draw, no scipy.bootstrap."""
    n, normal = len(values), scipy.stats.norm
    means = np.array(list(itertools.product(values, repeat=n))).mean(1)
    # A resample with the very mean counts half.
    below = (np.isclose(means, values.mean(), atol=1e-12)) / 2 + (means < values.mean() - 1e-12)
    bias = normal.ppf(below.mean())
    left_out = np.array([np.delete(values, i).mean() for i in range(n)])
    pull = left_out.mean() - left_out
    acceleration = (pull**3).sum() / (6 * (pull**2).sum() ** 1.5)
    z = bias + normal.ppf([0.025, 0.975])
    return np.quantile(means, normal.cdf(bias + z / (1 - acceleration * z))), means


def test_the_bootstrap_is_that_of_all_resamples():
    expected, means = corrected_percentiles(SKEWED)
    got = bootstrap(SKEWED, generator(), fewest=6)
    # Of 9,999 resamples a percentile is known to a fifth of a percent of them.
    np.testing.assert_allclose(got, expected, atol=6e-4)
    assert np.abs(np.quantile(means, [0.025, 0.975]) - expected).max() > 1e-3, "not corrected"


def test_same_generator_same_interval():
    np.random.seed(1)
    before = np.random.get_state()[1].copy()
    first, again = (bootstrap(SKEWED, generator(), fewest=6) for _ in range(2))
    assert first == again
    assert first != bootstrap(SKEWED, np.random.default_rng(6), fewest=6)
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_few_or_equal_differences_have_no_bootstrap():
    many = generator().normal(size=BOOTSTRAP_SEEDS)
    assert bootstrap(many[:-1], generator()) is None and bootstrap(many, generator()) is not None
    for degenerate in ([], [0.1], [0.1] * 5, [0.1, 0.1, 0.1 + 1e-15]):
        assert bootstrap(degenerate, generator(), fewest=0) is None


@pytest.mark.parametrize("seeds", [8, 11])
def test_sign_flip_by_enumeration(seeds):
    differences = generator().normal(0.6, 1, seeds)
    signs = np.array(list(itertools.product([-1, 1], repeat=seeds)))
    totals = np.abs(signs @ differences)
    expected = (totals >= abs(differences.sum()) - 1e-12).mean()
    assert 0 < expected < 0.5
    np.testing.assert_allclose(sign_flip(differences), expected, rtol=1e-12)
    np.testing.assert_allclose(sign_flip(-differences), expected, rtol=1e-12)


def test_the_smallest_p_is_reached_and_said():
    same_sign = np.linspace(0.1, 0.2, 8)
    np.testing.assert_allclose(sign_flip(same_sign), smallest_p(8), rtol=1e-12)
    assert smallest_p(8) == 0.0078125
    # What the docstring says of five seeds, of six, and of eight beside five other arms.
    assert smallest_p(5) > 0.05 > smallest_p(6) and smallest_p(7) > 0.05 / 6 > smallest_p(8)
    assert sign_flip(same_sign[:7]) is None


def test_sign_flip_of_what_does_not_differ():
    assert sign_flip([0.0] * 8) == 1.0


def test_sign_flip_of_many_seeds_is_drawn_alike():
    differences = generator().normal(0.4, 1, 20)
    p = sign_flip(differences)
    assert p == sign_flip(differences)
    # The normal limit of the same test.
    z = differences.sum() / math.sqrt((differences**2).sum())
    np.testing.assert_allclose(p, 2 * scipy.stats.norm.sf(abs(z)), atol=0.02)
    assert sign_flip(np.linspace(1, 2, 40)) > 0, "no p is zero"


def noncentral_t_cdf(t, df, noncentrality):
    """P(T <= t) as the mean of a normal over the chi-square: a sum over a fine grid."""
    w = np.linspace(1e-9, df + 40 * math.sqrt(2 * df), 400_001)
    density = scipy.stats.chi2.pdf(w, df)
    below = scipy.stats.norm.cdf(t * np.sqrt(w / df) - noncentrality)
    return np.trapezoid(below * density, w)


@pytest.mark.parametrize("value, df", [(-0.012, 10), (0.002, 4), (0.1, 10), (-0.0005, 45)])
def test_effect_size_by_integration(value, df):
    sd, error = 0.005, 0.005 * math.sqrt(2 / 3)
    estimate = Estimate(value=value, standard_error=error, degrees_of_freedom=df)
    got = effect_size(estimate, sd)
    np.testing.assert_allclose(got.value, value / sd, rtol=1e-12)
    for end, tail in ((got.low, 0.975), (got.high, 0.025)):
        probability = noncentral_t_cdf(value / error, df, end * sd / error)
        np.testing.assert_allclose(probability, tail, atol=1e-5)


def test_effect_size_turns_with_the_difference():
    up, down = (
        effect_size(Estimate(value=value, standard_error=0.004, degrees_of_freedom=6), 0.005)
        for value in (0.01, -0.01)
    )
    np.testing.assert_allclose([down.low, down.high], [-up.high, -up.low], rtol=1e-7)
    assert effect_size(Estimate(value=0.1), 0.005) is None


@pytest.mark.parametrize("t", [0.0, 1e-9, 30.0, 400.0, 1e5, 1e9])
@pytest.mark.parametrize("df", [1, 2, 10, 100, 5000])
def test_no_effect_is_too_large_for_an_interval(t, df):
    got = effect_size(Estimate(value=t, standard_error=1.0, degrees_of_freedom=df), 1.0)
    assert math.isfinite(got.low) and math.isfinite(got.high)
    assert got.low < got.value < got.high
