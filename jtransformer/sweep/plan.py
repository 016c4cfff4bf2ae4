"""From arms to cells: each one run with an identity, as many settings for every arm."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jtransformer import accounting
from jtransformer.records import SCHEMA
from jtransformer.spec import RunSpec, SpecError, Tree, fingerprint, from_tree, get, prune, replace
from jtransformer.sweep.arms import Arm, candidates, leaf, resolve_arms
from jtransformer.sweep.declaration import Declaration
from jtransformer.sweep.factors import Factor, Setting, check_paths
from jtransformer.sweep.refusals import (
    refuse_idle,
    refuse_other_measures,
    refuse_overruled,
    refuse_shared_identity,
    refuse_unequal_budgets,
    refuse_unread,
)
from jtransformer.sweep.search import active, project, settings_of

Stage = dict[str, Any]
"""What was decided from results, as plain data: see `jtransformer.sweep.stages`."""


StartHash = Callable[[RunSpec], str | None]


def _anew(_: RunSpec) -> None:
    """Returns the hash of what a run starts from where none starts from anything."""
    return None


@dataclasses.dataclass(frozen=True)
class Rung:
    """One of the lengths at which a search by halving runs its settings.

    Attributes:
        number: Counted from 1.
        of: How many there are; the figures of the last one are those of the arm.
        steps: `training.steps` of its runs.
    """

    number: int
    of: int
    steps: int


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run: arm, nuisance setting and seed."""

    arm: str
    nuisance: Setting
    spec: RunSpec
    fingerprint: str
    directory: str
    rung: Rung | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """A resolved sweep; cells stand arm by arm, so that runs of one program are neighbours.

    Attributes:
        base: The run of the config file.
        baseline: Name of the arm that the others are compared with, within its scale.
        declaration: What varies.
        arms: The arms.
        settings: What all arms are tuned over: of each setting an arm takes the factors it has.
        stages: What was decided from results so far.
        data_sha256: Returns the hash of what a run reads, a part of its identity.
        cells: The runs.
        start_sha256: Returns the hash of what a run starts from, a part of its identity too.
    """

    base: RunSpec
    baseline: str
    declaration: Declaration
    arms: tuple[Arm, ...]
    settings: tuple[Setting, ...]
    data_sha256: Callable[[RunSpec], str] = dataclasses.field(repr=False, compare=False)
    stages: tuple[Stage, ...] = ()
    cells: tuple[Cell, ...] = ()
    start_sha256: StartHash = dataclasses.field(default=_anew, repr=False, compare=False)


def make_plan(
    tree: Tree,
    declaration: Declaration,
    data_sha256: Callable[[RunSpec], str],
    *,
    start_sha256: StartHash = _anew,
    touched: frozenset[str] = frozenset(),
    inherited: frozenset[str] = frozenset(),
) -> Plan:
    """Resolves a sweep.

    Args:
        tree: The config file's run, the settings of all kinds written out.
        declaration: What varies.
        data_sha256: Returns the hash of what a run reads, a part of its identity.
        start_sha256: Returns the hash of what a run starts from, None where it starts anew.
        touched: Dotted paths set on the command line.
        inherited: Dotted paths whose values came with a preset.

    Raises:
        SpecError: If a setting cannot be, an arm cannot be matched, two arms are one, or an arm
            would be tuned harder than another.
    """
    base = from_tree(prune(tree))
    refuse_overruled(declaration, tree, touched)
    check_paths(declaration.nuisance, tree)
    declaration = dataclasses.replace(declaration, seeds=declaration.seeds or (base.seed,))
    found = candidates(tree, declaration)
    factors = declaration.nuisance
    own = {one.name: active(factors, one.tree) for one in found}
    _refuse_idle_factors(factors, list(own.values()))
    settings = settings_of(declaration.search, factors, list(own.values()))
    runs = {
        one.name: [replace(one.tree, setting) for setting in project(settings, own[one.name])]
        for one in found
    }
    everything = [tree for trees in runs.values() for tree in trees]
    refuse_unread(everything, touched, inherited - declaration.declared())
    for name, delta in declaration.arms.items():
        refuse_idle(name, delta, [t for one in found if one.named == name for t in runs[one.name]])
    for name, delta in declaration.scales.items():
        refuse_idle(name, delta, [t for one in found if one.scale == name for t in runs[one.name]])
    arms, baseline = resolve_arms(tree, declaration, found)
    refuse_unequal_budgets({name: len(trees) for name, trees in runs.items()})
    plan = Plan(base, baseline, declaration, arms, settings, data_sha256, start_sha256=start_sha256)
    return with_cells(plan)


