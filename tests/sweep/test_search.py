"""Tests for jtransformer.sweep.search: what arms are tuned over, and that it is equally much."""

import itertools
import math

import pytest
from plan_fixture import ABOUT, FFN, PLACEMENT, RATES, SCHEDULE, TREE, message, plan_of, tree_with

from jtransformer.sweep import Search, adopt, manifest
from jtransformer.sweep.factors import Factor, Range
from jtransformer.sweep.search import settings_of

RATE, DECAY, WARMUP = (
    "optimizer.learning_rate",
    "optimizer.weight_decay",
    "schedule.warmup_cosine.warmup_steps",
)
LOG = dict(low=1e-4, high=1e-1, scale="log")
WARM = dict(values=(20, 60), when={"schedule.kind": "warmup_cosine"})
DRAWN = pytest.mark.parametrize("strategy", ["random", "quasirandom"])
SCHEDULED = {"a": {"schedule.kind": "constant"}, "b": {}}


def tried(plan, arm):
    return [cell.nuisance for cell in plan.cells if cell.arm == arm and cell.spec.seed == 0]


def drawn(strategy="quasirandom", trials=8, seed=0, **nuisance):
    search = dict(strategy=strategy, trials=trials, seed=seed)
    return dict(nuisance={RATE: LOG, **nuisance}, search=search)


def test_a_grid_gives_every_arm_its_own_factors():
    """One arm tunes the warm-up, another the decay: as many settings, so the budget is equal."""
    decay = dict(values=(0.0, 0.1), when={"schedule.kind": "constant"})
    plan = plan_of({}, arms=SCHEDULED, nuisance={RATE: (1e-3, 4e-3), WARMUP: WARM, DECAY: decay})
    rates = (1e-3, 4e-3)
    assert tried(plan, "a") == [{RATE: r, DECAY: d} for r in rates for d in (0.0, 0.1)]
    assert tried(plan, "b") == [{RATE: r, WARMUP: w} for r in rates for w in (20, 60)]


def test_a_condition_on_several_values_and_settings():
    three = {**SCHEDULED, "c": {"schedule.kind": "warmup_linear", "model.norm_placement": "post"}}
    when = {"schedule.kind": ("constant", "warmup_linear"), "model.norm_placement": "post"}
    plan = plan_of({}, arms=three, **drawn(**{DECAY: dict(low=0.0, high=1.0, when=when)}))
    assert [sorted(tried(plan, arm)[0]) for arm in three] == [[RATE], [RATE], [RATE, DECAY]]


def test_error_unequal_budgets():
    text = message({}, arms=SCHEDULED, nuisance={RATE: (1e-3, 4e-3), WARMUP: WARM})
    assert text == (
        "nuisance gives the arms different numbers of settings (2 for 'a', 4 for 'b'), so that "
        "some are tuned harder; use search=dict(strategy='quasirandom', trials=4), with which "
        "every arm has as many."
    )
    remedy = dict(strategy="quasirandom", trials=4)
    nuisance = {RATE: dict(low=1e-3, high=4e-3), WARMUP: WARM}
    plan = plan_of({}, arms=SCHEDULED, nuisance=nuisance, search=remedy)
    assert len(tried(plan, "a")) == len(tried(plan, "b")) == 4


def test_error_a_condition_that_never_holds_or_names_nothing():
    never = {RATE: dict(values=(1e-3, 4e-3), when={"schedule.kind": "noam"})}
    assert message(FFN, nuisance=never) == (
        f"{RATE}: when holds in no arm (schedule.kind = ('noam',)), so it would never be tuned; "
        "leave it out."
    )
    # A setting of a kind that no arm has chosen is not there.
    unread = {RATE: dict(values=(1e-3, 4e-3), when={"model.position.rope.theta": 10_000.0})}
    assert "holds in no arm" in message(FFN, nuisance=unread)
    unknown = {RATE: dict(values=(1e-3, 4e-3), when={"schedule.knd": "noam"})}
    assert "schedule.knd is not a setting; did you mean 'kind'?" in message(FFN, nuisance=unknown)


def test_identical_runs_point_to_the_condition():
    text = message(SCHEDULE, nuisance={WARMUP: (10, 20)}, tree=tree_with(schedule__kind="constant"))
    assert text.endswith("or give the tuned setting a 'when' that names the arms which read it.")


@DRAWN
def test_all_arms_share_the_draws_and_have_as_many(strategy):
    warm = dict(low=10, high=90, when=WARM["when"])
    plan = plan_of({}, arms=SCHEDULED, **drawn(strategy, **{WARMUP: warm}))
    a, b = tried(plan, "a"), tried(plan, "b")
    assert len(a) == len(b) == 8
    assert a == [{RATE: setting[RATE]} for setting in b]
    assert len({setting[RATE] for setting in a}) == 8


