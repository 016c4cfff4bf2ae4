"""How often intervals hold the truth and tests are wrong, over 2,000 simulated sweeps.

A sweep has six arms of known effect, normal noise, and an effect of each seed common to its arms.
A 95 % interval has to cover in 93 to 97 % of sweeps (two standard errors of the count are 1 %);
where a method does not, the band that was measured is held, and its docstring says it.
"""

import math
from typing import NamedTuple

import numpy as np
import pytest
import scipy.stats

from jtransformer.stats import (
    BOOTSTRAP_SEEDS,
    Estimate,
    adjust,
    bootstrap,
    effect_size,
    fit_additive,
    noise_floor,
    p_equivalent,
    paired_t,
    sign_flip,
    simultaneous,
    spread,
)

SWEEPS, SD, SHARED_SD = 2_000, 0.004, 0.02
EFFECTS = np.array([0.0, 0.0, 0.002, -0.005, 0.01, -0.03])
COMPARISONS = len(EFFECTS) - 1
# Two standard errors of a rate of 5 % in 2,000 sweeps.
ALLOWANCE = 2 * math.sqrt(0.05 * 0.95 / SWEEPS)


class Sweeps(NamedTuple):
    """Losses by sweep, arm and seed, and the arm + seed model of each in closed form."""

    losses: np.ndarray
    differences: np.ndarray
    residual_sd: np.ndarray
    df: int

    @property
    def errors(self):
        return self.residual_sd * math.sqrt(2 / self.losses.shape[2])

    def estimates(self, arm):
        """Differences of one arm to the first, as the model gives them."""
        values = zip(self.differences[:, arm - 1], self.errors, strict=True)
        return [
            Estimate(value=float(value), standard_error=float(error), degrees_of_freedom=self.df)
            for value, error in values
        ]

    def p_values(self):
        t = np.abs(self.differences / self.errors[:, None])
        return 2 * scipy.stats.t.sf(t, self.df)


def simulated(seeds, effects=EFFECTS, sds=SD, key=11):
    generator = np.random.default_rng([key, seeds])
    shape = (SWEEPS, len(effects), seeds)
    noise = generator.standard_normal(shape) * np.broadcast_to(sds, len(effects))[:, None]
    shared = generator.normal(0, SHARED_SD, (SWEEPS, 1, seeds))
    losses = 2 + np.asarray(effects)[:, None] + shared + noise
    arms, by_seed = losses.mean(2, keepdims=True), losses.mean(1, keepdims=True)
    residuals = losses - arms - by_seed + losses.mean((1, 2), keepdims=True)
    df = (len(effects) - 1) * (seeds - 1)
    residual_sd = np.sqrt((residuals**2).sum((1, 2)) / df)
    return Sweeps(losses, (arms[:, 1:] - arms[:, :1])[:, :, 0], residual_sd, df)


def covered(intervals, truth):
    low, high = np.transpose(intervals)
    return float(((low <= truth) & (truth <= high)).mean())


def promised(rate):
    return 0.93 <= rate <= 0.97


@pytest.fixture(
    scope="module",
    params=[pytest.param(3, marks=pytest.mark.slow), 5, pytest.param(10, marks=pytest.mark.slow)],
)
def sweeps(request):
    return simulated(request.param)


def test_the_model_is_the_closed_form_and_covers(sweeps):
    half = scipy.stats.t.isf(0.025, sweeps.df) * sweeps.errors
    first = (part[:20] for part in (*sweeps[:3], half))
    for losses, differences, sd, width in zip(*first, strict=True):
        table = {str(arm): dict(enumerate(row)) for arm, row in enumerate(losses.tolist())}
        fit = fit_additive(table, "0")
        np.testing.assert_allclose(fit.residual_sd, sd, rtol=1e-9)
        for arm, difference in enumerate(differences, start=1):
            got = fit.differences[str(arm)]
            ends = [difference - width, difference + width]
            np.testing.assert_allclose([got.low, got.high], ends, rtol=0, atol=1e-9)
    for arm, difference in enumerate(sweeps.differences.T, start=1):
        intervals = np.transpose([difference - half, difference + half])
        assert promised(covered(intervals, EFFECTS[arm]))


def test_paired_t_covers(sweeps):
    found = [paired_t(losses[3] - losses[0]) for losses in sweeps.losses]
    assert promised(covered([(one.low, one.high) for one in found], EFFECTS[3]))


def test_simultaneous_intervals_cover_together(sweeps):
    together = np.ones(SWEEPS, bool)
    for arm in range(1, len(EFFECTS)):
        low, high = np.transpose([simultaneous(one, COMPARISONS) for one in sweeps.estimates(arm)])
        together &= (low <= EFFECTS[arm]) & (EFFECTS[arm] <= high)
    assert promised(together.mean())


def test_the_noise_floor_covers(sweeps):
    found = [noise_floor(losses[0]) for losses in sweeps.losses]
    assert promised(covered([(s.low, s.high) for s in found], math.hypot(SD, SHARED_SD)))


def test_the_residual_spread_covers(sweeps):
    found = [spread(float(sd), sweeps.df) for sd in sweeps.residual_sd]
    assert promised(covered([(s.low, s.high) for s in found], SD))