def with_cells(plan: Plan) -> Plan:
    """Returns the plan with the cells that follow from the rest of it.

    Raises:
        SpecError: If a setting cannot be, two runs are one, or runs could not be compared.
    """
    cells = tuple(_cells(plan))
    refuse_shared_identity((cell.fingerprint, cell.directory) for cell in cells)
    refuse_other_measures([cell.spec for cell in cells])
    return dataclasses.replace(plan, cells=cells)


def tuned_over(plan: Plan, arm: Arm) -> list[Setting]:
    """Returns the settings that an arm is tuned over."""
    return project(plan.settings, active(plan.declaration.nuisance, arm.tree))


def rungs(plan: Plan, arm: Arm) -> list[tuple[Rung | None, list[Setting]]]:
    """Returns the settings of an arm that are run, by the length of their runs.

    Raises:
        SpecError: If the steps or the settings cannot be divided so often.
    """
    search, settings = plan.declaration.search, tuned_over(plan, arm)
    if search.rungs is None or search.keep is None:
        return [(None, settings)]
    steps, share = get(arm.tree, "training.steps"), search.keep ** (search.rungs - 1)
    if steps % share or steps < share:
        raise SpecError("training.steps", f"must be a multiple of keep ** (rungs - 1) = {share}, "
                        f"got {steps}; use {max(steps // share, 1) * share}.")  # fmt: skip
    if len(settings) < share:
        raise SpecError("search.rungs", f"= {search.rungs} with keep={search.keep} needs {share} "
                        f"settings, got {len(settings)}; give more, or fewer rungs.")  # fmt: skip
    kept = [stage["kept"][arm.name] for stage in plan.stages if stage["stage"] == "rung"]
    return [
        (Rung(number, search.rungs, steps // search.keep ** (search.rungs - number)), own)
        for number, own in enumerate([settings, *kept], 1)
    ]


def _cells(plan: Plan) -> Iterator[Cell]:
    for arm in plan.arms:
        for rung, settings in rungs(plan, arm):
            for setting in settings:
                for seed in plan.declaration.seeds:
                    yield _cell(plan, arm, setting, seed, rung)


def _cell(plan: Plan, arm: Arm, nuisance: Setting, seed: int, rung: Rung | None) -> Cell:
    spec = run_spec(arm.tree, nuisance, seed, rung.steps if rung else None)
    if accounting.parameters(spec.model) != accounting.parameters(arm.spec.model):
        raise SpecError("nuisance", f"changes the size of the model in the arm {arm.name!r} "
                        f"({nuisance}); make it scientific.")  # fmt: skip
    identity = fingerprint(spec, plan.data_sha256(spec), SCHEMA, plan.start_sha256(spec))
    length = {"training.steps": rung.steps} if rung and rung.number < rung.of else {}
    tried = nuisance | length
    words = file_name("-".join(f"{leaf(path)}={value}" for path, value in tried.items()))
    run = "-".join(filter(None, [words, f"seed{seed}", identity[:8]]))
    return Cell(arm.name, nuisance, spec, identity, f"runs/{file_name(arm.name)}/{run}", rung)


def run_spec(tree: Tree, nuisance: Setting, seed: int, steps: int | None) -> RunSpec:
    """Returns the run of an arm with a setting and a seed.

    Args:
        tree: The arm's settings of all kinds.
        nuisance: What is tuned.
        seed: The seed.
        steps: `training.steps` where it is not the arm's; what lies beyond is not probed.
    """
    length: Setting = {} if steps is None else {"training.steps": steps}
    probed = tree["training"].get("probe_steps", ())
    if steps is not None and probed:
        length["training.probe_steps"] = [step for step in probed if step <= steps]
    return from_tree(prune(replace(tree, {**nuisance, "seed": seed, **length})))


def file_name(text: str) -> str:
    """Returns a name of at most 100 characters that any file system takes, not always unique."""
    return re.sub(r"[^A-Za-z0-9_.=+-]|^\.", "_", text)[:100]


def _refuse_idle_factors(factors: Sequence[Factor], by_arm: Sequence[tuple[Factor, ...]]) -> None:
    for factor in factors:
        if not any(factor in own for own in by_arm):
            condition = ", ".join(f"{path} = {values}" for path, values in factor.when.items())
            raise SpecError(f"{factor.name}: when", f"holds in no arm ({condition}), so it would "
                            "never be tuned; leave it out.")  # fmt: skip
