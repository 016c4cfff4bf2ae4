"""Tests for jtransformer.stats.speed and .crossings: by hand, against NumPy, on whole sweeps."""

import json
import math

import numpy as np
import pytest
import scipy.stats
from sweep_fixture import RATES, noisy_losses, scaled, write_sweep

from jtransformer.records import load_sweep
from jtransformer.stats import analyse, analyse_scales, at_scales, speed
from jtransformer.stats.crossings import difference_at_equal_budget, first_crossing, loss_at
from jtransformer.stats.speed import token_ratio

MIDDLE = RATES[1]
ARMS = {"pre": 0.0, "post": 0.03, "gate": -0.03}
TOKENS = 20480 * np.array([2, 4, 6, 8, 10])
"""Where the fixture evaluates."""


@pytest.fixture
def losses():
    return noisy_losses(ARMS)


@pytest.fixture
def find(tmp_path):
    def write_and_find(losses, change=None, **manifest):
        folder = write_sweep(tmp_path / str(len(list(tmp_path.iterdir()))), losses, **manifest)
        if change is not None:
            change(folder)
        record = load_sweep(folder)
        return speed(record, analyse(record))

    return write_and_find


def edit(name, alter):
    """Returns a change of every file of that name: `alter` takes its path and content."""

    def change(folder):
        for path in folder.rglob(name):
            content = json.loads(path.read_text())
            alter(path, content)
            path.write_text(json.dumps(content))

    return change


def flops(by_arm):
    def alter(path, manifest):
        for arm in manifest["arms"]:
            arm["training_flops_per_token"] = by_arm[arm["name"]]

    return edit("sweep.json", alter)


def rows(arm, keep):
    """Returns a change that keeps the rows of an arm's metrics that have these numbers."""

    def change(folder):
        for path in folder.glob(f"runs/{arm}/*/metrics.jsonl"):
            kept = [line for n, line in enumerate(path.read_text().splitlines(), 1) if n in keep]
            path.write_text("".join(line + "\n" for line in kept))

    return change


def arms_of(found):
    return {arm.name: arm for arm in found.arms}


def curve(loss):
    """The fixture's validation curve, by its formula."""
    return loss + 1.2 * (np.exp(-np.array([2, 4, 6, 8, 10]) / 2.5) - math.exp(-4))


def test_crossings_by_hand():
    x, falling = [10, 20, 40], [3.0, 2.0, 1.0]
    assert first_crossing(x, falling, 2.5) == 15.0
    assert first_crossing(x, falling, 2.0) == 20.0
    assert first_crossing(x, falling, 1.25) == 35.0
    assert first_crossing(x, falling, 0.9) is None
    assert first_crossing(x, falling, 3.5) == 10.0
    # A curve that comes down, rises and comes down again counts from the first time.
    assert first_crossing([1, 2, 3, 4], [3.0, 1.0, 2.0, 0.5], 1.5) == 1.75


def test_losses_at_a_budget_by_hand():
    x, falling = [10, 20, 40], [3.0, 2.0, 1.0]
    assert (loss_at(x, falling, 30), loss_at(x, falling, 40)) == (1.5, 1.0)
    assert loss_at(x, falling, 9) is loss_at(x, falling, 41) is None
    # The arm costs twice as much, so its curve is read at its half, 1.5, the other at its end.
    assert difference_at_equal_budget(([20, 40, 80], x), (falling, falling)) == 0.0 + 2.0 - 1.0
    assert difference_at_equal_budget((x, [5, 6, 8]), (falling, falling)) is None


def test_an_equal_curve_needs_as_many_tokens(find):
    """Also where the curve rises at its end, so that it had its final loss before."""

    def rising(folder):
        for path in folder.rglob("metrics.jsonl"):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            lines[9]["validation_nll"] = lines[5]["validation_nll"] + 0.001
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    same = {key: 2.0 + 0.01 * key[2] for key in noisy_losses({"pre": 0.0, "copy": 0.0})}
    copy = arms_of(find(same, rising))["copy"]
    assert copy.tokens.by_seed == {0: 1.0, 1: 1.0, 2: 1.0} and copy.tokens.mean.value == 1.0
    assert copy.equal_tokens.value == 0.0 and copy.equal_flops.value != 0.0