@pytest.mark.parametrize("arm", [1, 3, 5])
def test_effect_sizes_cover(sweeps, arm):
    pairs = zip(sweeps.estimates(arm), sweeps.residual_sd, strict=True)
    found = [effect_size(estimate, sd) for estimate, sd in pairs]
    assert promised(covered([(one.low, one.high) for one in found], EFFECTS[arm] / SD))


def bootstrap_coverage(seeds, sweeps):
    """Coverage of the mean of normal differences; the interval turns with shift and scale."""
    generator = np.random.default_rng([13, seeds])
    differences = generator.standard_normal((sweeps, seeds))
    return covered([bootstrap(one, generator, fewest=seeds) for one in differences], 0.0)


@pytest.mark.parametrize("seeds, low, high", [(3, 0.67, 0.78), (5, 0.77, 0.87)])
def test_the_bootstrap_of_few_seeds_falls_short(seeds, low, high):
    """It is refused there; this holds the figures of its docstring, within what 500 show."""
    assert low <= bootstrap_coverage(seeds, 500) <= high


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds, low, high", [(3, 0.70, 0.75), (5, 0.79, 0.85), (10, 0.88, 0.92), (32, 0.93, 0.97)]
)
def test_the_bootstrap_holds_from_the_seeds_at_which_it_is_shown(seeds, low, high):
    assert (seeds >= BOOTSTRAP_SEEDS) == (low >= 0.93)
    assert low <= bootstrap_coverage(seeds, SWEEPS) <= high


def test_arms_of_unequal_noise_are_not_covered_alike():
    """The arm + seed model takes the noise of all arms for equal; its docstring has the figures."""
    sds = np.array([1, 1, 1, 1, 1, 3]) * SD
    sweeps = simulated(3, sds=sds)
    half = scipy.stats.t.isf(0.025, sweeps.df) * sweeps.errors
    quiet, loud = (
        covered(np.transpose([sweeps.differences[:, i] - half, sweeps.differences[:, i] + half]),
                EFFECTS[i + 1])
        for i in (0, 4)
    )  # fmt: skip
    assert 0.98 < quiet and 0.79 < loud < 0.84, (quiet, loud)
    paired = [paired_t(losses[5] - losses[0]) for losses in sweeps.losses]
    assert promised(covered([(one.low, one.high) for one in paired], EFFECTS[5]))


@pytest.mark.slow
def test_an_unbalanced_model_covers():
    """Every arm but the baseline lacks some seeds, another set in every sweep."""
    generator = np.random.default_rng(17)
    losses = simulated(5, key=19).losses
    covers = []
    for one in losses:
        table = {str(arm): dict(enumerate(row)) for arm, row in enumerate(one.tolist())}
        for arm in range(1, len(EFFECTS)):
            for seed in generator.choice(5, generator.integers(0, 3), replace=False):
                del table[str(arm)][int(seed)]
        got = fit_additive(table, "0").differences["4"]
        covers.append(got.low <= EFFECTS[4] <= got.high)
    assert promised(np.mean(covers))


@pytest.mark.parametrize("correction", ["holm", "fdr"])
def test_without_an_effect_a_finding_is_rare(sweeps, correction):
    """At most 5 % of sweeps of six equal arms find any; with all null, both corrections say so."""
    null = simulated(sweeps.losses.shape[2], effects=np.zeros(6), key=23)
    found = 0
    for p_values in null.p_values():
        raw = {str(arm): float(p) for arm, p in enumerate(p_values)}
        found += min(adjust(raw, COMPARISONS, correction).values()) <= 0.05
    assert 0.02 < found / SWEEPS <= 0.05 + ALLOWANCE


def test_false_discoveries_are_few_among_the_findings():
    """Three of five arms differ; the share of false findings averages under 5 %."""
    effects = np.array([0.0, 0.0, 0.0, 0.01, -0.02, 0.03])
    shares, by_holm = [], []
    for p_values in simulated(5, effects=effects, key=29).p_values():
        raw = {arm: float(p) for arm, p in enumerate(p_values, start=1)}
        for correction, into in (("fdr", shares), ("holm", by_holm)):
            adjusted = adjust(raw, COMPARISONS, correction)
            found = [arm for arm, p in adjusted.items() if p <= 0.05]
            into.append(sum(arm in (1, 2) for arm in found) / max(len(found), 1))
    assert np.mean(by_holm) < np.mean(shares) <= 0.05 + ALLOWANCE


def test_equivalence_is_wrongly_claimed_in_five_percent_at_most(sweeps):
    """Arms 4 and 5 lie at the margin and beyond; arm 1 is equal to the baseline."""
    margin = float(EFFECTS[4])
    claims = {
        arm: np.mean([p_equivalent(one, margin) <= 0.05 for one in sweeps.estimates(arm)])
        for arm in (1, 4, 5)
    }
    assert 0.03 < claims[4] <= 0.05 + ALLOWANCE and claims[5] == 0.0
    assert claims[1] > 0.6


def test_sign_flip_is_wrong_in_five_percent_at_most():
    """Skewed differences break the t test's assumption, symmetric heavy tails do not this one's."""
    differences = np.random.default_rng(31).standard_t(2, (SWEEPS, 8))
    wrong = np.mean([sign_flip(one) <= 0.05 for one in differences])
    # Of 256 patterns the largest even number under 5 % is 12: the test is a little conservative.
    assert 0.03 < wrong <= 12 / 256 + ALLOWANCE
