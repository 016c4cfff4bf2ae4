"""The same question at several scales: how loss falls, and where the differences go.

The fits of single arms are those of `jtransformer.stats.power_law`, the differences are looked at
by themselves in `jtransformer.stats.trend`: a difference of two fits would inherit the faults of
both.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from jtransformer.records import SweepRecord, VerdictRule
from jtransformer.stats.estimates import Analysis, ArmAnalysis, Estimate
from jtransformer.stats.families import adjust
from jtransformer.stats.power_law import Fit, fit, resamples
from jtransformer.stats.selection import is_chosen
from jtransformer.stats.trend import Trend, judged, trend

Axis = Literal["non_embedding_parameters", "parameters", "tokens", "training_flops"]

MARGIN = 0.005
"""Change over the whole ladder that counts as none where the sweep declares no margin."""
STEP = 4
"""Extrapolations go this factor beyond the largest scale, and no further."""
_VARIES = 1.02
_SEED = 0


class Point(NamedTuple):
    """The loss of one seed at one scale, at the arm's choice there."""

    scale: str
    size: float
    seed: int
    loss: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmLadder:
    """An arm at all scales.

    `differences` are those of each scale's analysis. `left_out` says of each scale that has no
    figure why. `fit` is None where `unfitted` says why. `exponent` is the fit's minus the
    baseline's. `trend` is None of the baseline, and where less than two scales can be compared.
    """

    label: str
    points: tuple[Point, ...]
    left_out: dict[str, str]
    differences: dict[str, Estimate]
    fit: Fit | None = None
    unfitted: str | None = None
    exponent: Estimate | None = None
    trend: Trend | None = None

    def losses(self) -> dict[str, dict[int, float]]:
        """Returns the losses by scale and seed."""
        found: dict[str, dict[int, float]] = {}
        for point in self.points:
            found.setdefault(point.scale, {})[point.seed] = point.loss
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ladder:
    """The arms along the scales.

    `sizes` are those of the baseline by scale, the smallest first. A slope between plus and minus
    `tolerance` per doubling adds up to less than `margin` over the whole ladder; `declared` says
    whether the sweep gives that margin. `comparisons` is the family of the trends' correction.
    """

    axis: Axis
    baseline: str
    sizes: dict[str, float]
    arms: tuple[ArmLadder, ...]
    margin: float
    declared: bool
    tolerance: float
    comparisons: int
    complete: bool

    @property
    def beyond(self) -> float:
        """The size up to which lines are drawn on."""
        return STEP * max(self.sizes.values())


def ladder(parts: Sequence[tuple[SweepRecord, Analysis]]) -> Ladder | None:
    """Fits every arm's loss against scale, and how its difference to the baseline goes with it.

    Args:
        parts: Each scale's records and their analysis.

    Returns:
        The ladder; None without two scales that differ in parameters or tokens.
    """
    axis = axis_of(parts)
    if axis is None:
        return None
    first = parts[0][1]
    found = [(_size(axis, *part), part) for part in parts]
    # A scale of which nothing is known yet stands at the end.
    found.sort(key=lambda one: math.inf if one[0] is None else one[0])
    sizes = {str(part[1].scale): size for size, part in found if size is not None}
    arms = [_arm(first.label(arm), axis, [part for _, part in found]) for arm in first.arms]
    baseline = first.label(first.arm(first.baseline))
    margin = MARGIN if first.rule.margin is None else first.rule.margin
    tolerance = margin / math.log2(max(sizes.values()) / min(sizes.values()))
    return Ladder(
        axis=axis,
        baseline=baseline,
        sizes=sizes,
        arms=_with_trends(_with_fits(arms, baseline), baseline, sizes, first.rule, tolerance),
        margin=margin,
        declared=first.rule.margin is not None,
        tolerance=tolerance,
        comparisons=len(arms) - 1,
        complete=all(analysis.runs.complete for _, analysis in parts),
    )


def axis_of(parts: Sequence[tuple[SweepRecord, Analysis]]) -> Axis | None:
    """Chooses what scale is measured in, by what varies between the scales.

    Tokens where they vary alone; training FLOPs where sizes and tokens do. Else parameters: those
    between embeddings and head if they vary (Kaplan et al. 2020, sec. 2.1: with the tables, small
    models do not lie on the line of large ones).
    """
    figures = {axis: [_size(axis, *part) for part in parts] for axis in get_args(Axis)}
    if _vary(figures["parameters"]) and _vary(figures["tokens"]):
        return "training_flops"
    if _vary(figures["parameters"]):
        inner = figures["non_embedding_parameters"]
        return "non_embedding_parameters" if _vary(inner) else "parameters"
    return "tokens" if _vary(figures["tokens"]) else None


