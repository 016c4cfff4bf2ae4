"""Divergence as an outcome: how often each arm's runs diverged, and how arms rank within seeds.

A diverged run has no loss, so no mean may hold it: averaging the others would reward an arm for
losing its worst runs. What stands instead is a rate with its exact interval and, for the loss, a
rank within each seed, in which a diverged run comes last.

Rates of two arms are compared by Boschloo's test. How many runs each arm has is fixed by the
design, how many of all runs diverge is not; Fisher's test takes both as given, and is so coarse
that of three runs against three it never comes below p = 0.1. Boschloo orders the tables by
Fisher's p and takes the largest probability over the common rate: never less powerful, and still
exact. Runs at several settings have several rates, which makes a count less spread than the
binomial that interval and test assume (Hoeffding 1956): both then err on the careful side. They
take runs to be independent; where all of a seed's runs diverge together, they claim too much.

Sources: Clopper and Pearson 1934, Biometrika 26, 404-413; Boschloo 1970, Statistica Neerlandica
24(1); Hoeffding 1956, Ann. Math. Statist. 27, 713-721.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.stats

from jtransformer.records import RunRecord, SweepRecord
from jtransformer.stats.additive import LEVEL
from jtransformer.stats.estimates import Analysis, Choice
from jtransformer.stats.families import adjust
from jtransformer.stats.selection import count, is_chosen, is_longest, is_number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rate:
    """How many of the finished runs diverged; `low` and `high` bound the rate at 95 %."""

    diverged: int
    finished: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share that diverged."""
        return self.diverged / self.finished


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmDivergence:
    """How often one arm diverged, and where it stands within each seed.

    `all` counts its runs of all steps, `chosen` those at its chosen setting, `by_value` those at
    each value of each numeric tuned factor; None without a finished run. `p` compares `all` with
    the baseline's and `p_adjusted` adjusts it over the arms; None where either arm is unfinished.
    `ranks` are those at the chosen settings by seed, 1 the lowest loss.
    """

    name: str
    all: Rate | None
    chosen: Rate | None
    by_value: dict[str, dict[float, Rate]]
    p: float | None
    p_adjusted: float | None
    ranks: dict[int, float]
    median_rank: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Divergence:
    """What diverged in a sweep, or at one scale of it.

    `all` counts the runs of all steps and `shorter` those of the shorter rungs of a search by
    halving, None where there are none. `comparisons` is the size of the family that p values
    are adjusted over. `unranked` holds, by arm, the seeds without a finished run at its chosen
    setting.
    """

    all: Rate
    shorter: Rate | None
    arms: tuple[ArmDivergence, ...]
    comparisons: int
    unranked: dict[str, tuple[int, ...]]


def divergence(record: SweepRecord, analysis: Analysis) -> Divergence | None:
    """Counts what diverged and ranks the arms; None while no run of all steps is finished.

    The family of the test are all arms but the baseline at every scale, whether or not they can
    be tested yet. What other scales found is not looked at and counts as p = 1, which can only
    make an adjusted p larger.
    """
    longest = [run for run in record.runs if is_longest(run)]
    total = _rate(longest)
    if total is None:
        return None
    by_arm = {arm.name: [r for r in longest if r.cell["arm"] == arm.name] for arm in analysis.arms}
    p_values = _p_values(by_arm, analysis)
    comparisons = (len(analysis.arms) - 1) * max(len(analysis.scales), 1)
    adjusted = adjust(p_values, comparisons, analysis.rule.correction)
    losses = {arm.name: _losses(by_arm[arm.name], arm.choice) for arm in analysis.arms}
    ranks = ranks_within_seeds(losses)
    arms = []
    for arm in analysis.arms:
        runs = by_arm[arm.name]
        own = {seed: by[arm.name] for seed, by in ranks.items() if arm.name in by}
        arms.append(
            ArmDivergence(
                name=arm.name,
                all=_rate(runs),
                chosen=_rate([run for run in runs if is_chosen(run, arm.choice)]),
                # Of drawn settings hardly two have a value in common.
                by_value={} if analysis.drawn else _rates_by_value(runs),
                p=p_values.get(arm.name),
                p_adjusted=adjusted.get(arm.name),
                ranks=own,
                median_rank=_median(own),
            )
        )
    return Divergence(
        all=total,
        shorter=_rate([run for run in record.runs if not is_longest(run)]),
        arms=tuple(arms),
        comparisons=comparisons,
        unranked={
            name: missing
            for name, own in losses.items()
            if (missing := tuple(seed for seed in analysis.seeds if seed not in own))
        },
    )


