"""Sweeps that grow by what they have found: rungs of a search by halving, and wider ranges.

A stage is decided from validation results alone, once every run so far is complete, and is written
to sweep.json as plain data: what was decided is never decided again, so that a sweep that is killed
and continued comes to the same end.

    {"stage": "rung", "rung": 2, "kept": {ARM: [SETTING, ...]}}
    {"stage": "extension", "added": {PATH: [VALUE, ...]}, "because": {PATH: [ARM, ...]}}
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from jtransformer.records import COMPLETE, SweepRecord
from jtransformer.spec import SpecError
from jtransformer.sweep.arms import Arm
from jtransformer.sweep.factors import Factor, Setting, grid
from jtransformer.sweep.plan import Cell, Plan, Stage, run_spec, tuned_over, with_cells
from jtransformer.sweep.search import is_extendable, rounded

Losses = Mapping[str, float]
"""Final validation loss by fingerprint, infinite where the run diverged; complete runs alone."""


def next_stage(plan: Plan, record: SweepRecord) -> Plan | None:
    """Returns the sweep with what is to be trained next, or None where nothing is.

    Args:
        plan: The sweep so far.
        record: What its runs have left on disk.

    Returns:
        The plan with one stage more; None while a run is missing, and when all is found.
    """
    losses = _losses(record)
    if any(cell.fingerprint not in losses for cell in plan.cells):
        return None
    search, done = plan.declaration.search, len(plan.stages)
    if search.rungs is not None:
        return after(plan, _rung(plan, losses, done + 2)) if done + 1 < search.rungs else None
    if plan.declaration.extend is None:
        return None
    stage = _extension(plan, losses, plan.declaration.extend.most)
    return after(plan, stage) if stage["added"] else None


def after(plan: Plan, stage: Stage) -> Plan:
    """Returns the plan after a stage; its runs keep their directories.

    Raises:
        SpecError: If the search by halving chose among other runs than the plan has.
    """
    if stage["stage"] == "rung":
        _refuse_growth(plan, stage)
    known = {cell.fingerprint: cell.directory for cell in plan.cells}
    plan = dataclasses.replace(plan, stages=(*plan.stages, stage))
    plan = dataclasses.replace(plan, settings=_settings(plan))
    return with_directories(with_cells(plan), known)


def with_directories(plan: Plan, known: Mapping[str, str]) -> Plan:
    """Returns the plan with the runs of known fingerprints in their directories."""
    cells = tuple(
        dataclasses.replace(cell, directory=known.get(cell.fingerprint, cell.directory))
        for cell in plan.cells
    )
    return dataclasses.replace(plan, cells=cells)


def _losses(record: SweepRecord) -> Losses:
    losses = {}
    for run in record.runs:
        if run.state in COMPLETE and run.status is not None:
            loss = run.status["result"]["validation_nll"] if run.state == "done" else None
            losses[run.cell["fingerprint"]] = math.inf if loss is None else loss
    return losses


def _settings(plan: Plan) -> tuple[Setting, ...]:
    if plan.declaration.search.trials is not None:
        return plan.settings
    return tuple(grid(_factors(plan)))


def _factors(plan: Plan) -> tuple[Factor, ...]:
    """Returns what is tuned, with the values that were added."""
    added: dict[str, list[Any]] = {}
    for stage in plan.stages:
        for path, values in stage.get("added", {}).items():
            added.setdefault(path, []).extend(values)
    return tuple(
        dataclasses.replace(factor, values=_united(factor, added.get(factor.name, [])))
        for factor in plan.declaration.nuisance
    )


def _united(factor: Factor, added: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    # Who declares a value that was added before gets it once.
    return factor.values + tuple((one,) for one in added if (one,) not in factor.values)


def _ranked(plan: Plan, losses: Losses, arm: Arm) -> list[Setting]:
    """Returns the settings of an arm's longest runs, the best first.

    As an arm's setting is chosen on the page: the fewest diverged runs, then the lowest mean of the
    others, then the order of the plan.
    """
    own = [cell for cell in plan.cells if cell.arm == arm.name]
    last = max((cell.rung.number for cell in own if cell.rung), default=None)
    by_setting: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in own:
        if cell.rung is None or cell.rung.number == last:
            by_setting.setdefault(tuple(cell.nuisance.items()), []).append(cell)

    def badness(cells: list[Cell]) -> tuple[int, float]:
        found = [losses[cell.fingerprint] for cell in cells]
        finite = [loss for loss in found if math.isfinite(loss)]
        return len(found) - len(finite), math.fsum(finite) / len(finite) if finite else math.inf

    return [cells[0].nuisance for cells in sorted(by_setting.values(), key=badness)]


def _rung(plan: Plan, losses: Losses, number: int) -> Stage:
    keep = plan.declaration.search.keep
    assert keep is not None
    kept = {}
    for arm in plan.arms:
        ranked = _ranked(plan, losses, arm)
        kept[arm.name] = ranked[: len(ranked) // keep]
    return {"stage": "rung", "rung": number, "kept": kept, "of": len(plan.cells)}


def _refuse_growth(plan: Plan, stage: Stage) -> None:
    known = [arm.name for arm in plan.arms]
    if len(plan.cells) != stage["of"] or list(stage["kept"]) != known:
        raise SpecError(
            "search.strategy",
            "= 'halving' has already chosen among the settings in this work directory, so the "
            "sweep cannot grow; use another work directory.",
        )


def _extension(plan: Plan, losses: Losses, most: int) -> Stage:
    """Widens every factor at whose edge some arm's best value lies, for all arms alike."""
    best = {arm.name: _ranked(plan, losses, arm)[0] for arm in plan.arms}
    added: dict[str, list[Any]] = {}
    because: dict[str, list[str]] = {}
    for factor, declared in zip(_factors(plan), plan.declaration.nuisance, strict=True):
        if not is_extendable(declared):
            continue
        path, first = factor.name, [value for (value,) in declared.values]
        tried = sorted(value for (value,) in factor.values)
        for edge, inner in ((tried[0], tried[1]), (tried[-1], tried[-2])):
            beyond = sum(
                value < min(first) if edge < inner else value > max(first) for value in tried
            )
            arms = [name for name, setting in best.items() if setting[path] == edge]
            value = _beyond(edge, inner, tried)
            if arms and beyond < most and value != edge and _is_possible(plan, path, value):
                added.setdefault(path, []).append(value)
                because.setdefault(path, []).extend(arms)
    return {"stage": "extension", "added": added, "because": because}


def _beyond(edge: float, inner: float, tried: Sequence[float]) -> float:
    """Continues the last step by its ratio; even steps, and those at 0, by their length."""
    steps = [b - a for a, b in zip(tried, tried[1:], strict=False)]
    even = len(steps) > 1 and max(steps) - min(steps) <= 1e-9 * max(steps)
    value = edge * edge / inner if tried[0] > 0 and not even else 2 * edge - inner
    return round(value) if isinstance(edge, int) else rounded(value)


def _is_possible(plan: Plan, path: str, value: Any) -> bool:
    """Says whether every arm can be run with a value; dropout of 1.2, say, cannot be."""
    try:
        for arm in plan.arms:
            for setting in tuned_over(plan, arm):
                run_spec(arm.tree, {**setting, path: value}, plan.declaration.seeds[0], None)
    except SpecError:
        return False
    return True
