"""Tests for jtransformer.stats.additive: closed forms, textbook numbers, simulated truth."""

import math

import numpy as np
import pytest
import scipy.stats

from jtransformer.stats import (
    fit_additive,
    holm,
    mean_estimate,
    paired_t,
    resolvable_difference,
)

# Three arms (rows) by four seeds (columns); unequal on purpose.
LOSSES = np.array(
    [[2.10, 2.14, 2.09, 2.17], [2.06, 2.12, 2.06, 2.11], [2.15, 2.17, 2.10, 2.24]], np.float64
)
NAMES = ("base", "low", "high")


def by_arm(table):
    return {n: dict(enumerate(row)) for n, row in zip(NAMES, table.tolist(), strict=False)}


def two_way(table):
    """The balanced additive model in closed form: residual sd and degrees of freedom."""
    a, s = table.shape
    residuals = table - table.mean(1, keepdims=True) - table.mean(0, keepdims=True) + table.mean()
    df = (a - 1) * (s - 1)
    return math.sqrt((residuals**2).sum() / df), df


def test_balanced_model_equals_the_closed_form():
    fit = fit_additive(by_arm(LOSSES), "base")
    sd, df = two_way(LOSSES)
    assert fit.degrees_of_freedom == df == 6
    assert fit.balanced
    np.testing.assert_allclose(fit.residual_sd, sd, rtol=1e-10)
    for index, name in ((1, "low"), (2, "high")):
        got = fit.differences[name]
        value = LOSSES[index].mean() - LOSSES[0].mean()
        error = sd * math.sqrt(2 / 4)
        # t(0.975) with 6 degrees of freedom, from a printed table.
        half = 2.4469 * error
        np.testing.assert_allclose(got.value, value, atol=1e-12)
        np.testing.assert_allclose(got.standard_error, error, rtol=1e-10)
        np.testing.assert_allclose([got.low, got.high], [value - half, value + half], atol=1e-6)
        p = 2 * scipy.stats.t.sf(abs(value / error), 6)
        np.testing.assert_allclose(got.p, p, rtol=1e-9)
    assert "base" not in fit.differences


def test_a_constant_per_seed_changes_nothing():
    shifted = LOSSES + np.array([0.3, -0.2, 1.0, 0.05])
    before, after = (fit_additive(by_arm(table), "base") for table in (LOSSES, shifted))
    for name in ("low", "high"):
        a, b = before.differences[name], after.differences[name]
        np.testing.assert_allclose([a.value, a.low, a.p], [b.value, b.low, b.p], atol=1e-9)


def test_two_arms_equal_the_paired_t():
    fit = fit_additive(by_arm(LOSSES[:2]), "base")
    paired = paired_t(list(LOSSES[1] - LOSSES[0]))
    model = fit.differences["low"]
    assert model.degrees_of_freedom == paired.degrees_of_freedom == 3
    np.testing.assert_allclose(model.p, paired.p, rtol=1e-9)
    np.testing.assert_allclose(model.low, paired.low, rtol=1e-9)


def test_a_missing_seed_is_estimated_from_the_others():
    losses = by_arm(LOSSES)
    del losses["low"][3]
    fit = fit_additive(losses, "base")
    assert not fit.balanced
    assert (fit.observations, fit.degrees_of_freedom) == (11, 5)
    # The classic missing-plot value (Yates 1933): the fit with it filled in has the same estimates.
    t, b, g = LOSSES[1, :3].sum(), LOSSES[[0, 2], 3].sum(), LOSSES.sum() - LOSSES[1, 3]
    filled = LOSSES.copy()
    filled[1, 3] = (3 * t + 4 * b - g) / ((3 - 1) * (4 - 1))
    for index, name in ((1, "low"), (2, "high")):
        expected = filled[index].mean() - filled[0].mean()
        np.testing.assert_allclose(fit.differences[name].value, expected, atol=1e-12)
    residual_sd, _ = two_way(filled)
    np.testing.assert_allclose(fit.residual_sd, residual_sd * math.sqrt(6 / 5), rtol=1e-9)


