"""The arm + seed model and its companions: numbers in, estimates out.

One loss per arm and seed is modelled as `y[arm, seed] = arm effect + seed effect + noise`. A seed
fixes the data order and the shared initial values, so its effect is common to the arms and is
taken out; the noise is pooled over all arms, which is what makes three seeds useful: six arms
leave (6 - 1)(3 - 1) = 10 residual degrees of freedom where one paired t has 2.

Source: Montgomery, Design and Analysis of Experiments, 10th ed., sec. 4.1 (randomised complete
blocks); Holm 1979, Scand. J. Statist. 6, 65-70.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.special
import scipy.stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.multitest import multipletests

from jtransformer.stats.estimates import Estimate

Losses = Mapping[str, Mapping[int, float]]
"""Loss by arm and seed; seeds may be missing."""

LEVEL = 0.05
POWER = 0.80
# Relative size below which a spread is rounding, not noise: losses are stored with 16 digits.
_ROUNDING = 1e-10


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditiveFit:
    """Differences to the baseline and the noise they are judged by.

    `differences` lacks the arms that share no seed, directly or through others, with the baseline.
    """

    differences: dict[str, Estimate]
    observations: int
    degrees_of_freedom: int
    residual_sd: float | None
    balanced: bool


def fit_additive(losses: Losses, baseline: str) -> AdditiveFit:
    """Fits arm + seed by ordinary least squares and contrasts every arm with the baseline.

    Missing seeds are allowed: least squares then compares arms on what they share. Without
    residual degrees of freedom, or where the residuals are rounding alone, the differences carry
    no interval.

    Args:
        losses: Nats per byte by arm and seed; every arm has at least one seed.
        baseline: The arm that the others are compared with; one of `losses`.

    Returns:
        The fit; a negative difference means a lower loss than the baseline's.
    """
    connected = _connected(losses, baseline)
    arms = list(connected)
    seeds = sorted({seed for by_seed in connected.values() for seed in by_seed})
    cells = [(arm, seed) for arm in arms for seed in connected[arm]]
    y = np.array([connected[arm][seed] for arm, seed in cells])
    # One column per arm and one per seed but the first.
    design = np.array(
        [[a == arm for a in arms] + [s == seed for s in seeds[1:]] for arm, seed in cells], float
    )
    model = OLS(y, design).fit()
    df = round(model.df_resid)
    sd = math.sqrt(model.ssr / df) if df > 0 else None
    noisy = sd is not None and sd > _ROUNDING * np.abs(y).max()
    differences = {}
    for arm in arms:
        if arm == baseline:
            continue
        contrast = np.zeros(design.shape[1])
        contrast[arms.index(arm)], contrast[arms.index(baseline)] = 1, -1
        differences[arm] = _contrast(model, contrast, df if noisy else None)
    return AdditiveFit(
        differences=differences,
        observations=len(y),
        degrees_of_freedom=df,
        residual_sd=sd,
        balanced=len(y) == len(arms) * len(seeds),
    )


def _connected(losses: Losses, baseline: str) -> Losses:
    """Keeps the arms that share a seed with the baseline, directly or through other arms.

    The others cannot be compared with it: their difference would be one of seeds as well.
    """
    arms, seeds = {baseline}, set(losses[baseline])
    while more := {arm for arm in losses if arm not in arms and seeds & set(losses[arm])}:
        arms |= more
        seeds |= {seed for arm in more for seed in losses[arm]}
    return {arm: by_seed for arm, by_seed in losses.items() if arm in arms}


def _contrast(model, contrast: np.ndarray, df: int | None) -> Estimate:
    value = float(contrast @ model.params)
    if df is None:
        return Estimate(value=value)
    test = model.t_test(contrast)
    low, high = (float(bound) for bound in test.conf_int(alpha=LEVEL)[0])
    return Estimate(
        value=value,
        standard_error=float(np.squeeze(test.sd)),
        low=low,
        high=high,
        degrees_of_freedom=df,
        p=float(np.squeeze(test.pvalue)),
    )


def mean_estimate(values: Sequence[float]) -> Estimate:
    """Averages values and gives the one-sample t interval.

    One value, or values that do not vary, have no interval.
    """
    array = np.asarray(values, float)
    mean = float(array.mean())
    if not _varies(array):
        return Estimate(value=mean)
    interval = scipy.stats.ttest_1samp(array, 0.0).confidence_interval(1 - LEVEL)
    return Estimate(
        value=mean,
        standard_error=float(scipy.stats.sem(array)),
        low=float(interval.low),
        high=float(interval.high),
        degrees_of_freedom=len(array) - 1,
    )


def paired_t(differences: Sequence[float]) -> Estimate:
    """Tests paired differences by themselves: their mean, its interval and the two-sided p."""
    mean = mean_estimate(differences)
    if mean.standard_error is None:
        return mean
    p = 2 * scipy.stats.t.sf(abs(mean.value / mean.standard_error), len(differences) - 1)
    return dataclasses.replace(mean, p=float(p))


def _varies(array: np.ndarray) -> bool:
    if len(array) < 2:
        return False
    return bool(np.std(array, ddof=1) > _ROUNDING * max(np.abs(array).max(), 1.0))


def holm(p_values: Mapping[str, float], comparisons: int) -> dict[str, float]:
    """Adjusts p values so that the chance of any false finding stays under 5 %.

    Args:
        p_values: Raw p by arm, for the arms that could be tested.
        comparisons: Size of the family as planned. Arms that could not be tested (diverged, not
            finished) count as p = 1, so that the family does not depend on the outcome.
    """
    if not p_values:
        return {}
    padded = [*p_values.values(), *[1.0] * (comparisons - len(p_values))]
    adjusted = np.asarray(multipletests(padded, alpha=LEVEL, method="holm")[1])
    return {arm: float(p) for arm, p in zip(p_values, adjusted, strict=False)}


def resolvable_difference(standard_error: float, df: int, comparisons: int) -> float:
    """Gives the smallest true difference that would be told with 80 % power.

    The test is two-sided t at level 5 % / comparisons (Holm's first step). The answer is
    `standard_error * d`, where d solves `P(T > t(1 - level / 2, df)) = 0.8` for T noncentral t
    with df degrees of freedom and noncentrality d; the far tail adds less than 1e-5 to the power
    there. In a balanced sweep the standard error is `residual_sd * sqrt(2 / seeds)`.
    """
    critical = scipy.stats.t.isf(LEVEL / comparisons / 2, df)
    return standard_error * float(scipy.special.nctdtrinc(df, 1 - POWER, critical))
