"""What a reader must be told of the rule: its names, its family, its intervals, its changes."""

from jtransformer.records import VerdictRule
from jtransformer.report import numbers
from jtransformer.stats import BOOTSTRAP_SEEDS, SIGN_FLIP_SEEDS, Analysis, smallest_p

CORRECTIONS = {"holm": "Holm", "fdr": "FDR"}
"""What a correction is called in a heading."""
_SAID = {
    "holm": "which holds the chance of any false finding under 5 %",
    "fdr": "by Benjamini and Hochberg, which holds the expected share of false findings under 5 %",
}


def correction(analysis: Analysis) -> str:
    """Names the correction of the p values."""
    return CORRECTIONS[analysis.rule.correction]


def family(analysis: Analysis) -> str:
    """Names the comparisons that are corrected together."""
    count = _size(analysis)
    if analysis.scales:
        return (
            f"the {count} comparisons of all {len(analysis.scales)} scales together, each with the "
            "baseline of its own scale"
        )
    return f"the {count} arm{'s' if count != 1 else ''} compared with {analysis.baseline}"


def interval(analysis: Analysis) -> str:
    """Labels the 95 % interval of a difference, with its family where it has one."""
    if analysis.rule.intervals == "unadjusted":
        return "unadjusted"
    return f"simultaneous over {family(analysis)}"


def changes(analysis: Analysis) -> list[str]:
    """Says what was declared otherwise while runs had already finished."""
    earlier = [one.rule for one in analysis.earlier_rules]
    replaced_by = [*earlier, analysis.rule][1:]
    unit = analysis.data["loss_unit"]
    found = []
    for one, new in zip(analysis.earlier_rules, replaced_by, strict=True):
        before, after = _parts(one.rule, unit), _parts(new, unit)
        found += [
            f"{what} changed after {one.finished} runs had finished: from {value} to {after[what]}."
            for what, value in before.items()
            if value != after[what]
        ]
    return found


def _parts(rule: VerdictRule, unit: str) -> dict[str, str]:
    return {
        "The margin was": "none" if rule.margin is None else f"{rule.margin:g} {unit}",
        "The correction was": CORRECTIONS[rule.correction],
        "The intervals shown were": rule.intervals,
    }


def rule(analysis: Analysis) -> list[str]:
    """Explains the words and the p values behind them, one statement each."""
    name = correction(analysis)
    return [
        f"p values are {name}-adjusted over {family(analysis)}, {_SAID[analysis.rule.correction]}; "
        "an arm that could not be tested counts as p = 1. The verdict is “better” or “worse” where "
        "the adjusted p is at most 0.05, whatever an interval says: an unadjusted one can leave "
        "zero out by chance, and a simultaneous one is wider than the test.",
        _margin(analysis),
        "“cannot tell” is not “no difference”. The seeds that it names would find the difference "
        "with 80 % power, if the noise is what it seems here; of an observed difference they are "
        "as uncertain as it is.",
        "“unfair comparison” is said, whatever the losses, where batches or initial values differ "
        "that should be equal, where steps or tokens differ that nobody asked about, and where an "
        "arm was tuned over another number of settings.",
        "“diverges more often” is said where runs of an arm diverge at its best setting and do so "
        "at a higher rate than those of the baseline. Rates have exact 95 % intervals "
        "(Clopper-Pearson, unadjusted); where they overlap, it may be chance.",
        *_resampling(analysis),
    ]


def _margin(analysis: Analysis) -> str:
    margin = analysis.rule.margin
    if margin is None:
        return (
            "No margin is declared, so no arm is called equivalent: nobody has said how small a "
            "difference would not matter."
        )
    return (
        f"“equivalent within margin” is said where two one-sided t tests against the declared "
        f"margin of ±{margin:g} {analysis.data['loss_unit']} have an adjusted p of at most 0.05 "
        f"({correction(analysis)}, over the same comparisons as a family of their own). Where a "
        "difference is told as well, that it does not matter is the verdict and its direction "
        "stands behind it."
    )


def _size(analysis: Analysis) -> int:
    return (len(analysis.arms) - 1) * max(len(analysis.scales), 1)


def _resampling(analysis: Analysis) -> list[str]:
    seeds = len(analysis.seeds)
    notes = []
    if seeds < SIGN_FLIP_SEEDS:
        notes.append(
            f"There is no permutation test: one with {seeds} seeds cannot get below "
            f"p = 2/2^{seeds} = {numbers.p_value(min(smallest_p(seeds), 1.0))}."
        )
    if seeds < BOOTSTRAP_SEEDS:
        notes.append(
            f"There is no bootstrap interval: with fewer than {BOOTSTRAP_SEEDS} seeds even the "
            "bias-corrected one is too short."
        )
    return notes
