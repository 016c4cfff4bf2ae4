"""How much a result owes to tuning: how an arm bears other values than its best, and luck.

Sensitivity (Wortsman et al. 2023, sec. 2.2, there of the learning rate): with l(v) the final
validation loss at value v, l* the lowest over the values tried and l0 the loss before training,
it is the mean over the values of min(l(v), l0) - l*. A diverged run counts as l0. Records do not
hold l0; a uniform guess over the vocabulary, ln V, stands for it. Of other values it would be
another figure, so only equal grids are compared. By seed, l* is the luckiest of a few noisy
losses: an arm that no value changes has a sensitivity of about the noise, not of zero.

Source: Wortsman et al. 2023, https://arxiv.org/abs/2309.14322.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jtransformer.records import SweepRecord
from jtransformer.stats.divergence import final_loss
from jtransformer.stats.estimates import Analysis, ArmAnalysis, Estimate
from jtransformer.stats.paired import mean_estimate, paired_t
from jtransformer.stats.reestimation import Reestimated, reestimate
from jtransformer.stats.selection import is_number


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmSensitivity:
    """One arm's sensitivity to one tuned factor, by seed; `difference` is paired, to the baseline.

    `values` are those tried, `untrained` is the loss that caps a run's, None if not known.
    """

    name: str
    values: tuple[float, ...]
    untrained: float | None
    by_seed: dict[int, float]
    mean: Estimate | None
    difference: Estimate | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactorSensitivity:
    """All arms' sensitivity to a tuned factor; `paths` are the settings that change with it."""

    paths: tuple[str, ...]
    arms: tuple[ArmSensitivity, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """What tuning does to the figures: by tuned factor, and by arm where its choice is final."""

    factors: tuple[FactorSensitivity, ...]
    arms: tuple[Reestimated, ...]


def sensitivity(record: SweepRecord, analysis: Analysis) -> Sensitivity | None:
    """Measures both; None where nothing was tuned or too little is finished.

    Sensitivity is read along each numeric factor of a grid, the others at the arm's choice, in the
    seeds that finished at every value. Drawn settings differ in everything at once, and a search
    by halving runs few settings for all steps: neither has it.
    """
    is_grid = not analysis.drawn and not analysis.rungs
    groups = [tuple(name.split(", ")) for name in record.manifest["nuisance"]] if is_grid else []
    factors = [_factor(record, analysis, paths) for paths in groups]
    found = Sensitivity(
        factors=tuple(factor for factor in factors if any(arm.by_seed for arm in factor.arms)),
        arms=reestimate(record, analysis),
    )
    return found if found.factors or found.arms else None


def deviation(losses: Sequence[float], untrained: float | None) -> float | None:
    """Gives the mean of min(loss, untrained) - best over the values tried.

    Args:
        losses: One at each value; infinite where the run diverged.
        untrained: The loss before training; None if it is not known.

    Returns:
        The sensitivity. None where every run diverged, so that there is no best, or one did and
        `untrained` is not known.
    """
    if not np.isfinite(losses).any():
        return None
    capped = np.minimum(losses, math.inf if untrained is None else untrained)
    found = float(np.mean(capped) - np.min(capped))
    return found if math.isfinite(found) else None


def _factor(record: SweepRecord, analysis: Analysis, paths: tuple[str, ...]) -> FactorSensitivity:
    found = [_along(record, arm, paths) for arm in analysis.arms]
    (reference,) = (arm for arm in found if arm.name == analysis.baseline)
    arms = [dataclasses.replace(own, difference=_difference(own, reference)) for own in found]
    return FactorSensitivity(paths=paths, arms=tuple(arms))


def _along(record: SweepRecord, arm: ArmAnalysis, paths: tuple[str, ...]) -> ArmSensitivity:
    """Reads an arm along a factor: by its first numeric path, where several change together."""
    losses: dict[int, dict[float, float | None]] = {}
    for run in record.runs:
        if run.cell["arm"] != arm.name or arm.choice is None:
            continue
        nuisance = run.cell["nuisance"]
        value = next((nuisance[p] for p in paths if is_number(nuisance.get(p))), None)
        others = {path: v for path, v in nuisance.items() if path not in paths}
        if value is not None and all(arm.choice.nuisance[path] == v for path, v in others.items()):
            losses.setdefault(run.cell["seed"], {})[value] = final_loss(run, "validation_nll")
    values = tuple(sorted({value for by_value in losses.values() for value in by_value}))
    untrained = _untrained(record, arm.name)
    by_seed = {}
    for seed, by_value in losses.items():
        finished = [loss for loss in by_value.values() if loss is not None]
        own = deviation(finished, untrained) if len(finished) == len(values) > 1 else None
        if own is not None:
            by_seed[seed] = own
    return ArmSensitivity(
        name=arm.name,
        values=values,
        untrained=untrained,
        by_seed=by_seed,
        mean=mean_estimate(list(by_seed.values())) if by_seed else None,
        difference=None,
    )


def _difference(arm: ArmSensitivity, reference: ArmSensitivity) -> Estimate | None:
    if arm is reference or arm.values != reference.values:
        return None
    shared = [seed for seed in arm.by_seed if seed in reference.by_seed]
    return paired_t([arm.by_seed[s] - reference.by_seed[s] for s in shared]) if shared else None


def _untrained(record: SweepRecord, arm: str) -> float | None:
    """Returns ln V; V may be a factor, so the arm's own settings come first."""
    (own,) = (one for one in record.manifest["arms"] if one["name"] == arm)
    model = own.get("spec", record.manifest["base"])["model"]
    return math.log(model["vocabulary"]) if "vocabulary" in model else None