def test_tokens_to_the_baselines_loss_equal_numpy(find, losses):
    arms = arms_of(find(losses))
    own = []
    for seed in range(3):
        falling = curve(losses["gate", MIDDLE, seed])[::-1]
        own.append(np.interp(losses["pre", MIDDLE, seed], falling, TOKENS[::-1]) / TOKENS[-1])
    gate = arms["gate"].tokens
    np.testing.assert_allclose(list(gate.by_seed.values()), own, rtol=1e-9)
    logs = np.log(own)
    half = 4.302653 * logs.std(ddof=1) / math.sqrt(3)
    expected = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half])
    got = [gate.mean.value, gate.mean.low, gate.mean.high]
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert gate.reached == 3 and 0.5 < gate.mean.value < 1 and not gate.is_bound
    # An arm that ends above the baseline never has its loss, and no mean.
    post = arms["post"].tokens
    assert post.by_seed == {0: None, 1: None, 2: None} and post.mean is None
    assert (post.reached, post.median, post.is_bound) == (0, 1.0, True)


def test_censored_ratios_by_hand():
    tokens = {0: 50.0, 1: None, 2: 80.0}
    base, budget = dict.fromkeys(range(3), 100.0), dict.fromkeys(range(3), 120.0)
    got = token_ratio(tokens, base, budget)
    assert got.by_seed == {0: 0.5, 1: None, 2: 0.8}
    assert (got.mean, got.median, got.is_bound, got.reached) == (None, 0.8, False, 2)
    # Two of three were not reached: the median is one of them, so at least what they had.
    got = token_ratio(tokens | {2: None}, base, budget)
    assert (got.median, got.is_bound, got.reached) == (1.2, True, 1)
    # Of an even number the median is half of one that was not reached.
    got = token_ratio({0: 50.0, 1: None}, base, budget)
    assert (got.median, got.is_bound) == (pytest.approx(0.85), True)


def test_equal_tokens_are_the_final_losses(find, losses):
    gate = arms_of(find(losses))["gate"]
    differences = [losses["gate", MIDDLE, s] - losses["pre", MIDDLE, s] for s in range(3)]
    np.testing.assert_allclose(gate.equal_tokens.value, np.mean(differences), rtol=1e-9)
    p = scipy.stats.ttest_1samp(differences, 0).pvalue
    np.testing.assert_allclose(gate.equal_tokens.p, p, rtol=1e-9)


def test_an_arm_that_costs_more_is_read_earlier(find, losses):
    """With 1.25 times the FLOPs the arm is read at 0.8 of its tokens, its point before the last."""
    found = find(losses, flops({"pre": 800_000, "post": 640_000, "gate": 1_000_000}))
    arms = arms_of(found)
    pairs = [(losses["gate", MIDDLE, s], losses["pre", MIDDLE, s]) for s in range(3)]
    expected = np.mean([curve(own)[3] - base for own, base in pairs])
    np.testing.assert_allclose(arms["gate"].equal_flops.value, expected, rtol=1e-9)
    assert arms["gate"].flops_ratio == 1.25 and arms["post"].flops_ratio == 0.8
    # The cheaper arm has its end where the baseline has its point before the last.
    pairs = [(losses["post", MIDDLE, s], losses["pre", MIDDLE, s]) for s in range(3)]
    expected = np.mean([own - curve(base)[3] for own, base in pairs])
    np.testing.assert_allclose(arms["post"].equal_flops.value, expected, rtol=1e-9)
    at_end = found.curves[found.curves["tokens"] == TOKENS[-1]].query("arm == 'gate'")
    assert set(at_end["flops"]) == {TOKENS[-1] * 1_000_000}


def test_equal_seconds_take_the_measured_speed(find, losses):
    def slower(path, status):
        status["timing"]["tokens_per_second"] = 40_000.0 if "/gate/" in str(path) else 50_000.0

    gate = arms_of(find(losses, edit("status.json", slower)))["gate"]
    pairs = [(losses["gate", MIDDLE, s], losses["pre", MIDDLE, s]) for s in range(3)]
    expected = np.mean([curve(own)[3] - base for own, base in pairs])
    np.testing.assert_allclose(gate.equal_seconds.value, expected, rtol=1e-9)
    assert gate.equal_flops.value != pytest.approx(expected)


@pytest.mark.parametrize(
    "file, key, value, why",
    [
        ("environment.json", "device_kind", "NVIDIA H200", "different devices (NVIDIA H200, cpu)"),
        ("environment.json", "mode", "vmap, 3 runs", "different modes (loop, vmap, 3 runs)"),
        ("environment.json", "mode", None, "the modes of some runs are not recorded"),
        ("status.json", "tokens_per_second", None, "the speed of some runs is not recorded"),
    ],
)
def test_seconds_are_refused_with_the_reason(find, losses, file, key, value, why):
    def alter(path, content):
        if "/gate/" in str(path):
            (content.get("timing") or content)[key] = value

    found = find(losses, edit(file, alter))
    assert why in found.clock
    assert all(arm.equal_seconds is None for arm in found.arms)
    assert all(arm.equal_flops is not None for arm in found.arms)


