"""Tests for jtransformer.stats on sweeps at several scales, with rungs, and with draws."""

import dataclasses

import numpy as np
import pytest
from sweep_fixture import RATES, noisy_losses, scaled, write_sweep

from jtransformer.records import SweepRecord, load_sweep
from jtransformer.stats import (
    adjust,
    analyse,
    analyse_scales,
    at_scales,
    fairness,
    learning_curves,
    nuisance_curves,
    results_table,
)

LOW, MIDDLE, HIGH = RATES
# The gate helps at the small scale alone; the large one is lower by itself.
EFFECTS = {
    **{"small-pre": 0.0, "small-gate": -0.02, "small-post": 0.001},
    **{"large-pre": -0.5, "large-gate": -0.5, "large-post": -0.47},
}


@pytest.fixture
def ladder(tmp_path):
    return load_sweep(write_sweep(tmp_path, noisy_losses(EFFECTS), **scaled(EFFECTS)))


def test_every_scale_is_judged_by_its_own_baseline(ladder):
    small, large = analyse_scales(ladder)
    assert (small.scale, small.baseline) == ("small", "small-pre")
    assert (large.scale, large.baseline) == ("large", "large-pre")
    words = {arm.name: arm.verdict.word for one in (small, large) for arm in one.arms}
    assert words == {
        "small-pre": "baseline",
        "small-gate": "better",
        "small-post": "cannot tell",
        "large-pre": "baseline",
        "large-gate": "cannot tell",
        "large-post": "worse",
    }
    # The half nat between the scales is nobody's effect.
    assert all(abs(a.comparison.model.value) < 0.04 for a in large.arms if a.comparison)


def test_figures_of_a_scale_are_those_of_its_runs_alone(ladder):
    """Each has its own model of noise; only the number of comparisons is common."""
    for part, analysis in zip(at_scales(ladder), analyse_scales(ladder), strict=True):
        assert {run.cell["arm"].split("-")[0] for run in part.runs} == {analysis.scale}
        alone = analyse(SweepRecord(part.manifest | {"scales": {}}, part.runs))
        assert analysis.fit is not None and alone.fit is not None
        assert analysis.fit == dataclasses.replace(alone.fit, comparisons=4)
        for ours, theirs in zip(analysis.arms, alone.arms, strict=True):
            assert (ours.mean, ours.choice) == (theirs.mean, theirs.choice)
            if ours.comparison:
                assert ours.comparison.model == theirs.comparison.model


def test_holm_counts_the_comparisons_of_all_scales(ladder):
    analyses = analyse_scales(ladder)
    compared = [arm for one in analyses for arm in one.arms if arm.comparison]
    raw = {arm.name: arm.comparison.model.p for arm in compared}
    adjusted = {arm.name: arm.comparison.p_adjusted for arm in compared}
    assert len(raw) == 4 and adjusted == adjust(raw, 4, "holm")
    smallest = min(raw, key=raw.get)
    np.testing.assert_allclose(adjusted[smallest], min(1, 4 * raw[smallest]), rtol=1e-12)
    assert {one.fit.comparisons for one in analyses} == {4}


def test_an_untested_scale_stays_in_the_family(tmp_path):
    losses = noisy_losses(EFFECTS)
    losses |= {key: "pending" for key in losses if key[0].startswith("large")}
    record = load_sweep(write_sweep(tmp_path, losses, **scaled(EFFECTS)))
    small, large = analyse_scales(record)
    assert small.fit is not None and small.fit.comparisons == 4 and large.fit is None


def test_scales_are_not_thrown_together(ladder):
    with pytest.raises(ValueError, match="the scales small, large, and no arm of one can be comp"):
        analyse(ladder)


def test_the_results_say_the_scale(ladder):
    table = results_table(ladder)
    assert list(table.columns[:2]) == ["arm", "scale"]
    assert list(table["scale"]) == [arm.split("-")[0] for arm in table["arm"]]


def test_budgets_may_differ_between_scales_but_not_within(ladder):
    for run in ladder.runs:
        if run.cell["arm"].startswith("large"):
            run.status["result"]["steps"] = 800
    assert [len(fairness(part).budgets) for part in at_scales(ladder)] == [1, 1]


def rung(run, number, of, steps):
    return dataclasses.replace(
        run, cell=run.cell | {"rung": dict(number=number, of=of, steps=steps)}
    )


@pytest.fixture
def halved(tmp_path):
    """Three rates for 100 steps and the best of each arm for 400; the short runs look better."""
    arms = {"pre": 0.0, "post": 0.03}
    losses = noisy_losses(arms)
    short = {key: loss - 0.3 for key, loss in losses.items()}
    long = {key: loss for key, loss in losses.items() if key[1] == MIDDLE}
    first = load_sweep(write_sweep(tmp_path / "short", short))
    last = load_sweep(write_sweep(tmp_path / "long", long))
    for run in first.runs:
        run.status["result"]["steps"] = 100
    runs = [rung(run, 1, 2, 100) for run in first.runs] + [rung(r, 2, 2, 400) for r in last.runs]
    search = dict(strategy="halving", trials=None, seed=None, rungs=2, keep=3)
    return SweepRecord(first.manifest | {"search": search}, tuple(runs)), losses


