"""Where an arm's difference to the baseline goes as the scale grows.

Each seed's paired differences are regressed on the logarithm of the scale, and the slopes of the
seeds are averaged with a t interval. That interval is exact for normal noise however a seed's
scales hang together, where one regression over all runs would take them for independent; with every
seed at every scale its slope is that of the model with a random line for each seed. Scales weigh
alike, whatever their noise.

Source: Matthews et al. 1990, BMJ 300, 230-235 (one summary for each series).
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from jtransformer.stats.additive import LEVEL
from jtransformer.stats.estimates import Estimate
from jtransformer.stats.paired import mean_estimate, paired_t

TrendWord = Literal["grows", "shrinks", "vanishes", "reverses", "holds", "cannot tell"]

Losses = Mapping[str, Mapping[int, float]]
"""By scale and seed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trend:
    """How an arm's difference to the baseline goes with scale.

    `slope` is per doubling of the scale; its p is raw, `p_adjusted` over all arms. `sizes` are
    those of the baseline, `by_seed` the paired differences there.
    """

    word: TrendWord
    slope: Estimate
    p_adjusted: float | None
    scales: tuple[str, ...]
    sizes: tuple[float, ...]
    by_seed: dict[int, tuple[float, ...]]

    def at(self, sizes: Sequence[float]) -> list[Estimate]:
        """Returns the difference on the seeds' lines at every size, with its t interval."""
        slopes, starts = _lines(self.sizes, self.by_seed)
        return [mean_estimate((slopes * math.log2(size) + starts).tolist()) for size in sizes]


def trend(own: Losses, baseline: Losses, sizes: Mapping[str, float]) -> Trend | None:
    """Averages the slopes of the seeds that both arms have at every scale that both have.

    Args:
        own: Of the arm.
        baseline: Of the baseline.
        sizes: Of the baseline, the smallest first.

    Returns:
        The trend, not yet judged; None without two different sizes and a seed.
    """
    shared = [scale for scale in sizes if scale in own and scale in baseline]
    at = [sizes[scale] for scale in shared]
    if len(set(at)) < 2:
        return None
    seeds = sorted(set.intersection(*(set(own[s]) & set(baseline[s]) for s in shared)))
    by_seed = {seed: tuple(own[s][seed] - baseline[s][seed] for s in shared) for seed in seeds}
    if not by_seed:
        return None
    slopes, _ = _lines(at, by_seed)
    return Trend(
        word="cannot tell",
        slope=paired_t(slopes.tolist()),
        p_adjusted=None,
        scales=tuple(shared),
        sizes=tuple(at),
        by_seed=by_seed,
    )


def _lines(
    sizes: Sequence[float], by_seed: Mapping[int, Sequence[float]]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the slope of each seed's line over log2 of the size, and where it starts."""
    slopes, starts = np.polyfit(np.log2(sizes), np.array(list(by_seed.values())).T, 1)
    return slopes, starts


def judged(
    found: Trend, differences: Mapping[str, Estimate], p_adjusted: float | None, tolerance: float
) -> Trend:
    """Gives a trend its word.

    Args:
        found: The trend.
        differences: To the baseline, by scale.
        p_adjusted: Of its slope.
        tolerance: Slope per doubling that counts as none.
    """
    ends = differences.get(found.scales[0]), differences.get(found.scales[-1])
    word = trend_word(found.slope, p_adjusted, ends, tolerance)
    return dataclasses.replace(found, word=word, p_adjusted=p_adjusted)


def trend_word(
    slope: Estimate,
    p_adjusted: float | None,
    ends: tuple[Estimate | None, Estimate | None],
    tolerance: float,
) -> TrendWord:
    """Says where a difference goes as the scale grows.

    It holds if the slope's interval lies within the tolerance. Else, if the slope can be told from
    0 over all arms, what the difference's interval at the largest scale shows decides: on the side
    of 0 that the slope points to, it grows, or reverses if it was on the other at the smallest
    scale; on the side that the slope leaves, it shrinks. With 0 inside it vanishes if at the
    smallest scale it was on the side that the slope leaves, and grows if on the other.

    Args:
        slope: Per doubling.
        p_adjusted: Of the slope.
        ends: The difference at the smallest and at the largest scale.
        tolerance: Slope that counts as none.
    """
    if slope.low is None or slope.high is None:
        return "cannot tell"
    if -tolerance <= slope.low and slope.high <= tolerance:
        return "holds"
    if p_adjusted is None or p_adjusted > LEVEL:
        return "cannot tell"
    direction = 1 if slope.value > 0 else -1
    # 1 on the side that the slope points to, -1 on the one that it leaves, 0 for neither.
    first, last = (direction * _side(end) for end in ends)
    if last == 1:
        return "reverses" if first == -1 else "grows"
    if last == -1:
        return "shrinks"
    by_first: dict[int, TrendWord] = {1: "grows", -1: "vanishes", 0: "cannot tell"}
    return by_first[first]


def _side(difference: Estimate | None) -> int:
    if difference is None or difference.low is None or difference.high is None:
        return 0
    return (difference.low > 0) - (difference.high < 0)
