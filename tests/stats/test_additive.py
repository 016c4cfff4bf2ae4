"""Tests for jtransformer.stats.additive: closed forms, textbook numbers, simulated truth."""

import math

import numpy as np
import pytest
import scipy.stats

from jtransformer.stats import fit_additive, paired_t

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


def simulated(generator, effects, seeds=3, sd=0.005):
    shared = generator.normal(0, 0.03, seeds)
    return {
        arm: dict(enumerate(effect + shared + generator.normal(0, sd, seeds)))
        for arm, effect in effects.items()
    }


def test_a_real_effect_is_found_in_its_direction():
    generator = np.random.default_rng(4)
    for _ in range(50):
        fit = fit_additive(simulated(generator, {"a": 2.0, "b": 1.9, "c": 2.1}), "a")
        raw = {arm: d.p for arm, d in fit.differences.items() if d.p is not None}
        assert 2 * max(raw.values()) < 0.05
        assert fit.differences["b"].value < 0 < fit.differences["c"].value