def test_arms_without_a_common_seed_are_not_compared():
    fit = fit_additive({"base": {0: 2.0, 1: 2.1}, "low": {2: 1.5, 3: 1.6}}, "base")
    assert fit.differences == {} and fit.observations == 2
    chain = {"base": {0: 2.0, 1: 2.1}, "low": {2: 1.5, 1: 1.6}, "high": {2: 2.5, 3: 2.4}}
    differences = fit_additive(chain, "base").differences
    np.testing.assert_allclose(differences["low"].value, 1.6 - 2.1)
    np.testing.assert_allclose(differences["high"].value, (2.5 - 1.5) + (1.6 - 2.1))


def test_one_seed_gives_differences_without_interval():
    fit = fit_additive({"base": {0: 2.0}, "low": {0: 1.9}}, "base")
    got = fit.differences["low"]
    np.testing.assert_allclose(got.value, -0.1)
    assert (fit.degrees_of_freedom, fit.residual_sd) == (0, None)
    assert got.low is got.high is got.p is got.standard_error is None


@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_no_noise_gives_no_test(shift):
    losses = {"base": {0: 2.3, 1: 2.1, 2: 2.2}, "low": {0: 2.3 + shift, 1: 2.1 + shift}}
    losses["low"][2] = 2.2 + shift
    got = fit_additive(losses, "base").differences["low"]
    np.testing.assert_allclose(got.value, shift, atol=1e-12)
    assert got.p is None and got.low is None


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


def test_holm_by_hand():
    got = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}, 4)
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1 is 0.02, 0.03, 0.06, 0.04; then cumulative.
    expected = {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    assert got == pytest.approx(expected)


def test_holm_counts_what_could_not_be_tested():
    assert holm({"a": 0.01}, 5) == pytest.approx({"a": 0.05})
    assert holm({}, 5) == {}


@pytest.mark.parametrize("df, comparisons", [(1, 1), (2, 5), (10, 5), (60, 12)])
def test_resolvable_difference_is_found_with_80_percent_power(df, comparisons):
    generator = np.random.default_rng(1)
    difference = resolvable_difference(0.01, df, comparisons)
    n = 200_000
    noise = 0.01 * generator.standard_normal(n)
    spread = 0.01 * np.sqrt(generator.chisquare(df, n) / df)
    found = np.abs((difference + noise) / spread) > scipy.stats.t.isf(0.025 / comparisons, df)
    np.testing.assert_allclose(found.mean(), 0.8, atol=0.005)


def test_resolvable_difference_in_the_limit_is_the_normal_one():
    # z(0.975) + z(0.8)
    np.testing.assert_allclose(resolvable_difference(1.0, 100_000, 1), 1.95996 + 0.84162, atol=1e-3)


def simulated(generator, effects, seeds=3, sd=0.005):
    shared = generator.normal(0, 0.03, seeds)
    return {
        arm: dict(enumerate(effect + shared + generator.normal(0, sd, seeds)))
        for arm, effect in effects.items()
    }


def test_false_findings_stay_under_five_percent():
    generator = np.random.default_rng(3)
    n, any_found, covered = 1200, 0, 0
    for _ in range(n):
        fit = fit_additive(simulated(generator, dict.fromkeys("abcd", 2.0)), "a")
        raw = {arm: d.p for arm, d in fit.differences.items() if d.p is not None}
        # Holm finds something exactly when its first step does; statsmodels' is slow to call.
        any_found += 3 * min(raw.values()) <= 0.05
        first = fit.differences["b"]
        assert first.low is not None and first.high is not None
        covered += first.low <= 0 <= first.high
    # Two standard errors of a rate of 5 % in 1200 trials are 1.3 %.
    assert any_found / n < 0.063
    assert 0.937 < covered / n < 0.963


def test_a_real_effect_is_found_in_its_direction():
    generator = np.random.default_rng(4)
    for _ in range(50):
        fit = fit_additive(simulated(generator, {"a": 2.0, "b": 1.9, "c": 2.1}), "a")
        raw = {arm: d.p for arm, d in fit.differences.items() if d.p is not None}
        assert 2 * max(raw.values()) < 0.05
        assert fit.differences["b"].value < 0 < fit.differences["c"].value