def exact_rate(diverged: int, finished: int) -> Rate:
    """Gives a share with its exact 95 % interval (Clopper-Pearson): at least that covers it.

    Args:
        diverged: How many did, of `finished`; at least one finished.
        finished: How many could have.
    """
    interval = scipy.stats.binomtest(diverged, finished).proportion_ci(1 - LEVEL, method="exact")
    return Rate(
        diverged=diverged, finished=finished, low=float(interval.low), high=float(interval.high)
    )


def p_of_rates(one: Rate, other: Rate) -> float:
    """Tests that two rates are equal: the two-sided p of Boschloo's exact test."""
    diverged = [one.diverged, other.diverged]
    finished = [one.finished, other.finished]
    # Where all runs ended alike there is nothing to order the tables by.
    if diverged in ([0, 0], finished):
        return 1.0
    table = [diverged, [n - k for n, k in zip(finished, diverged, strict=True)]]
    return float(scipy.stats.boschloo_exact(table).pvalue)


def final_loss(run: RunRecord, key: str) -> float | None:
    """Returns a final loss, infinite where the run diverged and None where it is not finished."""
    if run.status is None:
        return None
    return run.status["result"][key] if run.state == "done" else math.inf


def ranks_within_seeds(losses: Mapping[str, Mapping[int, float]]) -> dict[int, dict[str, float]]:
    """Ranks the arms within each seed, the lowest loss first; equal losses share their ranks.

    Args:
        losses: By arm and seed; infinite where the run diverged, absent where it is missing.

    Returns:
        By seed and arm, for the seeds that at least two arms have.
    """
    seeds = sorted({seed for by_seed in losses.values() for seed in by_seed})
    found = {}
    for seed in seeds:
        present = {arm: by_seed[seed] for arm, by_seed in losses.items() if seed in by_seed}
        if len(present) > 1:
            ranks = scipy.stats.rankdata(list(present.values()))
            found[seed] = dict(zip(present, ranks.tolist(), strict=True))
    return found


def _rate(runs: Sequence[RunRecord]) -> Rate | None:
    counted = count(runs)
    return exact_rate(counted.diverged, counted.finished) if counted.finished else None


def _rates_by_value(runs: Sequence[RunRecord]) -> dict[str, dict[float, Rate]]:
    tried: dict[str, dict[float, list[RunRecord]]] = {}
    for run in runs:
        for factor, value in run.cell["nuisance"].items():
            if is_number(value):
                tried.setdefault(factor, {}).setdefault(value, []).append(run)
    rates = {
        factor: {value: _rate(own) for value, own in sorted(by_value.items())}
        for factor, by_value in tried.items()
        if len(by_value) > 1
    }
    return {
        factor: {value: rate for value, rate in by_value.items() if rate is not None}
        for factor, by_value in rates.items()
    }


def _p_values(by_arm: Mapping[str, Sequence[RunRecord]], analysis: Analysis) -> dict[str, float]:
    """Tests the finished arms: an unfinished one may lack just the settings that diverge."""
    rates = {
        arm.name: rate
        for arm in analysis.arms
        if arm.runs.complete and (rate := _rate(by_arm[arm.name])) is not None
    }
    reference = rates.pop(analysis.baseline, None)
    if reference is None:
        return {}
    return {name: p_of_rates(rate, reference) for name, rate in rates.items()}


def _losses(runs: Sequence[RunRecord], choice: Choice | None) -> dict[int, float]:
    found = {}
    for run in runs:
        loss = final_loss(run, "validation_nll")
        if loss is not None and is_chosen(run, choice):
            found[run.cell["seed"]] = loss
    return found


def _median(ranks: Mapping[int, float]) -> float | None:
    """Gives the median of the ranks; one seed alone has none."""
    return float(np.median(list(ranks.values()))) if len(ranks) > 1 else None
