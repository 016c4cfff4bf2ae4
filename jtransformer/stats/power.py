"""What a number of seeds can show: smallest resolvable difference, seeds needed, noise floor.

All of it is for planning. What a test found it has found, whatever its power was; and the seeds
that an observed difference would need are as uncertain as the difference.

Source: Montgomery, Design and Analysis of Experiments, 10th ed., sec. 2.4 (sample size by the
noncentral t), 2.6 (chi-square interval of a variance) and 4.1 (randomised complete blocks).
"""

import bisect
import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import scipy.special
import scipy.stats

from jtransformer.stats.additive import LEVEL
from jtransformer.stats.estimates import Analysis
from jtransformer.stats.paired import varies

POWER = 0.80
"""The probability with which a difference is to be told, where seeds are asked for."""
MOST_SEEDS = 1000
"""Where the search for seeds needed ends."""
CURVE = (*range(2, 17), 20, 24, 28, 32)
"""The numbers of seeds for which the smallest resolvable difference is given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread:
    """A standard deviation with its 95 % interval, which is not symmetric about it."""

    sd: float
    low: float
    high: float
    degrees_of_freedom: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Need:
    """What the difference of one arm would have taken.

    `resolvable` is the smallest difference that is found with 80 % power, given the arm's seeds:
    `shared_seeds` are those that it has in common with the baseline. `seeds` is how many resolve a
    true difference as large as the observed one, None beyond `MOST_SEEDS`.
    """

    arm: str
    difference: float
    resolvable: float
    shared_seeds: int
    seeds: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Power:
    """What the sweep could have seen, and what others like it could.

    `floor` is the spread of the baseline's loss over its seeds: the noise floor of the task.
    `residual` is what is left of it when a seed's effect on all arms is taken out: differences
    are judged by this, and without it there is nothing further. `curve` gives the smallest
    resolvable difference by number of seeds; it and the seeds needed suppose as many arms and
    comparisons. `margin` is the declared one, `margin_seeds` how many seeds resolve it.
    """

    seeds: int
    floor: Spread | None
    margin: float | None
    residual: Spread | None = None
    comparisons: int = 0
    curve: dict[int, float] = dataclasses.field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    margin_seeds: int | None = None


def power(analysis: Analysis) -> Power | None:
    """Says what the sweep could have seen; None while it has neither noise nor a noise floor."""
    floor, margin = _floor(analysis), analysis.rule.margin
    fit = analysis.fit
    compared = [(arm.name, arm.comparison) for arm in analysis.arms if arm.comparison]
    noisy = [(name, c, c.resolvable) for name, c in compared if c.resolvable is not None]
    # Without a test of any arm, what the residual sd holds is rounding.
    if fit is None or fit.residual_sd is None or not noisy:
        if floor is None:
            return None
        return Power(seeds=len(analysis.seeds), floor=floor, margin=margin)
    design = {
        "residual_sd": fit.residual_sd,
        "arms": len(fit.arms),
        "comparisons": fit.comparisons,
    }
    needs = tuple(
        Need(
            arm=name,
            difference=c.model.value,
            resolvable=resolvable,
            shared_seeds=len(c.by_seed),
            seeds=seeds_needed(difference=c.model.value, **design),
        )
        for name, c, resolvable in noisy
    )
    return Power(
        seeds=len(analysis.seeds),
        floor=floor,
        margin=margin,
        residual=spread(fit.residual_sd, fit.degrees_of_freedom),
        comparisons=fit.comparisons,
        curve={
            seeds: resolvable_at(seeds, **design) for seeds in sorted({*CURVE, len(analysis.seeds)})
        },
        needs=needs,
        margin_seeds=None if margin is None else seeds_needed(difference=margin, **design),
    )


def _floor(analysis: Analysis) -> Spread | None:
    choice = analysis.arm(analysis.baseline).choice
    if choice is None or choice.runs.diverged:
        return None
    return noise_floor(list(choice.validation.values()))


def noise_floor(losses: Sequence[float]) -> Spread | None:
    """Gives the spread of one arm's losses over seeds.

    It holds what seeds do to all arms alike, which pairing by seed takes out, so differences may
    be resolved below it.

    Args:
        losses: Of one arm, one for each seed.

    Returns:
        None of one seed, or of losses that do not vary.
    """
    array = np.asarray(losses, float)
    if not varies(array):
        return None
    return spread(float(array.std(ddof=1)), len(array) - 1)


def spread(sd: float, df: int) -> Spread:
    """Gives a standard deviation its 95 % chi-square interval; the noise has to be normal."""
    low, high = (
        sd * math.sqrt(df / float(scipy.stats.chi2.isf(tail, df)))
        for tail in (LEVEL / 2, 1 - LEVEL / 2)
    )
    return Spread(sd=sd, low=low, high=high, degrees_of_freedom=df)


def resolvable_difference(standard_error: float, df: int, comparisons: int) -> float:
    """Gives the smallest true difference that would be told with 80 % power.

    The test is two-sided t at level 5 % / comparisons (Holm's first step). The answer is
    `standard_error * d`, where d solves `P(T > t(1 - level / 2, df)) = 0.8` for T noncentral t
    with df degrees of freedom and noncentrality d; the far tail adds less than 1e-5 to the power
    there. In a balanced sweep the standard error is `residual_sd * sqrt(2 / seeds)`.
    """
    critical = scipy.stats.t.isf(LEVEL / comparisons / 2, df)
    return standard_error * float(scipy.special.nctdtrinc(df, 1 - POWER, critical))


def resolvable_at(seeds: int, *, residual_sd: float, arms: int, comparisons: int) -> float:
    """Gives the smallest resolvable difference of a balanced sweep before it is run.

    Args:
        seeds: At least two; each arm has all.
        residual_sd: What differs between arms at one seed, from a pilot or an earlier sweep.
        arms: At least two, with the baseline.
        comparisons: Size of the family; `arms - 1`, or the sum of that over scales.
    """
    degrees = (arms - 1) * (seeds - 1)
    return resolvable_difference(residual_sd * math.sqrt(2 / seeds), degrees, comparisons)


def seeds_needed(
    *, difference: float, residual_sd: float, arms: int, comparisons: int, most: int = MOST_SEEDS
) -> int | None:
    """Gives the fewest seeds that resolve a difference.

    Args:
        difference: The true difference to be told with 80 % power, of either sign.
        residual_sd: As for `resolvable_at`.
        arms: As for `resolvable_at`.
        comparisons: As for `resolvable_at`.
        most: Where the search ends.

    Returns:
        The number of seeds, at least two; None if `most` are too few.
    """
    design = {"residual_sd": residual_sd, "arms": arms, "comparisons": comparisons}
    numbers = range(2, most + 1)
    # The smallest resolvable difference falls with every seed.
    first = bisect.bisect_left(
        numbers, True, key=lambda seeds: resolvable_at(seeds, **design) <= abs(difference)
    )
    return numbers[first] if first < len(numbers) else None
