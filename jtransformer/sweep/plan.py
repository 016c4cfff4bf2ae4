"""From a declaration to arms of equal size and to cells, each one run with an identity."""

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import Any

from jtransformer import accounting
from jtransformer.records import SCHEMA
from jtransformer.spec import (
    ModelSpec,
    RunSpec,
    SpecError,
    Tree,
    fingerprint,
    from_tree,
    get,
    nearest,
    prune,
    replace,
    to_tree,
)
from jtransformer.sweep.declaration import Declaration
from jtransformer.sweep.matching import Matching, match_arm
from jtransformer.sweep.refusals import (
    refuse_identical,
    refuse_other_measures,
    refuse_overruled,
    refuse_shared_identity,
    refuse_unread,
)

Setting = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Arm:
    """One setting of the scientific factors.

    Attributes:
        name: Its values, joined; unique in the sweep.
        factors: The scientific settings.
        matched: What the match solved for; empty for the baseline.
        spec: The run with the nuisance settings and seed of the config file.
        residual: (parameters - baseline's) / baseline's.
    """

    name: str
    factors: Setting
    matched: Setting
    spec: RunSpec
    residual: float


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run: arm, nuisance setting and seed."""

    arm: str
    nuisance: Setting
    spec: RunSpec
    fingerprint: str
    directory: str


@dataclasses.dataclass(frozen=True)
class Plan:
    """A resolved sweep; cells stand arm by arm, so that runs of one program are neighbours."""

    base: RunSpec
    baseline: str
    declaration: Declaration
    arms: tuple[Arm, ...]
    cells: tuple[Cell, ...]


def make_plan(
    tree: Tree,
    declaration: Declaration,
    data_sha256: Callable[[RunSpec], str],
    *,
    touched: frozenset[str] = frozenset(),
    inherited: frozenset[str] = frozenset(),
) -> Plan:
    """Resolves a sweep.

    Args:
        tree: The config file's run, the settings of all kinds written out.
        declaration: What varies.
        data_sha256: Returns the hash of what a run reads, a part of its identity.
        touched: Dotted paths set on the command line.
        inherited: Dotted paths whose values came with a preset.

    Raises:
        SpecError: If a setting cannot be, an arm cannot be matched, or two arms are one.
    """
    base = _resolve(tree)
    refuse_overruled(declaration, tree, touched)
    declaration = dataclasses.replace(declaration, seeds=declaration.seeds or (base.seed,))
    settings, nuisances = _grid(declaration.scientific), _grid(declaration.nuisance)
    trees = [replace(tree, setting) for setting in settings]
    declared = declaration.scientific.keys() | declaration.nuisance.keys()
    refuse_unread(
        [replace(one, nuisance) for one in trees for nuisance in nuisances],
        touched,
        inherited - declared,
    )
    specs = [_resolve(arm_tree) for arm_tree in trees]
    names = [_name(setting) for setting in settings]
    refuse_identical(names, specs)
    baseline = _baseline(declaration, tree, settings, names)
    reference = specs[names.index(baseline)].model
    arms = tuple(
        _arm(name, setting, spec, reference, None if name == baseline else declaration.match)
        for name, setting, spec in zip(names, settings, specs, strict=True)
    )
    cells = tuple(
        _cell(arm, replace(one, {**arm.matched, **nuisance, "seed": seed}), nuisance, data_sha256)
        for arm, one in zip(arms, trees, strict=True)
        for nuisance in nuisances
        for seed in declaration.seeds
    )
    refuse_shared_identity((cell.fingerprint, cell.directory) for cell in cells)
    refuse_other_measures([cell.spec for cell in cells])
    return Plan(base, baseline, declaration, arms, cells)


def adopt(plan: Plan, old: dict[str, Any]) -> Plan:
    """Returns the plan with the directories that an earlier manifest gave to the same runs.

    A sweep that grows by a factor renames its arms; what is finished stays where it is.
    """
    known = {cell["fingerprint"]: cell["directory"] for cell in old["cells"]}
    cells = tuple(
        dataclasses.replace(cell, directory=known.get(cell.fingerprint, cell.directory))
        for cell in plan.cells
    )
    return dataclasses.replace(plan, cells=cells)


def manifest(plan: Plan, about: dict[str, Any]) -> dict[str, Any]:
    """Returns the content of sweep.json.

    Args:
        plan: The plan.
        about: "title", "question", "command" and "data", which the plan does not know.
    """
    declared = plan.declaration
    return {
        "schema": SCHEMA,
        "title": about["title"],
        "question": about["question"],
        "command": about["command"],
        "metric": declared.metric,
        "baseline": plan.baseline,
        "scientific": {path: list(values) for path, values in declared.scientific.items()},
        "nuisance": {path: list(values) for path, values in declared.nuisance.items()},
        "seeds": list(declared.seeds),
        "match": dataclasses.asdict(declared.match) if declared.match else None,
        "base": to_tree(plan.base),
        "data": about["data"],
        "arms": [_arm_record(arm) for arm in plan.arms],
        "cells": [
            {
                "arm": cell.arm,
                "nuisance": cell.nuisance,
                "seed": cell.spec.seed,
                "fingerprint": cell.fingerprint,
                "directory": cell.directory,
            }
            for cell in plan.cells
        ],
    }


def _arm_record(arm: Arm) -> dict[str, Any]:
    counts = accounting.parameters(arm.spec.model)
    length, source_length = accounting.row_lengths(arm.spec)
    flops = accounting.flops(arm.spec.model, length=length, source_length=source_length)
    return {
        "name": arm.name,
        "factors": arm.factors,
        "matched": arm.matched,
        "parameters": counts.total,
        "components": dataclasses.asdict(counts),
        "residual": arm.residual,
        "training_flops_per_token": round(flops.training),
    }


def _grid(factors: dict[str, tuple[Any, ...]]) -> list[Setting]:
    return [
        dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values())
    ]


def _resolve(tree: Tree) -> RunSpec:
    return from_tree(prune(tree))


def _name(setting: Setting) -> str:
    """Joins the values; a value that says nothing alone is named after its setting."""
    words = [
        value if isinstance(value, str) else f"{_leaf(path)}={value}"
        for path, value in setting.items()
    ]
    return "-".join(words)


def _leaf(path: str) -> str:
    parts = path.split(".")
    return parts[-2] if parts[-1] == "kind" and len(parts) > 1 else parts[-1]


def _file_name(text: str) -> str:
    """Returns a name of at most 100 characters that any file system takes, not always unique."""
    return re.sub(r"[^A-Za-z0-9_.=+-]|^\.", "_", text)[:100]


def _baseline(
    declaration: Declaration, tree: Tree, settings: list[Setting], names: list[str]
) -> str:
    if declaration.baseline is not None:
        if declaration.baseline not in names:
            raise SpecError("baseline", f"= {declaration.baseline!r} is not an arm; "
                            f"{nearest(str(declaration.baseline), names)}.")  # fmt: skip
        return declaration.baseline
    for name, setting in zip(names, settings, strict=True):
        if all(get(tree, path) == value for path, value in setting.items()):
            return name
    configured = {path: get(tree, path) for path in declaration.scientific}
    raise SpecError(
        "baseline",
        f"is missing: no arm equals get_config(), which has {configured}; add those values to the "
        f"grid or name an arm, one of {', '.join(names)}.",
    )


def _arm(
    name: str, setting: Setting, spec: RunSpec, reference: ModelSpec, rule: Matching | None
) -> Arm:
    matched: Setting = {}
    if rule:
        spec, matched = match_arm(name, spec, reference, rule)
    target = accounting.parameters(reference).total
    residual = (accounting.parameters(spec.model).total - target) / target
    return Arm(name, setting, matched, spec, residual)


def _cell(arm: Arm, tree: Tree, nuisance: Setting, data_sha256: Callable[[RunSpec], str]) -> Cell:
    spec = _resolve(tree)
    if accounting.parameters(spec.model) != accounting.parameters(arm.spec.model):
        raise SpecError("nuisance", f"changes the size of the model in the arm {arm.name!r} "
                        f"({nuisance}); make it scientific.")  # fmt: skip
    identity = fingerprint(spec, data_sha256(spec), SCHEMA)
    words = _file_name("-".join(f"{_leaf(path)}={value}" for path, value in nuisance.items()))
    run = "-".join(filter(None, [words, f"seed{spec.seed}", identity[:8]]))
    directory = f"runs/{_file_name(arm.name)}/{run}"
    return Cell(arm.name, nuisance, spec, identity, directory)
