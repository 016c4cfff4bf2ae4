"""Tests for jtransformer.stats.reestimation: by hand, on sweeps, and its biases by simulation."""

import json
import math

import numpy as np
import pytest
import scipy.stats
from sweep_fixture import RATES, noisy_losses, write_sweep

from jtransformer.records import load_sweep
from jtransformer.stats import analyse, sensitivity
from jtransformer.stats.reestimation import held_out_estimate, leave_one_out

LOW, MIDDLE, HIGH = RATES
ARMS = {"pre": 0.0, "post": 0.03, "gate": -0.03}
INF = math.inf


@pytest.fixture
def losses():
    """Settings that differ by the noise alone, so that the choice changes without a seed."""
    noise = iter(np.random.default_rng(8).normal(0, 0.01, 27).tolist())
    return {key: 2.0 + ARMS[key[0]] + next(noise) for key in noisy_losses(ARMS)}


@pytest.fixture
def find(tmp_path):
    def write_and_find(losses):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        record = load_sweep(write_sweep(folder, losses))
        return sensitivity(record, analyse(record)), analyse(record)

    return write_and_find


def test_choice_by_hand():
    losses = np.array([[1.0, 5.0, 3.0], [2.0, 2.0, 2.0]])
    # Without seed 0 the means are 4 and 2, without 1 both are 2, without 2 they are 3 and 2.
    assert leave_one_out(losses) == [1, 0, 1]


def test_a_diverged_run_counts_before_the_mean():
    losses = np.array([[1.0, INF, 1.0], [3.0, 3.0, 3.0], [INF, INF, 2.0]])
    # Without seed 1 the first setting has none that diverged.
    assert leave_one_out(losses) == [1, 0, 1]
    assert leave_one_out(np.full((2, 2), INF)) == [0, 0]


def expected(losses, arm, seeds=(0, 1, 2)):
    """The re-estimated losses of an arm, the long way."""
    held = []
    for left_out in seeds:
        means = {
            rate: np.mean([losses[arm, rate, seed] for seed in seeds if seed != left_out])
            for rate in RATES
        }
        held.append(losses[arm, min(means, key=lambda rate: means[rate]), left_out])
    return np.array(held)


def check(found, held, without):
    """Compares an estimate with the long way, its interval with the printed t(0.975) at 2 df."""
    jackknife = np.sqrt(2 * np.var(without))
    error = max(held.std(ddof=1) / np.sqrt(3), jackknife)
    np.testing.assert_allclose(found.value, held.mean(), rtol=1e-9)
    np.testing.assert_allclose(found.half_width, 4.302653 * error, rtol=1e-6)


def test_a_sweep_equals_the_long_way(find, losses):
    found, analysis = find(losses)
    held = {arm: expected(losses, arm) for arm in ARMS}
    pairs = [(1, 2), (0, 2), (0, 1)]
    without = {arm: np.array([expected(losses, arm, p).mean() for p in pairs]) for arm in ARMS}
    for arm in found.arms:
        name, plain = arm.name, analysis.arm(arm.name)
        check(arm.validation.held_out, held[name], without[name])
        # The fixture's test loss is 0.011 above validation.
        check(arm.test.held_out, held[name] + 0.011, without[name] + 0.011)
        assert (arm.validation.plain, arm.test.plain) == (plain.mean, plain.test_mean)
        optimism = plain.mean.value - held[name].mean()
        np.testing.assert_allclose(arm.validation.optimism, optimism, rtol=1e-9)
        rate = plain.choice.nuisance["optimizer.learning_rate"]
        at_choice = [losses[name, rate, seed] for seed in range(3)]
        assert arm.moved == tuple(s for s in range(3) if at_choice[s] != held[name][s])
        if name != "pre":
            check(arm.difference.held_out, held[name] - held["pre"], without[name] - without["pre"])
            check(arm.test_difference.held_out, held[name] - held["pre"],
                  without[name] - without["pre"])  # fmt: skip
            paired = plain.comparison.paired
            np.testing.assert_allclose(arm.difference.plain.value, paired.value, rtol=1e-9)
            np.testing.assert_allclose(arm.difference.plain.low, paired.low, rtol=1e-9)
    assert any(arm.moved for arm in found.arms) and {arm.settings for arm in found.arms} == {3}


def test_null_a_clear_choice_changes_nothing(find):
    found, _ = find(noisy_losses(ARMS))
    for arm in found.arms:
        figures = (arm.validation, arm.test, arm.difference, arm.test_difference)
        for both in [both for both in figures if both is not None]:
            assert both.optimism == 0.0
            np.testing.assert_allclose(both.held_out.low, both.plain.low, rtol=1e-9)
        assert arm.moved == () and (arm.difference is None) == (arm.name == "pre")


