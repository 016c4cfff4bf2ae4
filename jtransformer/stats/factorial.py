"""Which factor moves the loss, and do the factors interact: the arms of a grid analysed as one."""

import dataclasses
import math
from typing import Any

from jtransformer.records import SweepRecord
from jtransformer.stats.estimates import Analysis, ArmAnalysis
from jtransformer.stats.factorial_model import Cell, FactorialFit, fit_factorial, holm_over_terms


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factor:
    """A factor of the grid.

    Attributes:
        name: Its settings by path, as the config declares them; several are set together.
        label: The same, as short as it stays clear.
        levels: What it is set to, in the order of the config.
    """

    name: str
    label: str
    levels: tuple[str, ...]

    @property
    def settings(self) -> list[str]:
        """The settings that change together; one of a plain factor."""
        return self.name.split(", ")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factorial:
    """What a grid of arms says about its factors, each arm at its chosen setting.

    Attributes:
        factors: Those with at least two levels.
        fit: Estimates and tests; None while no arm has a loss.
        absent: Why an arm is not in the model, by its name.
        gaps: Seeds of the sweep without a loss, by arm, of arms in the model.
        provisional: Arms that are not finished; their loss may still change.
    """

    factors: tuple[Factor, ...]
    fit: FactorialFit | None
    absent: dict[str, str]
    gaps: dict[str, tuple[int, ...]]
    provisional: tuple[str, ...]


def factorial(record: SweepRecord, analysis: Analysis) -> Factorial | None:
    """Analyses the arms as a grid of the scientific factors, with seeds as blocks.

    An arm that diverges at its best setting has no loss here: the mean of what survived would
    flatter its factors.

    Args:
        record: A sweep in any state, or one scale of it.
        analysis: Its analysis.

    Returns:
        The analysis, or None where the arms are no grid of two factors or more with two levels
        each, such as named arms, and before the first run has finished.
    """
    factors = _factors(record.manifest, analysis)
    cells = {arm.name: _cell(arm, [factor.name for factor in factors]) for arm in analysis.arms}
    points = math.prod(len(factor.levels) for factor in factors)
    is_grid = len(factors) > 1 and len(set(cells.values())) == len(cells) == points
    if not is_grid or record.manifest.get("named") or not analysis.runs.finished:
        return None
    names = {cell: name for name, cell in cells.items()}
    usable = {arm.name: arm.choice.validation for arm in analysis.arms
              if arm.choice and arm.choice.validation and not arm.choice.runs.diverged}  # fmt: skip
    losses = {cells[name]: by_seed for name, by_seed in usable.items()}
    levels = {factor.label: factor.levels for factor in factors}
    fit = holm_over_terms(fit_factorial(losses, levels)) if losses else None
    apart = {names[cell] for cell in fit.unconnected} if fit else set()
    modelled = usable.keys() - apart
    return Factorial(
        factors=factors,
        fit=fit,
        absent={a.name: _reason(a, apart) for a in analysis.arms if a.name not in modelled},
        gaps={
            name: tuple(seed for seed in analysis.seeds if seed not in by_seed)
            for name, by_seed in usable.items()
            if name in modelled and not set(analysis.seeds) <= set(by_seed)
        },
        provisional=tuple(arm.name for arm in analysis.arms if not arm.runs.complete),
    )


def _factors(manifest: dict[str, Any], analysis: Analysis) -> tuple[Factor, ...]:
    names = list(manifest["scientific"])
    labels = [_label(name) for name in names]
    found = []
    for name, label in zip(names, labels, strict=True):
        levels = tuple(dict.fromkeys(_cell(arm, [name])[0] for arm in analysis.arms))
        if len(levels) > 1:
            clear = label if labels.count(label) == 1 else name
            found.append(Factor(name=name, label=clear, levels=levels))
    return tuple(found)


def _label(name: str) -> str:
    """Takes the last word of each path, or the one before where that says nothing alone."""
    words = []
    for path in name.split(", "):
        *above, last = path.split(".")
        words.append(above[-1] if last == "kind" and above else last)
    return ", ".join(words)


def _cell(arm: ArmAnalysis, names: list[str]) -> Cell:
    values = [[arm.factors.get(path) for path in name.split(", ")] for name in names]
    return tuple(", ".join(map(_text, together)) for together in values)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _reason(arm: ArmAnalysis, apart: set[str]) -> str:
    if arm.name in apart:
        return "shares no seed with the others"
    if arm.choice is None or not arm.choice.runs.diverged:
        return "has no loss yet"
    return f"diverges in {arm.choice.runs.diverged} of {arm.choice.runs.planned} runs"