@DRAWN
def test_draws_lie_in_their_range_and_can_be_read(strategy):
    factors = (
        Factor(("rate",), between=Range(1e-5, 1e-1, "log")),
        Factor(("momentum",), between=Range(0.9, 0.99)),
        Factor(("warmup",), between=Range(1, 64, "log")),
        Factor(("heads", "keys"), values=((4, 4), (8, 2), (8, 1))),
    )
    search = Search(strategy, trials=64, seed=3)
    settings = settings_of(search, factors, [factors])
    assert len(settings) == 64
    for setting in settings:
        assert 1e-5 <= setting["rate"] <= 1e-1 and 0.9 <= setting["momentum"] <= 0.99
        assert type(setting["warmup"]) is int and 1 <= setting["warmup"] <= 64
        assert (setting["heads"], setting["keys"]) in factors[3].values
        assert setting["rate"] == float(f"{setting['rate']:.3g}")
        assert setting["momentum"] == round(setting["momentum"], 4)
    # Even in the logarithm: as many below the geometric mean as above, within three deviations.
    below = sum(setting["rate"] < 1e-3 for setting in settings)
    assert abs(below - 32) <= (12 if strategy == "random" else 2)
    assert {setting["heads"] for setting in settings} == {4, 8}
    assert max(setting["warmup"] for setting in settings) > 32


def test_quasirandom_draws_leave_smaller_gaps_than_random_ones():
    factors = (Factor(("rate",), between=Range(0.0, 1.0)),)

    def widest(strategy, seed):
        settings = settings_of(Search(strategy, trials=32, seed=seed), factors, [factors])
        points = sorted(setting["rate"] for setting in settings)
        return max(b - a for a, b in itertools.pairwise(points))

    assert all(widest("quasirandom", seed) < 2.1 / 32 for seed in range(5))
    assert all(widest("random", seed) > 2.1 / 32 for seed in range(5))


@DRAWN
def test_live_every_part_of_a_search_changes_the_draws(strategy):
    base = plan_of(FFN, **drawn(strategy)).settings
    assert plan_of(FFN, **drawn(strategy)).settings == base
    assert plan_of(FFN, **drawn(strategy, seed=1)).settings != base
    assert len(plan_of(FFN, **drawn(strategy, trials=9)).settings) == 9
    other = "random" if strategy == "quasirandom" else "quasirandom"
    assert plan_of(FFN, **drawn(other)).settings != base
    # The seeds of the runs have nothing to do with them.
    assert plan_of(FFN, seeds=(5, 6), **drawn(strategy)).settings == base


@DRAWN
def test_error_more_trials_than_distinct_settings(strategy):
    text = message(FFN, nuisance=RATES, search=dict(strategy=strategy, trials=4))
    assert text == (
        f"search.trials = 4, but an arm that tunes {RATE} has no more than 3 distinct settings; "
        "give a wider range or fewer trials."
    )
    assert len(plan_of(FFN, nuisance=RATES, search=dict(strategy=strategy, trials=3)).cells) == 9
    warm = {WARMUP: dict(low=10, high=90, when=WARM["when"])}
    search = dict(strategy=strategy, trials=4)
    text = message({}, arms=SCHEDULED, nuisance=warm, search=search)
    assert "an arm that tunes nothing has no more than 1 distinct settings" in text


def test_a_sweep_keeps_its_draws_whatever_is_installed(monkeypatch):
    plan = plan_of(FFN, **drawn())
    record = manifest(plan, ABOUT)
    assert record["drawn"] == list(plan.settings)

    def other_points(search, dimensions, most):
        for index in range(most):
            yield [math.fmod(0.37 + 0.61 * index, 1.0)] * dimensions

    monkeypatch.setattr("jtransformer.sweep.search._points", other_points)
    changed = plan_of(FFN, **drawn())
    assert changed.settings != plan.settings
    assert adopt(changed, record) == plan
    grown = adopt(plan_of(FFN, **drawn(trials=10)), record)
    assert grown.settings[:8] == plan.settings and len(grown.settings) == 10
    assert {c.fingerprint for c in plan.cells} < {c.fingerprint for c in grown.cells}


@DRAWN
def test_a_search_grows_by_trials(strategy):
    record = manifest(plan_of(FFN, **drawn(strategy)), ABOUT)
    grown = adopt(plan_of(FFN, **drawn(strategy, trials=12)), record)
    assert [cell["fingerprint"] for cell in record["cells"]] == [
        cell.fingerprint for cell in grown.cells if cell.nuisance in record["drawn"]
    ]


def test_other_draws_are_another_sweep():
    record = manifest(plan_of(FFN, **drawn()), ABOUT)
    for other in (drawn(seed=1), drawn(**{DECAY: dict(low=0.0, high=1.0)})):
        assert adopt(plan_of(FFN, **other), record).settings == plan_of(FFN, **other).settings


def test_a_range_is_held_to_the_rules_of_its_setting():
    far = dict(nuisance={"model.heads": dict(low=1, high=7)})
    text = message(PLACEMENT, **far, search=dict(strategy="random", trials=6))
    assert text.startswith("model.heads must divide the width")
    assert TREE["model"]["heads"] == 4
