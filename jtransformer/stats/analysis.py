"""From a sweep's records to its analysis."""

from typing import Any, NamedTuple

from jtransformer.records import RunRecord, SweepRecord, earlier_rules, verdict_rule
from jtransformer.stats.additive import AdditiveFit, fit_additive
from jtransformer.stats.comparison import Family, compare, family
from jtransformer.stats.estimates import (
    Analysis,
    ArmAnalysis,
    Choice,
    Comparison,
    Count,
    Estimate,
    ModelFit,
    Verdict,
)
from jtransformer.stats.fairness import unfair_reasons
from jtransformer.stats.paired import mean_estimate
from jtransformer.stats.selection import by_setting, choose, count, rungs
from jtransformer.stats.verdict import Case, judge


def analyse(record: SweepRecord) -> Analysis:
    """Judges every arm against the baseline; works on a sweep in any state.

    An arm enters the arm + seed model when its chosen setting has a finished run and no diverged
    one. Figures of unfinished arms are provisional, and their verdict says so.

    Raises:
        ValueError: If the sweep has several scales; `analyse_scales` judges each.
    """
    if scales := record.manifest.get("scales"):
        raise ValueError(
            f"the sweep has the scales {', '.join(scales)}, and no arm of one can be compared with "
            "an arm of another; use analyse_scales."
        )
    (analysis,) = analyse_scales(record)
    return analysis


def analyse_scales(record: SweepRecord) -> tuple[Analysis, ...]:
    """Judges the arms of each scale against the baseline at that scale.

    Each scale has its own arm + seed model, since noise differs with size. The correction takes the
    comparisons of all scales as one family: whoever looks through the scales for a finding
    is then wrong at most as often as with a single one.

    Returns:
        One analysis for each scale; one in all of a sweep without scales.
    """
    parts = [_fitted(one) for one in at_scales(record)]
    differences = {arm: one for part in parts for arm, one in part.differences().items()}
    comparisons = sum(len(part.choices) - 1 for part in parts)
    among = family(differences, comparisons, verdict_rule(record.manifest))
    return tuple(_judged(part, among) for part in parts)


def at_scales(record: SweepRecord) -> list[SweepRecord]:
    """Parts a sweep into one for each scale, as if each had been run alone."""
    manifest = record.manifest
    if not manifest.get("scales"):
        return [record]
    parts = []
    for scale in manifest["scales"]:
        arms = [arm for arm in manifest["arms"] if arm["scale"] == scale]
        names = {arm["name"] for arm in arms}
        runs = tuple(run for run in record.runs if run.cell["arm"] in names)
        own = {"arms": arms, "cells": [run.cell for run in runs], "baseline": arms[0]["baseline"]}
        parts.append(SweepRecord(manifest | own, runs))
    return parts


class _Part(NamedTuple):
    """The arms of one scale, their noise estimated and not yet judged."""

    record: SweepRecord
    choices: dict[str, Choice | None]
    counts: dict[str, Count]
    usable: dict[str, Choice]
    additive: AdditiveFit | None

    def differences(self) -> dict[str, Estimate]:
        return self.additive.differences if self.additive else {}


def _fitted(record: SweepRecord) -> _Part:
    baseline = record.manifest["baseline"]
    names = [arm["name"] for arm in record.manifest["arms"]]
    runs = {n: [run for run in record.runs if run.cell["arm"] == n] for n in names}
    drawn = record.manifest.get("search", {}).get("trials") is not None
    choices = {n: choose(runs[n], "draws" if drawn else "grid") for n in names}
    usable = {n: c for n, c in choices.items() if c and c.validation and not c.runs.diverged}
    losses = {n: c.validation for n, c in usable.items()}
    additive = fit_additive(losses, baseline) if baseline in usable else None
    return _Part(record, choices, {n: count(runs[n]) for n in names}, usable, additive)


def _judged(part: _Part, among: Family) -> Analysis:
    manifest, baseline = part.record.manifest, part.record.manifest["baseline"]
    fit, comparisons = _compare(part, among)
    unfair = unfair_reasons(part.record)
    arms = []
    for arm in manifest["arms"]:
        name = arm["name"]
        case = Case(
            is_baseline=name == baseline,
            runs=part.counts[name],
            baseline_runs=part.counts[baseline],
            choice=part.choices[name],
            baseline_choice=part.choices[baseline],
            objections=tuple(unfair[name]),
            comparison=comparisons.get(name),
            seeds=len(manifest["seeds"]),
            margin=among.rule.margin,
        )
        runs = [run for run in part.record.runs if run.cell["arm"] == name]
        arms.append(_arm(arm, runs, case, judge(case)))
    return Analysis(
        title=manifest["title"],
        question=manifest["question"],
        command=manifest["command"],
        baseline=baseline,
        seeds=tuple(manifest["seeds"]),
        data=manifest["data"],
        match=manifest["match"],
        runs=count(part.record.runs),
        arms=tuple(arms),
        fit=fit,
        scale=manifest["arms"][0].get("scale"),
        scales=manifest.get("scales", {}),
        search=manifest.get("search", {}),
        stages=tuple(manifest.get("stages", ())),
        rungs=rungs([run for run in part.record.runs if run.cell["arm"] == baseline]),
        rule=among.rule,
        earlier_rules=earlier_rules(manifest),
    )


def _compare(part: _Part, among: Family) -> tuple[ModelFit | None, dict[str, Comparison]]:
    usable, additive, baseline = part.usable, part.additive, part.record.manifest["baseline"]
    if additive is None:
        return None, {}
    # Not before every run of an arm is finished: until then its choice may still change.
    tested = {n: c.test for n, c in usable.items() if c.test and part.counts[n].complete}
    on_test = fit_additive(tested, baseline).differences if baseline in tested else {}
    fit = ModelFit(
        arms=tuple(usable),
        observations=additive.observations,
        degrees_of_freedom=additive.degrees_of_freedom,
        residual_sd=additive.residual_sd,
        balanced=additive.balanced,
        comparisons=among.comparisons,
    )
    reference = usable[baseline].validation
    return fit, {
        name: compare(
            name,
            difference,
            _paired_differences(usable[name].validation, reference),
            test=on_test.get(name),
            fit=fit,
            among=among,
        )
        for name, difference in additive.differences.items()
    }


def _paired_differences(arm: dict[int, float], reference: dict[int, float]) -> dict[int, float]:
    return {seed: arm[seed] - reference[seed] for seed in sorted(arm) if seed in reference}


def _arm(arm: dict[str, Any], runs: list[RunRecord], case: Case, verdict: Verdict) -> ArmAnalysis:
    counts, choice = case.runs, case.choice
    validation, test = [], []
    if choice is not None and not choice.runs.diverged:
        validation = list(choice.validation.values())
        # The test split is read once: not before the arm's choice is final.
        test = list(choice.test.values()) if counts.complete else []
    return ArmAnalysis(
        name=arm["name"],
        factors=arm["factors"],
        matched=arm["matched"],
        parameters=arm["parameters"],
        components=arm["components"],
        residual=arm["residual"],
        # Sweeps of earlier versions have that of the parameters alone.
        mismatches=arm.get("mismatches", {"parameters": arm["residual"]}),
        training_flops_per_token=arm["training_flops_per_token"],
        runs=counts,
        settings=len(by_setting(runs)),
        choice=choice,
        mean=mean_estimate(validation) if validation else None,
        test_mean=mean_estimate(test) if test else None,
        comparison=case.comparison,
        objections=case.objections,
        verdict=verdict,
    )
