"""How fast arms reach the baseline's loss, and how they compare at equal compute and equal time.

Differences elsewhere are at equal steps, so at equal tokens. An arm that costs more per token can
win there and lose here. Everything is read off the validation curves of the chosen settings, by
seed and paired; a run that never reaches the baseline's loss is counted as such and never averaged
as if it had.

Where the learning rate falls to the end of a run, the middle of a longer run is not the end of a
shorter one: it has not cooled down. Readings between the ends then put the arm that is cut short
at a disadvantage (Hoffmann et al. 2022, appendix B), and say so.

Source: Hoffmann et al. 2022, https://arxiv.org/abs/2203.15556.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas

from jtransformer.records import RunRecord, SweepRecord
from jtransformer.stats.crossings import (
    FEWEST_POINTS,
    difference_at_equal_budget,
    first_crossing,
)
from jtransformer.stats.estimates import Analysis, ArmAnalysis, Estimate
from jtransformer.stats.paired import mean_estimate, paired_t
from jtransformer.stats.selection import is_chosen

UNENDING = ("constant", "warmup_inverse_sqrt", "noam")
"""Schedules of which the middle of a long run is the end of a short one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenRatio:
    """Tokens until the baseline's final loss, as a share of those that the baseline needed.

    `by_seed` is None where a seed never reached it. `mean` is the geometric mean with its 95 % t
    interval of the logarithms, where all reached it. `median` counts the others as slower than
    all; it is at least that large where `is_bound`.
    """

    by_seed: dict[int, float | None]
    mean: Estimate | None
    median: float
    is_bound: bool

    @property
    def reached(self) -> int:
        """How many seeds reached the loss."""
        return sum(ratio is not None for ratio in self.by_seed.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmSpeed:
    """One arm's readings; differences are its loss minus the baseline's, paired by seed.

    `flops_ratio` is that of training FLOPs per token. A difference is None where a run diverged,
    or could not be read.
    """

    name: str
    flops_ratio: float
    tokens: TokenRatio
    equal_tokens: Estimate | None
    equal_flops: Estimate | None
    equal_seconds: Estimate | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speed:
    """What can be read off the curves.

    `points` is how many evaluated points the shortest curve has; with too few `arms` is empty.
    `clock` says why seconds are not compared, None where they are. `decays` says that the
    learning rate of a run depends on where it ends. `early` are arms of which a seed was at the
    baseline's final loss at its first point already, `waiting` those that are not finished.
    `curves` has a row per evaluated point of the finished arms: arm, seed, tokens, flops, nll.
    """

    points: int
    arms: tuple[ArmSpeed, ...]
    clock: str | None
    decays: bool
    early: tuple[str, ...]
    waiting: tuple[str, ...]
    curves: pandas.DataFrame


class _Curve(NamedTuple):
    """A run's validation curve.

    Attributes:
        tokens: Behind each point.
        losses: At each point.
        flops_per_token: Of training.
        seconds_per_token: Of training; None where it was not measured.
        diverged: Whether the run did.
    """

    tokens: list[float]
    losses: list[float]
    flops_per_token: float
    seconds_per_token: float | None
    diverged: bool


Pairs = Mapping[int, tuple[_Curve, _Curve]]
"""An arm's and the baseline's curve by seed."""


def speed(record: SweepRecord, analysis: Analysis) -> Speed | None:
    """Reads the curves of the finished arms.

    None while the baseline is not finished, or where it diverged at its setting, and while no
    other arm is finished.
    """
    done = [arm for arm in analysis.arms if arm.runs.complete and arm.choice is not None]
    baseline = analysis.arm(analysis.baseline)
    if len(done) < 2 or baseline not in done or baseline.mean is None:
        return None
    runs = {
        arm.name: [r for r in record.runs if r.cell["arm"] == arm.name and is_chosen(r, arm.choice)]
        for arm in done
    }
    curves = {arm.name: _curves(runs[arm.name], arm) for arm in done}
    every = [curve for by_seed in curves.values() for curve in by_seed.values()]
    table = pandas.DataFrame(
        [
            (name, seed, tokens, tokens * curve.flops_per_token, loss)
            for name, by_seed in curves.items()
            for seed, curve in by_seed.items()
            for tokens, loss in zip(curve.tokens, curve.losses, strict=True)
        ],
        columns=pandas.Index(["arm", "seed", "tokens", "flops", "nll"]),
    )
    points = min(len(curve.tokens) for curve in every if not curve.diverged)
    clock = _why_no_clock([run for own in runs.values() for run in own])
    reference = curves.pop(baseline.name)
    pairs: dict[str, Pairs] = {
        name: {seed: (own[seed], reference[seed]) for seed in own if seed in reference}
        for name, own in curves.items()
    }
    readable = pairs if points >= FEWEST_POINTS else {}
    return Speed(
        points=points,
        arms=tuple(_read(name, own, clock is None) for name, own in readable.items() if own),
        clock=clock,
        decays=_decays(record),
        early=tuple(name for name, own in readable.items() if any(map(_is_early, own.values()))),
        waiting=tuple(arm.name for arm in analysis.arms if arm not in done),
        curves=table,
    )


def token_ratio(
    arm: Mapping[int, float | None], baseline: Mapping[int, float], budget: Mapping[int, float]
) -> TokenRatio:
    """Compares the tokens that an arm needed with those that the baseline did.

    Args:
        arm: Tokens until the baseline's final loss by seed; None where it was not reached.
        baseline: The same of the baseline itself.
        budget: All tokens of the arm's run: a lower bound where it did not reach the loss.
    """
    by_seed = {s: None if tokens is None else tokens / baseline[s] for s, tokens in arm.items()}
    reached = [ratio for ratio in by_seed.values() if ratio is not None]
    logs = mean_estimate(np.log(reached).tolist()) if len(reached) == len(by_seed) else None
    median = float(np.median([math.inf if ratio is None else ratio for ratio in by_seed.values()]))
    least = [budget[s] / baseline[s] if ratio is None else ratio for s, ratio in by_seed.items()]
    return TokenRatio(
        by_seed=by_seed,
        mean=None if logs is None else _exponential(logs),
        median=median if math.isfinite(median) else float(np.median(least)),
        is_bound=not math.isfinite(median),
    )


def _exponential(logs: Estimate) -> Estimate:
    """Turns an estimate of a logarithm into one of the figure itself."""
    low, high = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
    df = logs.degrees_of_freedom
    return Estimate(value=math.exp(logs.value), low=low, high=high, degrees_of_freedom=df)


def _curves(runs: Sequence[RunRecord], arm: ArmAnalysis) -> dict[int, _Curve]:
    curves = {}
    for run in runs:
        assert run.status is not None
        rows = [row for row in run.metrics if row["validation_nll"] is not None]
        pace = run.status["timing"].get("tokens_per_second")
        curves[run.cell["seed"]] = _Curve(
            tokens=[row["tokens"] for row in rows],
            losses=[row["validation_nll"] for row in rows],
            flops_per_token=arm.training_flops_per_token,
            seconds_per_token=1 / pace if pace else None,
            diverged=run.state == "diverged",
        )
    return curves


def _read(name: str, pairs: Pairs, has_clock: bool) -> ArmSpeed:
    first, reference = next(iter(pairs.values()))
    return ArmSpeed(
        name=name,
        flops_ratio=first.flops_per_token / reference.flops_per_token,
        tokens=token_ratio(
            {seed: _reaching(arm, base.losses[-1]) for seed, (arm, base) in pairs.items()},
            {seed: _reaching_itself(base) for seed, (_, base) in pairs.items()},
            # One that diverged would not have come there within the tokens of the baseline.
            {s: (base if arm.diverged else arm).tokens[-1] for s, (arm, base) in pairs.items()},
        ),
        equal_tokens=_difference(pairs, lambda curve: 1.0),
        equal_flops=_difference(pairs, lambda curve: curve.flops_per_token),
        equal_seconds=_difference(pairs, lambda curve: curve.seconds_per_token)
        if has_clock
        else None,
    )


def _reaching(curve: _Curve, target: float) -> float | None:
    return None if curve.diverged else first_crossing(curve.tokens, curve.losses, target)


def _reaching_itself(baseline: _Curve) -> float:
    """Returns when the baseline first had its final loss.

    That may be before its end: counted from its end, an arm with the same curve would be faster.
    """
    tokens = _reaching(baseline, baseline.losses[-1])
    assert tokens is not None
    return tokens


def _is_early(pair: tuple[_Curve, _Curve]) -> bool:
    arm, baseline = pair
    return not arm.diverged and arm.losses[0] <= baseline.losses[-1]


def _difference(pairs: Pairs, cost: Callable[[_Curve], float | None]) -> Estimate | None:
    """Compares at the largest budget that both curves have, a budget being tokens times a cost."""
    found = []
    for arm, baseline in pairs.values():
        costs = cost(arm), cost(baseline)
        if arm.diverged or costs[0] is None or costs[1] is None:
            return None
        x = [token * costs[0] for token in arm.tokens], [t * costs[1] for t in baseline.tokens]
        found.append(difference_at_equal_budget(x, (arm.losses, baseline.losses)))
    usable = [difference for difference in found if difference is not None]
    return paired_t(usable) if len(usable) == len(found) else None


def _why_no_clock(runs: Sequence[RunRecord]) -> str | None:
    """Says why seconds of these runs cannot be compared; None where they can."""
    for what, key in (("devices", "device_kind"), ("modes", "mode")):
        seen = {(run.environment or {}).get(key) for run in runs}
        if None in seen:
            return f"the {what} of some runs are not recorded"
        if len(seen) > 1:
            return f"the runs are of different {what} ({', '.join(sorted(map(str, seen)))})"
    if not all(run.status and run.status["timing"].get("tokens_per_second") for run in runs):
        return "the speed of some runs is not recorded"
    return None


def _decays(record: SweepRecord) -> bool:
    base = record.manifest["base"]
    specs = [arm.get("spec", base) for arm in record.manifest["arms"]]
    return not {spec.get("schedule", {}).get("kind") for spec in specs} <= set(UNENDING)