def test_the_test_loss_is_of_what_validation_chooses(tmp_path, losses):
    folder = write_sweep(tmp_path, losses)
    for path in folder.rglob("status.json"):
        status = json.loads(path.read_text())
        status["result"]["test_nll"] = 5 - status["result"]["validation_nll"]
        path.write_text(json.dumps(status))
    record = load_sweep(folder)
    for arm in sensitivity(record, analyse(record)).arms:
        for validation, test in ((arm.validation, arm.test), (arm.difference, arm.test_difference)):
            if validation is not None:
                shift = 0 if validation is arm.difference else 5
                for one, other in zip(ends(validation), ends(test), strict=True):
                    assert other == pytest.approx(shift - one)


def ends(both):
    return both.plain.value, both.held_out.value


@pytest.mark.parametrize("state", ["pending", "running", "failed"])
def test_the_test_losses_of_an_unfinished_arm_stay_closed(find, losses, state):
    losses["gate", HIGH, 2] = state
    found, _ = find(losses)
    assert [arm.name for arm in found.arms] == ["pre", "post"]


def test_a_held_out_run_that_diverged_leaves_no_mean(find):
    losses = noisy_losses(ARMS)
    # On seeds 0 and 1 LOW is the best by far, so that seed 2 stands where it diverged; on all
    # three it is out.
    losses |= {("gate", LOW, 0): 1.5, ("gate", LOW, 1): 1.5, ("gate", LOW, 2): "diverged"}
    found, _ = find(losses)
    gate = next(arm for arm in found.arms if arm.name == "gate")
    assert (gate.diverged, gate.moved) == ((2,), (2,))
    for both in (gate.validation, gate.test, gate.difference, gate.test_difference):
        assert both.plain.value is not None and both.held_out is both.optimism is None


def test_a_baseline_that_diverges_has_nothing_to_compare(find, losses):
    losses |= {("pre", rate, 1): "diverged" for rate in RATES}
    found, _ = find(losses)
    assert [arm.name for arm in found.arms] == ["post", "gate"]
    assert all(arm.difference is None and arm.validation.held_out for arm in found.arms)


def test_two_seeds_have_a_figure_and_no_interval(find, losses):
    found, _ = find({key: loss for key, loss in losses.items() if key[2] < 2})
    for arm in found.arms:
        both = arm.validation
        assert both.held_out.low is None and both.plain.low is not None
        assert both.held_out.value == pytest.approx(expected(losses, arm.name, (0, 1)).mean())


def test_the_order_of_the_records_does_not_matter(tmp_path, losses):
    folder = write_sweep(tmp_path, losses)
    manifest = json.loads((folder / "sweep.json").read_text())
    record = load_sweep(folder)
    (folder / "sweep.json").write_text(json.dumps(manifest | {"cells": manifest["cells"][::-1]}))
    reverse = load_sweep(folder)
    one, other = (sensitivity(r, analyse(r)).arms for r in (record, reverse))
    assert one == other


def test_settings_and_arms_with_other_seeds_are_left_out(find, losses):
    """As a pool of work directories may have them."""
    ragged = {key: loss for key, loss in losses.items() if key != ("gate", HIGH, 2)}
    ragged |= {("post", rate, 3): 2.0 + rate for rate in RATES}
    found, _ = find(ragged)
    by_name = {arm.name: arm for arm in found.arms}
    assert [by_name[arm].settings for arm in ("pre", "post", "gate")] == [3, 3, 2]
    assert by_name["post"].difference is None and by_name["gate"].difference is not None


def test_only_the_last_rung_is_chosen_from(tmp_path, losses):
    folder = write_sweep(tmp_path, losses)
    manifest = json.loads((folder / "sweep.json").read_text())
    for cell in manifest["cells"]:
        last = cell["nuisance"]["optimizer.learning_rate"] != HIGH
        cell["rung"] = {"number": 1 + last, "of": 2, "steps": 200 * (1 + last)}
    (folder / "sweep.json").write_text(json.dumps(manifest))
    record = load_sweep(folder)
    found = sensitivity(record, analyse(record))
    assert found.factors == () and {arm.settings for arm in found.arms} == {2}


def test_the_larger_standard_error_counts():
    # Held out 1, 2, 3: se 0.577. Means without a seed of 1, 2, 3: jackknife sqrt(2 * 2/3) = 1.155.
    short, long = (
        held_out_estimate([1.0, 2.0, 3.0], w) for w in ([2.0, 2.0, 2.1], [1.0, 2.0, 3.0])
    )
    np.testing.assert_allclose(
        [short.standard_error, long.standard_error], [1 / 3**0.5, (4 / 3) ** 0.5]
    )
    np.testing.assert_allclose(long.half_width, 4.302653 * (4 / 3) ** 0.5, rtol=1e-6)
    assert short.value == long.value == 2.0 and long.degrees_of_freedom == 2
    assert held_out_estimate([1.0, 2.0, 3.0], [1.0, math.nan, 3.0]).low is None
    assert held_out_estimate([1.0, math.nan, 3.0], [1.0, 2.0, 3.0]) is None