def test_only_the_last_rung_is_chosen_from_and_counted(halved):
    record, losses = halved
    analysis = analyse(record)
    for arm in analysis.arms:
        own = {seed: losses[arm.name, MIDDLE, seed] for seed in range(3)}
        assert arm.choice.validation == own and arm.choice.runs.planned == 3
        assert (arm.settings, arm.runs.planned) == (3, 12)
    assert [(r.number, r.steps, r.settings) for r in analysis.rungs] == [(1, 100, 3), (2, 400, 1)]
    assert analysis.arm("post").verdict.word == "worse"
    assert fairness(record).budgets == ((400, 204800),)


def test_an_edge_is_one_of_all_values_that_were_tried(halved):
    record, _ = halved
    assert all(arm.choice.edges == () for arm in analyse(record).arms)


def test_test_losses_stand_at_the_last_rung_alone(halved):
    record, _ = halved
    table = results_table(record)
    assert "rung" in table.columns and set(table["rung"]) == {1, 2}
    assert (table["selected"] == (table["rung"] == 2)).all()
    assert (table["test_nll"].notna() == table["selected"]).all()


def test_curves_do_not_mix_rungs(halved):
    record, losses = halved
    analysis = analyse(record)
    curves = learning_curves(record, analysis)
    ends = curves.query("split == 'validation' and step == 400 and arm == 'pre' and seed == 0")
    np.testing.assert_allclose(ends["nll"].item(), losses["pre", MIDDLE, 0])
    tuned = nuisance_curves(record, analysis)
    assert len(tuned) == 18 and set(tuned["value"]) == set(RATES)
    np.testing.assert_allclose(sorted(tuned["nll"]), sorted(x - 0.3 for x in losses.values()))


def test_before_the_last_rung_nothing_is_judged(halved):
    record, _ = halved
    first = tuple(run for run in record.runs if run.cell["rung"]["number"] == 1)
    analysis = analyse(SweepRecord(record.manifest, first))
    assert {arm.verdict.text for arm in analysis.arms} == {
        "incomplete: the 9 runs so far choose what is run for all steps"
    }
    assert all(arm.choice is None and arm.test_mean is None for arm in analysis.arms)
    assert not results_table(SweepRecord(record.manifest, first))["test_nll"].notna().any()


DECAY = "optimizer.weight_decay"


def retuned(record, setting, **manifest):
    """The same runs with other tuned settings, as a function of the learning rate."""
    runs = tuple(
        dataclasses.replace(run, cell=run.cell | {"nuisance": setting(run.cell)})
        for run in record.runs
    )
    return SweepRecord(record.manifest | manifest, runs)


@pytest.fixture
def plain(tmp_path):
    return load_sweep(write_sweep(tmp_path, noisy_losses({"pre": 0.0, "post": 0.03})))


def test_arms_may_be_tuned_over_different_factors(plain):
    def setting(cell):
        rate = cell["nuisance"]["optimizer.learning_rate"]
        return {"optimizer.learning_rate": rate} if cell["arm"] == "pre" else {DECAY: rate * 10}

    names = {"optimizer.learning_rate": [], DECAY: {"values": [], "when": {}}}
    record = retuned(plain, setting, nuisance=names)
    analysis = analyse(record)
    assert analysis.arm("pre").choice.nuisance == {"optimizer.learning_rate": MIDDLE}
    assert analysis.arm("post").choice.nuisance == {DECAY: MIDDLE * 10}
    tuned = nuisance_curves(record, analysis)
    assert {(row.factor, row.arm) for row in tuned.itertuples()} == {
        ("optimizer.learning_rate", "pre"),
        (DECAY, "post"),
    }
    table = results_table(record)
    assert (table["weight_decay"].isna() == (table["arm"] == "pre")).all()


def both(cell):
    rate = cell["nuisance"]["optimizer.learning_rate"]
    return {"optimizer.learning_rate": rate, DECAY: rate * 10}


def test_settings_that_change_together_are_drawn_along_both(plain):
    names = {f"optimizer.learning_rate, {DECAY}": []}
    record = retuned(plain, both, nuisance=names)
    assert len(nuisance_curves(record, analyse(record))) == 2 * 18
    # As two factors of a grid, each would be looked at with the other at its choice.
    apart = retuned(plain, both, nuisance={"optimizer.learning_rate": [], DECAY: []})
    assert len(nuisance_curves(apart, analyse(apart))) == 2 * 6


def test_draws_stand_along_every_factor_and_have_no_grid_to_be_at_the_edge_of(plain):
    names = {"optimizer.learning_rate": [], DECAY: []}
    record = retuned(plain, both, nuisance=names, search=dict(strategy="random", trials=3))
    analysis = analyse(record)
    assert analysis.drawn and len(nuisance_curves(record, analysis)) == 2 * 18
    low = tuple(run for run in record.runs if run.cell["nuisance"][DECAY] > LOW * 10)
    (first, second) = analyse(SweepRecord(record.manifest, low)).arm("pre").choice.edges
    assert (first.side, first.among, second.among) == ("lowest", "draws", "draws")
    text = analyse(SweepRecord(record.manifest, low)).arm("pre").verdict.text
    assert "at the edge of the learning-rate draws (lowest value tried, 0.004)" in text
