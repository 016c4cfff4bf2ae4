"""What sweep.json says of a sweep, and how a run and a continued plan follow from it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from jtransformer import accounting
from jtransformer.records import SCHEMA
from jtransformer.spec import RunSpec, to_tree
from jtransformer.sweep.arms import Arm
from jtransformer.sweep.factors import Factor
from jtransformer.sweep.matching import quantities
from jtransformer.sweep.plan import Cell, Plan, run_spec, with_cells
from jtransformer.sweep.search import active, settings_of
from jtransformer.sweep.stages import after, with_directories


def manifest(plan: Plan, about: dict[str, Any]) -> dict[str, Any]:
    """Returns the content of sweep.json.

    Args:
        plan: The plan.
        about: "title", "question", "command" and "data", which the plan does not know, and
            "threads", among how many the work of a CPU is divided; without it that is open.
            "starts" is what arms take over, by their names; without it all start anew.
    """
    declared, starts = plan.declaration, about.get("starts", {})
    return {
        "schema": SCHEMA,
        "title": about["title"],
        "question": about["question"],
        "command": about["command"],
        "metric": declared.metric,
        "baseline": plan.baseline,
        "scientific": _plain(declared.scientific),
        "nuisance": _plain(declared.nuisance),
        "seeds": list(declared.seeds),
        "match": declared.match.record() if declared.match else None,
        "named": declared.arms,
        "scales": declared.scales,
        "search": dataclasses.asdict(declared.search),
        "extend": dataclasses.asdict(declared.extend) if declared.extend else None,
        "verdict": dataclasses.asdict(declared.verdict),
        "verdict_before": [],
        "drawn": list(plan.settings) if declared.search.trials else [],
        "stages": list(plan.stages),
        "threads": about.get("threads"),
        "base": to_tree(plan.base),
        "data": about["data"],
        "arms": [_arm_record(arm, starts.get(arm.name)) for arm in plan.arms],
        "cells": [_cell_record(cell) for cell in plan.cells],
    }


def cell_spec(record: dict[str, Any], cell: dict[str, Any]) -> RunSpec:
    """Returns the run of a cell from the manifest alone.

    Args:
        record: The manifest.
        cell: One of its cells.
    """
    (tree,) = (arm["spec"] for arm in record["arms"] if arm["name"] == cell["arm"])
    steps = cell["rung"]["steps"] if "rung" in cell else None
    return run_spec(tree, cell["nuisance"], cell["seed"], steps)


def adopt(plan: Plan, old: dict[str, Any]) -> Plan:
    """Returns the plan as a continuation of what an earlier manifest has.

    What was drawn and what was decided from results stay, so that neither another library nor a
    lost result can change a sweep that has begun. The same runs keep their directories: a sweep
    that grows by a factor renames its arms; what is finished stays where it is.

    Raises:
        SpecError: If the sweep has grown after a search by halving has chosen.
    """
    drawn, search = old.get("drawn", []), plan.declaration.search
    if drawn and search.trials and _draws_alike(plan, old):
        factors = plan.declaration.nuisance
        own = [active(factors, arm.tree) for arm in plan.arms]
        settings = settings_of(search, factors, own, drawn[: search.trials])
        plan = with_cells(dataclasses.replace(plan, settings=settings))
    for stage in old.get("stages", [])[len(plan.stages) :]:
        plan = after(plan, stage)
    known = {cell["fingerprint"]: cell["directory"] for cell in old["cells"]}
    return with_directories(plan, known)


def _draws_alike(plan: Plan, old: dict[str, Any]) -> bool:
    new = dataclasses.asdict(plan.declaration.search)
    same = old["search"] | {"trials": None} == new | {"trials": None}
    return same and old["nuisance"] == _plain(plan.declaration.nuisance)


def _plain(factors: Sequence[Factor]) -> dict[str, Any]:
    return {factor.name: factor.plain() for factor in factors}


def _arm_record(arm: Arm, start: dict[str, Any] | None) -> dict[str, Any]:
    counts = accounting.parameters(arm.spec.model)
    length, source_length = arm.spec.row_lengths
    flops = accounting.flops(arm.spec.model, length=length, source_length=source_length)
    record = {
        "name": arm.name,
        "scale": arm.scale,
        "baseline": arm.baseline,
        "factors": arm.factors,
        "matched": arm.matched,
        "parameters": counts.total,
        "components": dataclasses.asdict(counts),
        "residual": arm.residual,
        "quantities": quantities(arm.spec),
        "mismatches": arm.mismatches,
        "training_flops_per_token": round(flops.training),
        "spec": arm.tree,
    }
    return record if start is None else record | {"start": start}


def _cell_record(cell: Cell) -> dict[str, Any]:
    record = {
        "arm": cell.arm,
        "nuisance": cell.nuisance,
        "seed": cell.spec.seed,
        "fingerprint": cell.fingerprint,
        "directory": cell.directory,
    }
    return record if cell.rung is None else record | {"rung": dataclasses.asdict(cell.rung)}