def _vary(figures: Sequence[float | None]) -> bool:
    known = [figure for figure in figures if figure is not None]
    return len(known) > 1 and min(known) > 0 and max(known) > _VARIES * min(known)


def _size(axis: Axis, record: SweepRecord, analysis: Analysis) -> float | None:
    """Returns the baseline's figure, or that of the first arm that has one."""
    arms = sorted(analysis.arms, key=lambda arm: arm.name != analysis.baseline)
    found = (_figure(axis, record, arm) for arm in arms)
    return next((figure for figure in found if figure is not None), None)


def _figure(axis: Axis, record: SweepRecord, arm: ArmAnalysis) -> float | None:
    if axis == "parameters":
        return arm.parameters
    if axis == "non_embedding_parameters":
        return arm.non_embedding_parameters
    own = [run for run in record.runs if run.cell["arm"] == arm.name and run.state == "done"]
    tokens = [run.status["result"]["tokens"] for run in own
              if run.status is not None and is_chosen(run, arm.choice)]  # fmt: skip
    if not tokens:
        return None
    per_token = arm.training_flops_per_token if axis == "training_flops" else 1
    return float(np.mean(tokens)) * per_token


def _arm(label: str, axis: Axis, parts: Sequence[tuple[SweepRecord, Analysis]]) -> ArmLadder:
    points, left_out, differences = [], {}, {}
    for record, analysis in parts:
        scale = str(analysis.scale)
        arm = analysis.arm(f"{scale}-{label}")
        size = _figure(axis, record, arm)
        if arm.choice is not None and arm.choice.runs.diverged:
            runs = arm.choice.runs
            left_out[scale] = f"diverges in {runs.diverged} of {runs.planned} runs"
        elif arm.choice is None or not arm.choice.validation or not size:
            left_out[scale] = "has no finished run"
        else:
            points += [Point(scale, size, *one) for one in arm.choice.validation.items()]
            difference = analysis.difference(arm)
            if difference is not None:
                differences[scale] = difference
    return ArmLadder(label=label, points=tuple(points), left_out=left_out, differences=differences)


def _with_fits(arms: Sequence[ArmLadder], baseline: str) -> dict[str, ArmLadder]:
    """Fits the arms; those with the same seeds are resampled together."""
    generator, drawn, found = np.random.default_rng(_SEED), {}, {}
    for arm in arms:
        table, sizes = arm.losses(), {point.scale: point.size for point in arm.points}
        seeds = tuple(sorted(set.intersection(*map(set, table.values())))) if table else ()
        if len(seeds) > 1 and seeds not in drawn:
            drawn[seeds] = resamples(seeds, generator)
        losses = {seed: [by_seed[seed] for by_seed in table.values()] for seed in seeds}
        made = fit(list(sizes.values()), losses, drawn.get(seeds, {}))
        reason = None if isinstance(made, Fit) else made
        made = made if isinstance(made, Fit) else None
        found[arm.label] = dataclasses.replace(arm, fit=made, unfitted=reason)
    reference = found[baseline]
    for label, arm in found.items():
        alike = label != baseline and not arm.left_out and not reference.left_out
        if alike and arm.fit is not None and reference.fit is not None:
            minus = arm.fit.exponent_minus(reference.fit)
            found[label] = dataclasses.replace(arm, exponent=minus)
    return found


def _with_trends(
    arms: dict[str, ArmLadder],
    baseline: str,
    sizes: dict[str, float],
    rule: VerdictRule,
    tolerance: float,
) -> tuple[ArmLadder, ...]:
    reference = arms[baseline].losses()
    others = [label for label in arms if label != baseline]
    found = {label: trend(arms[label].losses(), reference, sizes) for label in others}
    raw = {label: one.slope.p for label, one in found.items() if one and one.slope.p is not None}
    adjusted = adjust(raw, len(others), rule.correction)
    for label, one in found.items():
        if one is not None:
            own = judged(one, arms[label].differences, adjusted.get(label), tolerance)
            arms[label] = dataclasses.replace(arms[label], trend=own)
    return tuple(arms.values())
