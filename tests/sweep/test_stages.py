"""Tests for jtransformer.sweep.stages: successive halving and ranges that are widened."""

import json
import math

import pytest
from plan_fixture import ABOUT, FFN, PLACEMENT, message, plan_of, tree_with

from jtransformer.records import RunRecord, SweepRecord
from jtransformer.spec import SpecError
from jtransformer.sweep import adopt, cell_spec, manifest, next_stage

RATE, DECAY, DROPOUT = (
    "optimizer.learning_rate",
    "optimizer.weight_decay",
    "model.dropout.residual",
)
RATES = {RATE: (1e-3, 2e-3, 4e-3, 8e-3)}
HALVING = dict(nuisance=RATES, search=dict(strategy="halving", rungs=3, keep=2), seeds=(0, 1))
GRID = dict(nuisance={RATE: (1e-3, 3e-3)}, extend=dict(most=2), seeds=(0, 1))


def record_of(plan, loss):
    """What a plan's runs leave on disk if `loss(cell)` is their loss, None where one is missing."""
    written = manifest(plan, ABOUT)
    runs = []
    for cell, row in zip(plan.cells, written["cells"], strict=True):
        found = loss(cell)
        state = "pending" if found is None else "diverged" if found == math.inf else "done"
        result = {"validation_nll": found if state == "done" else None}
        status = None if found is None else {"state": state, "result": result}
        runs.append(RunRecord(row, state, status, [], None, None))
    return SweepRecord(written, tuple(runs))


def grown(plan, loss):
    """Every stage, one after another."""
    stages = [plan]
    while (following := next_stage(stages[-1], record_of(stages[-1], loss))) is not None:
        stages.append(following)
    return stages


def best_at(*rates, scale=1.0):
    """A loss with its minimum at a rate for each arm; longer runs are better."""

    def loss(cell):
        best = rates[0] if cell.arm in ("pre", "relu") else rates[-1]
        distance = abs(math.log(cell.nuisance[RATE] / best))
        return 2 + scale * distance + 0.01 * cell.spec.seed - cell.spec.training.steps / 1e4

    return loss


def rates_of(plan, arm, steps=None):
    return list(
        dict.fromkeys(
            cell.nuisance[RATE]
            for cell in plan.cells
            if cell.arm == arm and steps in (None, cell.spec.training.steps)
        )
    )


def test_halving_gives_each_arm_its_own_survivors_and_equal_budgets():
    stages = grown(plan_of(PLACEMENT, **HALVING), best_at(2e-3, 8e-3))
    assert len(stages) == 3
    last = stages[-1]
    assert [rates_of(last, "pre", steps) for steps in (100, 200, 400)] == [
        [1e-3, 2e-3, 4e-3, 8e-3],
        [2e-3, 1e-3],
        [2e-3],
    ]
    assert [rates_of(last, "post", steps) for steps in (100, 200, 400)] == [
        [1e-3, 2e-3, 4e-3, 8e-3],
        [8e-3, 4e-3],
        [8e-3],
    ]
    assert [len(plan.cells) for plan in stages] == [2 * 2 * 4, 2 * 2 * 6, 2 * 2 * 7]
    for cell in last.cells:
        assert cell.rung is not None and cell.rung.steps == cell.spec.training.steps
        assert cell.rung.steps == 400 // 2 ** (3 - cell.rung.number)
        assert ("steps=" in cell.directory) == (cell.rung.number < 3)
    steps = [cell.spec.training.steps for cell in last.cells if cell.arm == "pre"]
    assert steps == sorted(steps), "an arm's runs stand together, the short ones first"


def test_the_last_rung_is_the_run_of_a_plain_grid():
    last = grown(plan_of(PLACEMENT, **HALVING), best_at(2e-3))[-1]
    plain = plan_of(PLACEMENT, nuisance=RATES, seeds=(0, 1))
    final = {cell.fingerprint for cell in last.cells if cell.rung.number == 3}
    assert len(final) == 4 and final < {cell.fingerprint for cell in plain.cells}


def test_a_short_rung_is_probed_at_the_steps_that_it_reaches():
    probed = tree_with(**{"training.probe_steps": (0, 100, 150, 400)})
    last = grown(plan_of(PLACEMENT, tree=probed, **HALVING), best_at(2e-3))[-1]
    found = {cell.spec.training.steps: cell.spec.training.probe_steps for cell in last.cells}
    assert found == {100: (0, 100), 200: (0, 100, 150), 400: (0, 100, 150, 400)}


def test_halving_waits_for_every_run():
    plan = plan_of(PLACEMENT, **HALVING)
    loss = best_at(2e-3)
    missing = plan.cells[-1].fingerprint
    partly = record_of(plan, lambda cell: None if cell.fingerprint == missing else loss(cell))
    assert next_stage(plan, partly) is None
    assert next_stage(plan, SweepRecord(manifest(plan, ABOUT), ())) is None


