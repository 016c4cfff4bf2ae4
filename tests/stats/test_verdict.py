"""Tests for jtransformer.stats.verdict: one rule at a time, and which comes before which."""

import dataclasses

import numpy as np
import pytest
import scipy.stats
from sweep_fixture import RATES, noisy_losses, record_of

from jtransformer.records import VerdictRule
from jtransformer.stats import (
    Comparison,
    Count,
    Edge,
    Estimate,
    SeedsNeeded,
    adjust,
    analyse,
    p_equivalent,
    seeds_needed,
)
from jtransformer.stats.estimates import Choice
from jtransformer.stats.verdict import Case, judge

DONE = Count(planned=9, finished=9, diverged=0, failed=0)
OPEN = Count(planned=9, finished=7, diverged=0, failed=1)
EDGE = Edge(factor="optimizer.learning_rate", side="lowest", value=0.001)
AT_EDGE = " — at the edge of the learning-rate grid (lowest value tried, 0.001)"
REASON = "it was tuned over 2 settings, base over 3"


def choice(diverged=0, of=3, edges=()):
    runs = Count(planned=of, finished=of, diverged=diverged, failed=0)
    return Choice(nuisance={}, edges=edges, runs=runs, validation={}, test={}, train={})


def comparison(value=-0.02, p=0.5, equivalent=None, need=None):
    difference = Estimate(value=value, standard_error=0.01, degrees_of_freedom=6, p=p)
    return Comparison(
        model=difference,
        paired=None,
        by_seed={},
        test=None,
        p_adjusted=p,
        resolvable=0.0352,
        simultaneous=difference,
        effect_size=None,
        bootstrap=None,
        p_sign_flip=None,
        p_equivalent=equivalent,
        need=need,
    )


def judged(**changes):
    case = Case(
        is_baseline=False,
        runs=DONE,
        baseline_runs=DONE,
        choice=choice(),
        baseline_choice=choice(),
        objections=(),
        comparison=comparison(),
        seeds=3,
        margin=None,
    )
    verdict = judge(dataclasses.replace(case, **changes))
    assert verdict.text.startswith(verdict.word) or verdict.word == "diverges more often"
    return verdict.word, verdict.text


@pytest.mark.parametrize("value, word", [(-0.02, "better"), (0.02, "worse")])
def test_a_told_difference_has_its_direction(value, word):
    assert judged(comparison=comparison(value, 0.05)) == (word, word)
    at_edge = dict(comparison=comparison(value, 0.05), choice=choice(edges=(EDGE,)))
    assert judged(**at_edge) == (word, word + AT_EDGE)
    assert judged(comparison=comparison(value, 0.0501))[0] == "cannot tell"


@pytest.mark.parametrize(
    "need, words",
    [
        (SeedsNeeded(9, 0.02, "observed difference"), "needs about 9 seeds for the observed diff"),
        (SeedsNeeded(None, 0.02, "observed difference"), "needs more than 1,000 seeds for the obs"),
        (
            SeedsNeeded(12, 0.005, "margin"),
            "needs about 12 seeds for a difference as large as the margin of 0.005; small",
        ),
    ],
)
def test_what_cannot_be_told_says_what_it_would_take(need, words):
    word, text = judged(comparison=comparison(need=need))
    assert word == "cannot tell" and text.startswith(f"cannot tell ({words}")
    assert text.endswith("; smallest resolvable: 0.0352)")


def test_within_the_margin_leads_and_a_told_difference_stands_behind_it():
    alone = comparison(-0.002, 0.3, equivalent=0.05)
    assert judged(comparison=alone, margin=0.005) == (
        "equivalent within margin",
        "equivalent within margin (±0.005)",
    )
    for value, direction in ((-0.002, "better"), (0.002, "worse")):
        both = comparison(value, 0.01, equivalent=0.01)
        text = f"equivalent within margin ({direction}, but by less than 0.005)"
        assert judged(comparison=both, margin=0.005) == ("equivalent within margin", text)
    beyond = comparison(-0.002, 0.01, equivalent=0.0501)
    assert judged(comparison=beyond, margin=0.005)[0] == "better"


def test_an_unfair_comparison_is_neither_better_nor_worse():
    unfair = dict(objections=("its batches differ", REASON))
    for p in (0.001, 0.9):
        word, text = judged(comparison=comparison(p=p, equivalent=0.001), margin=1.0, **unfair)
        assert word == "unfair comparison"
        assert text == f"unfair comparison (its batches differ; {REASON})"
    assert judged(choice=choice(2), **unfair)[0] == "unfair comparison"
    assert judged(runs=OPEN, **unfair)[0] == "incomplete"
    assert judged(is_baseline=True, **unfair)[0] == "baseline"


