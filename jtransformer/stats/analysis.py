"""From a sweep's records to its analysis."""

from typing import Any, NamedTuple

from jtransformer.records import RunRecord, SweepRecord
from jtransformer.stats.additive import (
    AdditiveFit,
    fit_additive,
    holm,
    mean_estimate,
    paired_t,
    resolvable_difference,
)
from jtransformer.stats.estimates import (
    Analysis,
    ArmAnalysis,
    Choice,
    Comparison,
    Count,
    Estimate,
    ModelFit,
)
from jtransformer.stats.selection import by_setting, choose, count, rungs
from jtransformer.stats.verdict import judge


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

    Each scale has its own arm + seed model, since noise differs with size. Holm's correction takes
    the comparisons of all scales as one family: whoever looks through the scales for a finding
    is then wrong at most as often as with a single one.

    Returns:
        One analysis for each scale; one in all of a sweep without scales.
    """
    parts = [_fitted(one) for one in at_scales(record)]
    family = sum(len(part.choices) - 1 for part in parts)
    raw = {name: d.p for part in parts for name, d in part.differences() if d.p is not None}
    adjusted = holm(raw, family)
    return tuple(_judged(part, family, adjusted) for part in parts)


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

    def differences(self) -> list[tuple[str, Estimate]]:
        return list(self.additive.differences.items()) if self.additive else []


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


def _judged(part: _Part, family: int, adjusted: dict[str, float]) -> Analysis:
    manifest, baseline = part.record.manifest, part.record.manifest["baseline"]
    fit, comparisons = _compare(part, family, adjusted)
    arms = []
    for arm in manifest["arms"]:
        name = arm["name"]
        verdict = judge(
            is_baseline=name == baseline,
            runs=part.counts[name],
            baseline_runs=part.counts[baseline],
            choice=part.choices[name],
            comparison=comparisons.get(name),
            seeds=len(manifest["seeds"]),
        )
        runs = [run for run in part.record.runs if run.cell["arm"] == name]
        arms.append(_arm(arm, runs, part.choices[name], comparisons.get(name), verdict))
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
    )


def _compare(
    part: _Part, family: int, adjusted: dict[str, float]
) -> tuple[ModelFit | None, dict[str, Comparison]]:
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
        comparisons=family,
    )
    reference = usable[baseline].validation
    return fit, {
        name: _comparison(
            difference=difference,
            by_seed=_paired_differences(usable[name].validation, reference),
            test=on_test.get(name),
            p_holm=adjusted.get(name),
            resolvable=_resolvable(difference, additive, family),
        )
        for name, difference in additive.differences.items()
    }


def _comparison(*, difference: Estimate, by_seed: dict[int, float], **rest: Any) -> Comparison:
    paired = paired_t(list(by_seed.values())) if by_seed else None
    return Comparison(model=difference, paired=paired, by_seed=by_seed, **rest)


def _paired_differences(arm: dict[int, float], reference: dict[int, float]) -> dict[int, float]:
    return {seed: arm[seed] - reference[seed] for seed in sorted(arm) if seed in reference}


def _resolvable(difference: Estimate, fit: AdditiveFit, comparisons: int) -> float | None:
    if difference.standard_error is None:
        return None
    return resolvable_difference(difference.standard_error, fit.degrees_of_freedom, comparisons)


def _arm(
    arm: dict[str, Any],
    runs: list[RunRecord],
    choice: Choice | None,
    comparison: Comparison | None,
    verdict: Any,
) -> ArmAnalysis:
    counts = count(runs)
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
        comparison=comparison,
        verdict=verdict,
    )
