"""Tests for jtransformer.stats.power: simulated power, printed tables, sweeps in every state."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.stats
from sweep_fixture import RATES, noisy_losses, scaled, write_sweep

from jtransformer.records import VerdictRule, load_sweep
from jtransformer.stats import (
    analyse,
    analyse_scales,
    noise_floor,
    power,
    resolvable_at,
    resolvable_difference,
    seeds_needed,
    spread,
)

EFFECTS = {"pre-gelu": 0.0, "pre-relu": 0.001, "pre-swiglu": -0.03, "post-gelu": 0.03}
LOW, MIDDLE, HIGH = RATES


def found_in(tmp_path, losses, **manifest):
    record = load_sweep(write_sweep(tmp_path, losses, **manifest))
    analysis = analyse(record)
    return power(analysis), analysis


@pytest.mark.parametrize("df, comparisons", [(1, 1), (2, 5), (10, 5), (60, 12)])
def test_resolvable_difference_is_found_with_80_percent_power(df, comparisons):
    generator = np.random.default_rng(1)
    difference = resolvable_difference(0.01, df, comparisons)
    n = 200_000
    noise = 0.01 * generator.standard_normal(n)
    spread_ = 0.01 * np.sqrt(generator.chisquare(df, n) / df)
    found = np.abs((difference + noise) / spread_) > scipy.stats.t.isf(0.025 / comparisons, df)
    np.testing.assert_allclose(found.mean(), 0.8, atol=0.005)


def test_resolvable_difference_in_the_limit_is_the_normal_one():
    # z(0.975) + z(0.8)
    np.testing.assert_allclose(resolvable_difference(1.0, 100_000, 1), 1.95996 + 0.84162, atol=1e-3)


@pytest.mark.parametrize("arms, comparisons", [(2, 1), (6, 5), (3, 12)])
def test_seeds_needed_are_the_fewest(arms, comparisons):
    design = dict(residual_sd=0.004, arms=arms, comparisons=comparisons)
    for difference in (0.02, 0.006, 0.0021):
        seeds = seeds_needed(difference=difference, **design)
        assert seeds == seeds_needed(difference=-difference, **design)
        enough = [n for n in range(2, 150) if resolvable_at(n, **design) <= difference]
        assert seeds == enough[0]
    assert seeds_needed(difference=10.0, **design) == 2


def test_seeds_needed_find_it_in_80_percent_of_sweeps():
    """Whole balanced sweeps, judged by Holm's first step."""
    seeds = seeds_needed(difference=0.006, residual_sd=0.004, arms=4, comparisons=3)
    generator = np.random.default_rng(2)
    for n, expected in ((seeds, True), (seeds - 1, False)):
        losses = generator.normal(0, 0.004, (20_000, 4, n))
        losses += generator.normal(0, 0.1, (20_000, 1, n))
        losses[:, 1] += 0.006
        arms, by_seed = losses.mean(2, keepdims=True), losses.mean(1, keepdims=True)
        residuals = losses - arms - by_seed + losses.mean((1, 2), keepdims=True)
        df = 3 * (n - 1)
        error = np.sqrt((residuals**2).sum((1, 2)) / df * 2 / n)
        t = (arms[:, 1, 0] - arms[:, 0, 0]) / error
        # Three standard errors of a rate of 80 % in 20,000.
        rate = (np.abs(t) > scipy.stats.t.isf(0.025 / 3, df)).mean()
        assert (rate > 0.8 - 0.0085) == expected, (n, rate)


def test_too_small_a_difference_needs_no_number():
    design = dict(residual_sd=0.004, arms=4, comparisons=3)
    assert seeds_needed(difference=0.0, **design) is None
    assert seeds_needed(difference=0.002, most=20, **design) is None
    assert seeds_needed(difference=0.002, most=500, **design) > 20


def test_the_interval_of_a_spread_by_a_printed_table():
    # Chi-square with 9 degrees of freedom: 2.700 and 19.023 cut off 2.5 % each.
    got = spread(0.02, 9)
    expected = [0.02 * math.sqrt(9 / 19.023), 0.02 * math.sqrt(9 / 2.700)]
    np.testing.assert_allclose([got.low, got.high], expected, rtol=1e-3)


def test_noise_floor_by_hand():
    got = noise_floor([2.0, 2.1, 2.4])
    # Mean 13/6; squares 1/36, 1/225 and 49/900 sum to 0.0866667 over 2 degrees of freedom.
    np.testing.assert_allclose(got.sd, math.sqrt(0.0866666667 / 2), rtol=1e-9)
    assert got.degrees_of_freedom == 2
    assert noise_floor([2.0]) is None and noise_floor([2.0, 2.0]) is None