def chosen_by_all(draws):
    rows = draws.sum(axis=2).argmin(axis=1)
    return np.take_along_axis(draws, rows[:, None, None], 1)[:, 0]


def chosen_by_the_others(draws):
    """The simulation's own re-estimation, of many arms at once: [trials, settings, seeds]."""
    rows = (draws.sum(axis=2, keepdims=True) - draws).argmin(axis=1)
    return np.take_along_axis(draws, rows[:, None], 1)[:, 0]


def drawn(settings, seeds, trials, better):
    """Noise of sd 1 for settings that are equal but for a first one."""
    draws = np.random.default_rng(settings * seeds).standard_normal((trials, settings, seeds))
    draws[:, 0] -= better
    return draws


def test_the_simulation_re_estimates_as_the_module_does():
    draws = drawn(4, 5, 50, 0.3)
    own = [losses[leave_one_out(losses), np.arange(5)] for losses in draws]
    np.testing.assert_array_equal(chosen_by_the_others(draws), own)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_plain_mean_of_equal_settings_is_biased_and_the_re_estimated_one_is_not(seeds):
    draws = drawn(8, seeds, 20_000, 0.0)
    plain, held = chosen_by_all(draws).mean(), chosen_by_the_others(draws).mean()
    # The lowest of 8 standard normals is -1.42360 on average (Harter 1961, table 1).
    np.testing.assert_allclose(plain, -1.42360 / math.sqrt(seeds), atol=0.01)
    assert abs(held) < 0.01


@pytest.mark.parametrize(
    "seeds, low, high", [(3, -0.18, 0.47), (5, -0.07, 0.30), (10, -0.01, 0.09)]
)
def test_with_one_better_setting_the_re_estimated_mean_is_too_high(seeds, low, high):
    draws = drawn(8, seeds, 20_000, 1.0)
    found = [way(draws).mean() + 1.0 for way in (chosen_by_all, chosen_by_the_others)]
    np.testing.assert_allclose(found, [low, high], atol=0.015)


def standard_errors(figure, draws):
    """What is held out, and its standard error by t alone and as the module has it."""
    seeds = draws[0].shape[2]
    held = figure(*map(chosen_by_the_others, draws))
    fewer = [[np.delete(one, seed, axis=2) for one in draws] for seed in range(seeds)]
    without = np.stack([figure(*map(chosen_by_the_others, few)).mean(axis=1) for few in fewer], 1)
    by_t = held.std(axis=1, ddof=1) / math.sqrt(seeds)
    jackknife = np.sqrt((seeds - 1) * without.var(axis=1))
    return held, without, by_t, np.maximum(by_t, jackknife)


def coverage(figure, draws, truth):
    """How often a t interval holds the truth, with either standard error."""
    held, _, *errors = standard_errors(figure, draws)
    t = scipy.stats.t.isf(0.025, held.shape[1] - 1)
    return np.array([(np.abs(held.mean(axis=1) - truth) <= t * e).mean() for e in errors])


def alone(arm):
    return arm


def test_the_simulation_has_the_intervals_of_the_module():
    held, without, _, errors = standard_errors(alone, [drawn(4, 5, 50, 0.3)])
    estimates = [
        held_out_estimate(h, w) for h, w in zip(held.tolist(), without.tolist(), strict=True)
    ]
    t = scipy.stats.t.isf(0.025, 4)
    np.testing.assert_allclose([e.high for e in estimates], held.mean(axis=1) + t * errors)


# Three standard errors of 20,000 trials are at most 0.009.
@pytest.mark.parametrize(
    "seeds, by_t, own", [(3, 0.895, 0.984), (5, 0.846, 0.974), (10, 0.758, 0.953)]
)
def test_the_interval_covers_where_that_of_t_does_not(seeds, by_t, own):
    got = coverage(alone, [drawn(8, seeds, 20_000, 0.0)], 0.0)
    np.testing.assert_allclose(got, [by_t, own], atol=0.009)


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("settings, better", [(3, 0.3), (3, 3.0), (8, 1.0)])
def test_the_interval_covers_whatever_the_settings_are(settings, better, seeds):
    _, own = coverage(alone, [drawn(settings, seeds, 10_000, better)], -better)
    # Two standard errors below 95 %.
    assert own > 0.9456


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("better", [0.0, 1.0])
def test_the_interval_of_a_difference_covers(seeds, better):
    arm, baseline = drawn(8, seeds, 20_000, better).reshape(2, 10_000, 8, seeds)
    _, own = coverage(lambda a, b: a - b, [arm, baseline], 0.0)
    assert own > 0.96
