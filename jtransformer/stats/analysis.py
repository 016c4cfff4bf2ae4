"""From a sweep's records to its analysis."""

from typing import Any

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
    Estimate,
    ModelFit,
)
from jtransformer.stats.selection import by_setting, choose, count
from jtransformer.stats.verdict import judge


def analyse(record: SweepRecord) -> Analysis:
    """Judges every arm against the baseline; works on a sweep in any state.

    An arm enters the arm + seed model when its chosen setting has a finished run and no diverged
    one. Figures of unfinished arms are provisional, and their verdict says so.
    """
    manifest = record.manifest
    baseline = manifest["baseline"]
    names = [arm["name"] for arm in manifest["arms"]]
    runs = {n: [run for run in record.runs if run.cell["arm"] == n] for n in names}
    choices = {n: choose(runs[n]) for n in names}
    counts = {n: count(runs[n]) for n in names}
    final = {n for n in names if counts[n].complete}
    fit, comparisons = _compare(choices, baseline, final)
    arms = []
    for arm in manifest["arms"]:
        name = arm["name"]
        verdict = judge(
            is_baseline=name == baseline,
            runs=counts[name],
            baseline_runs=counts[baseline],
            choice=choices[name],
            comparison=comparisons.get(name),
            seeds=len(manifest["seeds"]),
        )
        arms.append(_arm(arm, runs[name], choices[name], comparisons.get(name), verdict))
    return Analysis(
        title=manifest["title"],
        question=manifest["question"],
        command=manifest["command"],
        baseline=baseline,
        seeds=tuple(manifest["seeds"]),
        data=manifest["data"],
        runs=count(record.runs),
        arms=tuple(arms),
        fit=fit,
    )


def _compare(
    choices: dict[str, Choice | None], baseline: str, final: set[str]
) -> tuple[ModelFit | None, dict[str, Comparison]]:
    usable = {n: c for n, c in choices.items() if c and c.validation and not c.runs.diverged}
    if baseline not in usable:
        return None, {}
    additive = fit_additive({n: c.validation for n, c in usable.items()}, baseline)
    comparisons = len(choices) - 1
    # Not before every run of an arm is finished: until then its choice may still change.
    tested = {n: c.test for n, c in usable.items() if c.test and n in final}
    on_test = fit_additive(tested, baseline).differences if baseline in tested else {}
    raw = {n: d.p for n, d in additive.differences.items() if d.p is not None}
    adjusted = holm(raw, comparisons)
    fit = ModelFit(
        arms=tuple(usable),
        observations=additive.observations,
        degrees_of_freedom=additive.degrees_of_freedom,
        residual_sd=additive.residual_sd,
        balanced=additive.balanced,
        comparisons=comparisons,
    )
    reference = usable[baseline].validation
    return fit, {
        name: _comparison(
            difference=difference,
            by_seed=_paired_differences(usable[name].validation, reference),
            test=on_test.get(name),
            p_holm=adjusted.get(name),
            resolvable=_resolvable(difference, additive, comparisons),
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
        training_flops_per_token=arm["training_flops_per_token"],
        runs=counts,
        settings=len(by_setting(runs)),
        choice=choice,
        mean=mean_estimate(validation) if validation else None,
        test_mean=mean_estimate(test) if test else None,
        comparison=comparison,
        verdict=verdict,
    )