def test_another_machine_of_a_setting_that_is_not_chosen_does_not_matter(find, losses):
    def alter(path, environment):
        if f"learning_rate={RATES[0]}" in str(path):
            environment["device_kind"] = "other"

    assert find(losses, edit("environment.json", alter)).clock is None


def test_a_diverged_run_never_reached_it_and_enters_no_mean(find, losses):
    losses |= {("gate", rate, 1): "diverged" for rate in RATES}
    # Before it diverged it was at 2.72, below this.
    losses |= {("pre", rate, seed): 2.9 for rate in RATES for seed in range(3)}
    gate = arms_of(find(losses))["gate"]
    assert gate.tokens.by_seed[1] is None and gate.tokens.reached == 2
    assert gate.tokens.mean is None and not gate.tokens.is_bound
    assert gate.equal_tokens is gate.equal_flops is gate.equal_seconds is None


def test_without_a_baseline_there_is_nothing_to_reach(find, losses):
    assert find(losses | {("pre", rate, 1): "diverged" for rate in RATES}) is None
    assert find(losses | {("pre", MIDDLE, 1): "pending"}) is None
    assert find(dict.fromkeys(losses, "pending")) is None
    assert find(dict.fromkeys(losses, "diverged")) is None
    assert find({key: loss for key, loss in losses.items() if key[0] == "pre"}) is None


def test_unfinished_arms_wait(find, losses):
    found = find(losses | {("gate", RATES[0], 1): "running"})
    assert found.waiting == ("gate",) and [arm.name for arm in found.arms] == ["post"]
    assert set(found.curves["arm"]) == {"pre", "post"}


@pytest.mark.parametrize("keep, points", [({2, 10}, 2), (set(), 0)])
def test_too_few_points_are_counted_and_not_read(find, losses, keep, points):
    found = find(losses, rows("gate", keep))
    assert (found.points, found.arms, found.early) == (points, (), ())


def test_three_points_are_enough(find, losses):
    found = find(losses, rows("gate", {2, 6, 10}))
    assert found.points == 3 and len(found.arms) == 2


def test_an_arm_that_was_there_at_its_first_point_is_named(find, losses):
    losses |= {("gate", MIDDLE, seed): 1.0 for seed in range(3)}
    found = find(losses)
    assert found.early == ("gate",)
    assert arms_of(found)["gate"].tokens.by_seed == {0: 0.2, 1: 0.2, 2: 0.2}


def test_one_seed_has_figures_and_no_interval(find, losses):
    found = find({key: loss for key, loss in losses.items() if key[2] == 0})
    gate = arms_of(found)["gate"]
    assert gate.tokens.mean.low is gate.equal_flops.low is gate.equal_tokens.p is None


@pytest.mark.parametrize(
    "kind, decays", [("warmup_cosine", True), ("constant", False), ("noam", False)]
)
def test_whether_the_rate_depends_on_the_end_is_read_off_the_schedules(find, losses, kind, decays):
    base = {"model": {}, "schedule": {"kind": kind}}
    assert find(losses, base=base).decays is decays


def test_a_schedule_that_an_arm_has_counts(find, losses):
    def alter(path, manifest):
        manifest["arms"][2]["spec"] = {"schedule": {"kind": "warmup_linear"}}

    base = {"model": {}, "schedule": {"kind": "constant"}}
    assert find(losses, edit("sweep.json", alter), base=base).decays


def test_each_scale_has_its_own_baseline(tmp_path):
    effects = {"small-pre": 0.0, "small-gate": -0.03, "large-pre": -0.5, "large-gate": -0.53}
    record = load_sweep(write_sweep(tmp_path, noisy_losses(effects), **scaled(effects)))
    pairs = zip(at_scales(record), analyse_scales(record), strict=True)
    small, large = (speed(one, analysis) for one, analysis in pairs)
    assert [arm.name for arm in small.arms] == ["small-gate"]
    assert 0.5 < arms_of(large)["large-gate"].tokens.mean.value < 1


def test_only_runs_of_all_steps_are_read(find, losses):
    """The shorter rung has the chosen setting too, and other losses."""

    def halve(path, manifest):
        for cell in manifest["cells"]:
            last = cell["nuisance"]["optimizer.learning_rate"] == MIDDLE
            cell["rung"] = {"number": 1 + last, "of": 2, "steps": 200 * (1 + last)}
            cell["nuisance"]["optimizer.learning_rate"] = MIDDLE

    plain, halved = find(losses), find(losses, edit("sweep.json", halve))
    assert arms_of(halved)["gate"].tokens == arms_of(plain)["gate"].tokens