def test_a_setting_that_diverged_goes_on_only_where_all_have():
    def loss(cell):
        lost = cell.nuisance[RATE] == 2e-3 and cell.spec.seed == 1
        return math.inf if lost else best_at(2e-3)(cell)

    plan = plan_of(PLACEMENT, **HALVING)
    following = next_stage(plan, record_of(plan, loss))
    assert rates_of(following, "pre", 200) == [1e-3, 4e-3]
    all_lost = next_stage(plan, record_of(plan, lambda cell: math.inf))
    assert rates_of(all_lost, "pre", 200) == [1e-3, 2e-3]


def test_halving_over_draws():
    tuned = dict(nuisance={RATE: dict(low=1e-4, high=1e-1, scale="log")}, seeds=(0,))
    search = dict(strategy="halving", rungs=2, keep=4, trials=9, seed=5)
    stages = grown(plan_of(PLACEMENT, **tuned, search=search), best_at(2e-3))
    assert [len(plan.cells) for plan in stages] == [18, 18 + 4]
    assert {cell.rung.steps for cell in stages[-1].cells} == {100, 400}


@pytest.mark.parametrize(
    ("search", "text"),
    [
        (dict(rungs=4, keep=3), "training.steps must be a multiple of keep ** (rungs - 1) = 27, g"),
        (dict(rungs=4, keep=2), "search.rungs = 4 with keep=2 needs 8 settings, got 4; give more,"),
        (dict(rungs=3, keep=4), "search.rungs = 3 with keep=4 needs 16 settings, got 4"),
        (dict(rungs=2, keep=20), "schedule.warmup_cosine.warmup_steps must not exceed training.st"),
    ],
)
def test_error_halving_that_cannot_be(search, text):
    many = {RATE: tuple(1e-3 * (k + 1) for k in range(20))}
    tuned = many if search["keep"] == 20 else RATES
    assert message(PLACEMENT, nuisance=tuned, search=dict(strategy="halving", **search)).startswith(
        text
    )


def test_halving_divides_the_steps_of_each_scale():
    scales = {"short": {"training.steps": 200}, "long": {"training.steps": 800}}
    plan = plan_of(PLACEMENT, scales=scales, **HALVING)
    steps = {cell.arm: cell.spec.training.steps for cell in plan.cells}
    assert steps == {"short-pre": 50, "short-post": 50, "long-pre": 200, "long-post": 200}


def test_a_continued_sweep_keeps_what_was_decided():
    """Also where a result is lost or another one by now: what is decided is not decided again."""
    for options, loss in ((HALVING, best_at(2e-3, 8e-3)), (GRID, best_at(2e-3, 3e-2))):
        stages = grown(plan_of(PLACEMENT, **options), loss)
        for stage in stages:
            record = json.loads(json.dumps(manifest(stage, ABOUT)))
            continued = adopt(plan_of(PLACEMENT, **options), record)
            assert continued == stage and continued.stages == stage.stages
            assert adopt(continued, record) == stage
            # To the same end from every point at which it may be killed.
            assert grown(continued, loss)[-1] == stages[-1]


def test_error_a_search_that_has_chosen_cannot_grow():
    stages = grown(plan_of(PLACEMENT, **HALVING), best_at(2e-3))
    record = manifest(stages[1], ABOUT)
    for change in (dict(seeds=(0, 1, 2)), dict(nuisance={RATE: (1e-3, 2e-3, 4e-3, 8e-3, 9e-3)})):
        with pytest.raises(SpecError, match="has already chosen among the settings"):
            adopt(plan_of(PLACEMENT, **(HALVING | change)), record)
    with pytest.raises(SpecError, match="has already chosen"):
        adopt(plan_of(FFN, **HALVING), record)
    # Before it has chosen it may.
    first = manifest(stages[0], ABOUT)
    assert len(adopt(plan_of(PLACEMENT, **(HALVING | dict(seeds=(0, 1, 2)))), first).cells) == 24


def test_a_range_is_widened_for_all_arms_where_one_has_its_best_at_the_edge():
    stages = grown(plan_of(PLACEMENT, **GRID), best_at(2e-3, 3e-2))
    assert [rates_of(plan, "post") for plan in stages] == [
        [1e-3, 3e-3],
        [1e-3, 3e-3, 9e-3],
        [1e-3, 3e-3, 9e-3, 0.027],
    ]
    for plan in stages:
        assert rates_of(plan, "pre") == rates_of(plan, "post")
    because = [stage["because"][RATE] for stage in stages[-1].stages]
    assert because == [["pre", "post"], ["post"]]