def test_a_higher_rate_at_the_choice_diverges_more_often():
    word, text = judged(choice=choice(2), comparison=None)
    assert word == "diverges more often"
    # Clopper and Pearson's limits are quantiles of beta distributions.
    low, high = scipy.stats.beta.ppf([0.025, 0.975], [2, 3], [2, 1])
    none = scipy.stats.beta.ppf(0.975, 1, 3)
    assert text == (
        f"diverges in 2 of 3 runs at its best setting (95 %: {100 * low:.0f} to {100 * high:.0f} "
        f"%), the baseline in 0 of 3 (0 to {100 * none:.0f} %), which may be chance"
    )
    assert "(95 %: 9 to 99 %), the baseline in 0 of 3 (0 to 71 %)" in text


def test_a_rate_that_a_test_tells_is_not_put_down_to_chance():
    """Of 3 runs against 3, only all against none is told: 2 of 64 ways in which they can end."""
    for diverged, is_told in ((1, False), (2, False), (3, True)):
        text = judged(choice=choice(diverged), comparison=None)[1]
        assert text.endswith(", which may be chance") != is_told


@pytest.mark.parametrize("own, of, baseline", [(1, 3, 1), (1, 3, 2), (2, 6, 1), (3, 3, 3)])
def test_a_rate_that_is_not_higher_is_not_compared(own, of, baseline):
    word, text = judged(choice=choice(own, of), baseline_choice=choice(baseline), comparison=None)
    assert word == "not compared"
    assert text.startswith(f"not compared: diverges in {own} of {of} runs at its best setting")
    assert f"the baseline in {baseline} of 3 (" in text


def test_rates_of_unequal_counts_are_compared_as_rates():
    assert judged(choice=choice(2, 5), baseline_choice=choice(1, 3))[0] == "diverges more often"


def test_a_diverging_baseline_says_so_and_compares_nothing():
    word, text = judged(is_baseline=True, choice=choice(1), comparison=None)
    assert (word, text) == (
        "baseline",
        "baseline, diverges in 1 of 3 runs at its best setting (95 %: 1 to 91 %)",
    )
    word, text = judged(comparison=None, baseline_choice=choice(1))
    assert word == "not compared"
    assert text.startswith("not compared: the baseline diverges in 1 of 3 runs")


def test_arms_without_a_common_seed_are_not_compared():
    assert judged(comparison=None) == (
        "not compared",
        "not compared: it has no seed in common with the baseline",
    )


def test_without_noise_or_with_one_seed_there_is_no_interval():
    assert judged(seeds=1)[1] == "no interval from one seed"
    assert judged(comparison=comparison(p=None))[1].startswith("no interval: the runs leave no")


def test_what_is_unfinished_is_not_judged():
    assert judged(runs=OPEN)[1] == "incomplete: 7 of 9 runs (1 failed)"
    assert judged(baseline_runs=OPEN)[1] == "incomplete: the baseline has 7 of 9 runs (1 failed)"
    assert judged(choice=None)[1].startswith("incomplete: the 9 runs so far choose")
    assert judged(choice=choice(2), baseline_runs=OPEN)[0] == "incomplete"


EFFECTS = {"pre-gelu": 0.0, "pre-relu": 0.0005, "pre-swiglu": -0.03, "post-gelu": 0.03}


def ruled(seeds=3, effects=EFFECTS, **rule):
    losses = noisy_losses(effects, seeds)
    return analyse(record_of(losses, verdict=rule))


def test_null_a_sweep_of_an_earlier_version_has_the_default_rule():
    record = record_of(noisy_losses(EFFECTS))
    assert "verdict" not in record.manifest
    assert analyse(record) == ruled(margin=None, correction="holm", intervals="unadjusted")
    assert analyse(record).rule == VerdictRule()


def test_the_correction_is_the_declared_one():
    analyses = {name: ruled(correction=name) for name in ("holm", "fdr")}
    for name, analysis in analyses.items():
        compared = {arm.name: arm.comparison for arm in analysis.arms if arm.comparison}
        raw = {arm: c.model.p for arm, c in compared.items()}
        assert {arm: c.p_adjusted for arm, c in compared.items()} == adjust(raw, 3, name)
    first, second = (a.arm("pre-relu").comparison for a in analyses.values())
    assert first.model == second.model
    one, two = (a.arm("post-gelu").comparison.p_adjusted for a in analyses.values())
    assert one > two