def test_a_sweep_has_its_own_noise_and_needs(tmp_path):
    found, analysis = found_in(tmp_path, noisy_losses(EFFECTS, seeds=4))
    assert found.residual.sd == analysis.fit.residual_sd
    assert (found.residual.degrees_of_freedom, found.comparisons, found.seeds) == (9, 3, 4)
    base = list(analysis.arm("pre-gelu").choice.validation.values())
    np.testing.assert_allclose(found.floor.sd, np.std(base, ddof=1), rtol=1e-12)
    needs = {need.arm: need for need in found.needs}
    assert list(needs) == ["pre-relu", "pre-swiglu", "post-gelu"]
    for name, need in needs.items():
        comparison = analysis.arm(name).comparison
        assert need.difference == comparison.model.value
        # In a balanced sweep each arm's own figure is that of the curve.
        np.testing.assert_allclose(need.resolvable, comparison.resolvable, rtol=1e-12)
        np.testing.assert_allclose(need.resolvable, found.curve[4], rtol=1e-9)
        assert need.shared_seeds == 4
        seen = need.seeds is not None and need.seeds <= 4
        assert seen == (abs(need.difference) > found.curve[4])
    assert list(found.curve)[0] == 2 and list(found.curve)[-1] == 32
    sizes = list(found.curve.values())
    assert sizes == sorted(sizes, reverse=True)


def test_the_declared_margin(tmp_path):
    none, analysis = found_in(tmp_path, noisy_losses(EFFECTS))
    some, less = (
        power(dataclasses.replace(analysis, rule=VerdictRule(margin=margin)))
        for margin in (0.01, 0.005)
    )
    assert none.margin is none.margin_seeds is None
    assert some.margin == 0.01 and some.curve[some.margin_seeds] <= 0.01
    assert less.margin_seeds > some.margin_seeds > 2


def test_the_curve_has_the_seeds_of_the_sweep(tmp_path):
    losses = noisy_losses({"pre-gelu": 0.0, "pre-relu": 0.0}, seeds=33)
    found, _ = found_in(tmp_path, {key: losses[key] for key in losses if key[1] == MIDDLE})
    assert list(found.curve)[-1] == 33


def test_unbalanced_arms_resolve_less(tmp_path):
    losses = noisy_losses(EFFECTS, seeds=4)
    losses |= {("pre-relu", rate, 3): "pending" for rate in RATES}
    found, _ = found_in(tmp_path, losses)
    relu, swiglu, _ = found.needs
    assert (relu.shared_seeds, swiglu.shared_seeds) == (3, 4)
    assert relu.resolvable > swiglu.resolvable


def test_a_diverged_arm_gives_no_noise(tmp_path):
    losses = noisy_losses(EFFECTS)
    losses |= {("post-gelu", rate, 0): "diverged" for rate in RATES}
    found, analysis = found_in(tmp_path, losses)
    assert [need.arm for need in found.needs] == ["pre-relu", "pre-swiglu"]
    assert found.residual.degrees_of_freedom == 4 and found.comparisons == 3
    losses |= {("pre-gelu", rate, 0): "diverged" for rate in RATES}
    assert found_in(tmp_path / "baseline", losses)[0] is None


@pytest.mark.parametrize("state", ["diverged", "pending", "running", "failed"])
def test_a_sweep_without_a_finished_run_says_nothing(tmp_path, state):
    assert found_in(tmp_path, dict.fromkeys(noisy_losses(EFFECTS), state))[0] is None


def test_one_seed_says_nothing(tmp_path):
    assert found_in(tmp_path, noisy_losses(EFFECTS, seeds=1))[0] is None


def test_one_arm_has_a_noise_floor_alone(tmp_path):
    found, _ = found_in(tmp_path, noisy_losses({"pre-gelu": 0.0}))
    assert found.floor is not None
    assert found.residual is None and found.curve == {} and found.needs == ()


def test_equal_losses_are_no_noise(tmp_path):
    losses = {key: 2.0 + 0.1 * key[2] for key in noisy_losses(EFFECTS)}
    found, _ = found_in(tmp_path, losses)
    assert found.floor is not None and found.residual is None


def test_every_scale_has_its_own(tmp_path):
    effects = {"small-pre": 0.0, "small-gate": -0.02, "large-pre": -0.5, "large-gate": -0.5}
    record = load_sweep(write_sweep(tmp_path, noisy_losses(effects), **scaled(effects)))
    small, large = map(power, analyse_scales(record))
    assert small.residual.sd != large.residual.sd
    # The comparisons of both are one family.
    assert small.comparisons == large.comparisons == 2