def test_widening_stops_at_an_inner_optimum_and_at_most():
    def values(loss, **change):
        stages = grown(plan_of(PLACEMENT, **(GRID | change)), loss)
        assert len(set(map(len, (rates_of(stages[-1], arm) for arm in ("pre", "post"))))) == 1
        return rates_of(stages[-1], "pre"), stages[-1].stages

    inner = dict(nuisance={RATE: (1e-3, 3e-3, 9e-3)})
    assert values(best_at(3e-3), **inner) == ([1e-3, 3e-3, 9e-3], ())
    found, stages = values(best_at(1.0), **inner)
    assert found == [1e-3, 3e-3, 9e-3, 0.027, 0.081]
    assert [stage["added"] for stage in stages] == [{RATE: [0.027]}, {RATE: [0.081]}]
    assert [stage["because"] for stage in stages] == [{RATE: ["pre", "post"]}] * 2
    assert values(best_at(1e-9), **inner, extend=dict(most=1))[0] == [1e-3, 3e-3, 9e-3, 3.33e-4]
    # One arm at each edge: both sides, for both arms.
    found, stages = values(best_at(1e-3, 1e-2), **inner)
    assert stages[0]["added"] == {RATE: [3.33e-4, 0.027]}
    assert stages[0]["because"] == {RATE: ["pre", "post"]}
    assert found == [1e-3, 3e-3, 9e-3, 3.33e-4, 0.027]


def test_even_and_integer_steps_go_on_as_they_are():
    def added(path, values, toward, **tree):
        def loss(cell):
            return 2 + abs(cell.nuisance[path] - toward)

        plan = plan_of(
            PLACEMENT, tree=tree_with(**tree), nuisance={path: values}, extend=dict(most=1)
        )
        return [stage["added"][path] for stage in grown(plan, loss)[-1].stages]

    assert added(DECAY, (0.1, 0.2, 0.3), 9.0) == [[0.4]]
    assert added(DECAY, (0.0, 0.1), 9.0) == [[0.2]]
    assert added(DECAY, (0.0, 0.1), -9.0) == [], "there is no decay of -0.1"
    assert added("schedule.warmup_cosine.warmup_steps", (20, 40), 999) == [[80]]
    assert added("schedule.warmup_cosine.warmup_steps", (200, 400), 999) == [], "of 400 steps"
    assert added("model.heads", (4, 8), 0) == [[2]]
    assert added("model.heads", (1, 2), 0) == [], "a half is no number of heads"


def test_widening_one_factor_of_two_keeps_the_grid_full():
    tuned = {RATE: (1e-3, 3e-3, 9e-3), DECAY: (0.1, 0.2, 0.3)}
    plan = plan_of(PLACEMENT, nuisance=tuned, extend=dict(most=1))

    def loss(cell):
        return 2 + abs(cell.nuisance[DECAY] - 0.2) + abs(math.log(cell.nuisance[RATE] / 1.0))

    last = grown(plan, loss)[-1]
    settings = {tuple(cell.nuisance.values()) for cell in last.cells if cell.arm == "pre"}
    assert settings == {(r, d) for r in (1e-3, 3e-3, 9e-3, 0.027) for d in (0.1, 0.2, 0.3)}


def test_a_value_that_was_added_may_be_declared_later():
    loss = best_at(3e-2)
    stages = grown(plan_of(PLACEMENT, **GRID), loss)
    assert rates_of(stages[1], "pre") == [1e-3, 3e-3, 9e-3]
    wider = plan_of(PLACEMENT, **(GRID | dict(nuisance={RATE: (1e-3, 3e-3, 9e-3)})))
    continued = adopt(wider, manifest(stages[1], ABOUT))
    assert {c.fingerprint for c in continued.cells} == {c.fingerprint for c in stages[1].cells}
    assert rates_of(grown(continued, loss)[1], "pre") == [1e-3, 3e-3, 9e-3, 0.027]


def test_the_manifest_is_enough_to_train_from():
    last = grown(plan_of(PLACEMENT, **HALVING), best_at(2e-3))[-1]
    written = json.loads(json.dumps(manifest(last, ABOUT), allow_nan=False))
    assert len(written["cells"]) == 28
    for cell, row in zip(last.cells, written["cells"], strict=True):
        assert cell_spec(written, row) == cell.spec


def test_a_stage_leaves_runs_where_they_lie():
    """A sweep that has grown keeps directories of old names, also when it grows by itself."""
    old = manifest(plan_of(PLACEMENT, nuisance={RATE: (1e-3, 3e-3)}, seeds=(0, 1)), ABOUT)
    arms = {**PLACEMENT, "model.ffn": ("gelu", "relu")}
    renamed = adopt(plan_of(arms, **GRID), old)
    following = next_stage(renamed, record_of(renamed, best_at(2e-3)))
    kept = {cell["directory"] for cell in old["cells"]}
    assert kept < {cell.directory for cell in following.cells} and following.stages


def test_null_a_sweep_without_stages_ends_with_its_runs():
    plan = plan_of(PLACEMENT, nuisance=RATES)
    assert grown(plan, best_at(1.0)) == [plan]
