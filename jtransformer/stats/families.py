"""Several comparisons at once: adjusted p values and intervals that hold together.

Sources: Holm 1979, Scand. J. Statist. 6, 65-70; Benjamini and Hochberg 1995, J. R. Statist. Soc.
B 57, 289-300.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import scipy.stats
from statsmodels.stats.multitest import multipletests

from jtransformer.stats.additive import LEVEL
from jtransformer.stats.estimates import Estimate

Correction = Literal["holm", "fdr"]
"""How p values of many comparisons are adjusted: Holm 1979, or Benjamini and Hochberg 1995."""


def adjust(
    p_values: Mapping[str, float], comparisons: int, correction: Correction
) -> dict[str, float]:
    """Adjusts p values for how many were looked at.

    Args:
        p_values: Raw p by arm, for the arms that could be tested.
        comparisons: Size of the family as planned. Arms that could not be tested (diverged, not
            finished) count as p = 1, so that the family does not depend on the outcome.
        correction: "holm" holds the chance of any false finding under 5 %; "fdr" (Benjamini and
            Hochberg) the expected share of false ones among the findings. All arms have the
            baseline in common, so their tests lean the same way, and for those the latter holds.

    Raises:
        ValueError: If the family is smaller than what was tested, or the correction is unknown.
    """
    if correction not in ("holm", "fdr"):
        raise ValueError(f"correction must be 'holm' or 'fdr', got {correction!r}.")
    if comparisons < len(p_values):
        raise ValueError(
            f"comparisons must count every p value, got comparisons={comparisons} for "
            f"{len(p_values)} p values; count the arms that are compared with the baseline."
        )
    if not p_values:
        return {}
    padded = np.array([*p_values.values(), *[1.0] * (comparisons - len(p_values))])
    if correction == "holm":
        adjusted = _holm(padded)
    else:
        adjusted = np.asarray(multipletests(padded, alpha=LEVEL, method="fdr_bh")[1])
    return {arm: float(p) for arm, p in zip(p_values, adjusted, strict=False)}


def _holm(p_values: np.ndarray) -> np.ndarray:
    # That of statsmodels 0.15 collects all garbage at each call: a tenth of a second.
    order = np.argsort(p_values)
    steps = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(steps, 1)
    return adjusted


def simultaneous(estimate: Estimate, comparisons: int) -> tuple[float, float] | None:
    """Widens a t interval so that those of a whole family hold at once in 95 % of sweeps.

    By Bonferroni, each at level 5 % / comparisons. The arms share a baseline and the noise, so
    all hold together somewhat more often: in 96 % of sweeps of six arms.

    Args:
        estimate: A difference.
        comparisons: Size of the family as planned.

    Returns:
        The interval, or None where the estimate has none of its own.
    """
    if estimate.standard_error is None or estimate.degrees_of_freedom is None:
        return None
    half = estimate.standard_error * float(
        scipy.stats.t.isf(LEVEL / comparisons / 2, estimate.degrees_of_freedom)
    )
    return estimate.value - half, estimate.value + half
