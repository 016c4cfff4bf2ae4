"""The smallest difference that the seeds of a sweep can show, before it is run."""

import math
from pathlib import Path
from typing import Any, NamedTuple

from jtransformer import records
from jtransformer.spec import SpecError

MORE_SEEDS = (2, 3, 5, 8, 16)
"""For how many seeds it is said as well."""


class Noise(NamedTuple):
    """What differs between runs of one arm beyond what a seed does to all arms alike.

    Attributes:
        sd: Its standard deviation, in the unit of the loss.
        origin: Where it is known from.
    """

    sd: float
    origin: str


def pilot_noise(workdir: Path) -> Noise:
    """Reads the noise of an earlier sweep, its residual sd; over scales, their mean by variance.

    Raises:
        SpecError: If there is no sweep, or its finished runs leave no noise to estimate.
        DamagedRecord: If a file of it is damaged.
    """
    from jtransformer import stats

    try:
        sweep = records.load_sweep(workdir)
    except FileNotFoundError as error:
        raise SpecError("--pilot", str(error)) from None
    fits = [analysis.fit for analysis in stats.analyse_scales(sweep)]
    known = [(fit.residual_sd, fit.degrees_of_freedom) for fit in fits if fit and fit.residual_sd]
    if not known:
        raise SpecError("--pilot", f"= {str(workdir)!r} has no noise to estimate, which takes two "
                        "finished seeds of two arms; give --noise.")  # fmt: skip
    variance = sum(sd**2 * df for sd, df in known) / sum(df for _, df in known)
    return Noise(math.sqrt(variance), f"the residual sd of {workdir}")


def resolvable(noise: Noise | None, *, arms: list[int], seeds: int) -> dict[str, Any]:
    """Says what seeds can resolve, by the model of the page: loss = arm + seed + noise.

    Without a noise the differences are in units of its sd.

    Args:
        noise: What is expected.
        arms: How many arms each scale has; each is compared with the baseline at its scale, and
            all comparisons are one family for Holm.
        seeds: How many seeds the sweep has.

    Returns:
        "comparisons", "differences" by number of seeds (None for a single one), "difference" at
        the sweep's own, "noise" and "origin".
    """
    family, fewest = sum(arms) - len(arms), min(arms)
    unit = 1.0 if noise is None else noise.sd
    numbers = sorted({seeds, *MORE_SEEDS})
    differences = {number: _difference(fewest, number, family, unit) for number in numbers}
    return {
        "comparisons": family,
        "differences": differences,
        "difference": differences[seeds],
        "noise": None if noise is None else noise.sd,
        "origin": None if noise is None else noise.origin,
    }


def _difference(arms: int, seeds: int, comparisons: int, sd: float) -> float | None:
    from jtransformer import stats

    if seeds < 2:
        return None
    return stats.resolvable_at(seeds, residual_sd=sd, arms=arms, comparisons=comparisons)