def test_the_shown_interval_is_the_declared_one():
    plain, wide = (ruled(intervals=name) for name in ("unadjusted", "simultaneous"))
    for one, other in zip(plain.arms, wide.arms, strict=True):
        if one.comparison is None:
            assert plain.difference(one) is wide.difference(other) is None
            continue
        assert plain.difference(one) == one.comparison.model
        shown = wide.difference(other)
        half = shown.standard_error * scipy.stats.t.isf(0.05 / 3 / 2, shown.degrees_of_freedom)
        np.testing.assert_allclose(shown.half_width, half, rtol=1e-12)
        assert shown.p == one.comparison.model.p and one.verdict == other.verdict


def test_equivalence_is_adjusted_over_the_same_family():
    analysis = ruled(seeds=7, margin=0.01)
    compared = {arm.name: arm.comparison for arm in analysis.arms if arm.comparison}
    raw = {arm: p_equivalent(c.model, 0.01) for arm, c in compared.items()}
    assert {arm: c.p_equivalent for arm, c in compared.items()} == adjust(raw, 3, "holm")
    assert analysis.arm("pre-relu").verdict.word == "equivalent within margin"
    assert analysis.arm("pre-swiglu").verdict.word == "better"
    # Null: without a margin the same small difference is told, and nothing else can be.
    assert ruled(seeds=7).arm("pre-relu").verdict.word == "worse"


def test_seeds_are_those_of_the_margin_until_it_is_resolved():
    for margin, of in ((0.0002, "margin"), (0.5, "observed difference"), (None, "observed diff")):
        analysis = ruled(margin=margin)
        found = analysis.arm("pre-relu").comparison
        assert found.need.of.startswith(of)
        size = margin if of == "margin" else abs(found.model.value)
        design = dict(residual_sd=analysis.fit.residual_sd, arms=4, comparisons=3)
        assert found.need.seeds == seeds_needed(difference=size, **design)
        assert found.need.difference == size
        assert found.need.seeds is None or found.need.seeds > 3


@pytest.mark.parametrize("change", ["batches", "values", "tokens", "settings"])
def test_what_makes_a_comparison_unfair_takes_the_word(change):
    """The arm is much better, and whoever gave it more must not be told so."""
    losses = noisy_losses(EFFECTS)
    if change == "settings":
        losses |= {("pre-swiglu", 0.064, seed): 2.5 for seed in range(3)}
    record = record_of(losses)
    for run in record.runs:
        if run.cell["arm"] == "pre-swiglu" and run.cell["seed"] == 1:
            if change == "batches":
                run.status["pairing"]["last_batch"] = "another"
            if change == "values":
                run.status["pairing"]["initial"]["embedding/table"]["hash"] = "another"
        if run.cell["arm"] == "pre-swiglu" and change == "tokens":
            run.status["result"] |= {"steps": 800, "tokens": 409_600}
    analysis = analyse(record)
    arm = analysis.arm("pre-swiglu")
    assert arm.verdict.word == "unfair comparison"
    said = {
        "batches": "the batches of seed 1 differ",
        "values": "the initial values of embedding/table (seed 1) differ",
        "tokens": "800 steps and 409,600 tokens",
        "settings": "4 settings",
    }[change]
    assert said in arm.verdict.text and arm.objections
    # The estimate stays, and no other arm is touched.
    assert arm.comparison.p_adjusted < 0.05
    assert analysis.arm("post-gelu").verdict.word == "worse"
    assert analysis.arm("post-gelu").objections == ()


def test_a_diverging_arm_is_called_so_in_a_sweep():
    losses = noisy_losses(EFFECTS)
    for rate in RATES:
        losses["pre-swiglu", rate, 0] = losses["pre-swiglu", rate, 1] = "diverged"
    analysis = analyse(record_of(losses))
    assert analysis.arm("pre-swiglu").verdict.word == "diverges more often"
    # It stays in the family, of which Holm's first step counts every comparison.
    tested = [arm.comparison for arm in analysis.arms if arm.comparison]
    first = min(tested, key=lambda comparison: comparison.model.p)
    assert len(tested) == 2 and first.p_adjusted < 1
    np.testing.assert_allclose(first.p_adjusted, 3 * first.model.p, rtol=1e-12)
