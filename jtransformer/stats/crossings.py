"""Readings of a loss curve between its points: when it reaches a loss, and its loss at a budget.

A curve is read along straight lines between evaluated points. A convex one lies below them, so a
loss read between two points is a little too high, the more so the further they are apart.
"""

from collections.abc import Sequence

import numpy as np

FEWEST_POINTS = 3
"""With fewer evaluated points a curve is a line, and what is read off it is a guess."""


def first_crossing(x: Sequence[float], losses: Sequence[float], target: float) -> float | None:
    """Finds where a curve first comes down to a loss.

    Args:
        x: Increasing; tokens, FLOPs or seconds behind each point.
        losses: At each point.
        target: The loss to be reached.

    Returns:
        Where; the first point if it lies at or below the target already, which is then at most
        too late, and None if no point does.
    """
    for index, loss in enumerate(losses):
        if loss <= target:
            if index == 0:
                return float(x[0])
            above = losses[index - 1]
            share = (above - target) / (above - loss)
            return float(x[index - 1] + share * (x[index] - x[index - 1]))
    return None


def loss_at(x: Sequence[float], losses: Sequence[float], budget: float) -> float | None:
    """Reads a curve at a budget; None before its first point or behind its last."""
    if not x[0] <= budget <= x[-1]:
        return None
    return float(np.interp(budget, x, losses))


def difference_at_equal_budget(
    x: tuple[Sequence[float], Sequence[float]], losses: tuple[Sequence[float], Sequence[float]]
) -> float | None:
    """Subtracts two curves at the largest budget that both have.

    Args:
        x: Budget behind each point of the arm and of the baseline, in one unit.
        losses: At each point of the arm and of the baseline.

    Returns:
        Loss of the arm minus that of the baseline, or None where one of them had no point yet.
    """
    budget = min(x[0][-1], x[1][-1])
    arm, baseline = (loss_at(*curve, budget) for curve in zip(x, losses, strict=True))
    return None if arm is None or baseline is None else arm - baseline
