"""Says what a sweep would be, cost and be able to show; trains and writes nothing.

usage: jtransformer plan --config FILE [--config.PATH=VALUE ...] [flags]

Arms with their exact parameters, operations and what they do not have in common; groups of runs
that share a program; memory, disk and time; and the smallest difference that the seeds can resolve.

  --config FILE          a Python file with get_config() and get_sweep()
  --config.PATH=VALUE    change one setting of get_config()
  --workdir DIR          leave out what is complete there
  --noise SD             sd of the loss between runs of one arm, beyond what a seed does to all arms
  --pilot DIR            take that from an earlier sweep: the residual sd of its page
  --measure              time a few updates of every group here, and say how long all would take
  --topology NAME        compile every group for devices that need not be here, such as v5e:4x4, and
                         say which arms do not fit; see `jtransformer compile --help`, also for
                         --mesh TEXT and --cache DIR
  --json                 print one JSON object

The smallest resolvable difference is the one that is found with 80 % power by the model of the page
(loss = arm + seed + noise), at level 5 % divided by the number of comparisons (Holm's first step);
without --noise and --pilot it is in units of the noise's sd. Time is that of one worker that trains
one run after another. Memory is that of one run: parameters, gradients and optimizer are exact, its
activations an estimate. Disk is what checkpoints can take at most.

example: jtransformer plan --config experiments/norm_and_ffn/config.py --noise 0.009 --measure
"""

import collections
import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from jtransformer import accounting, records
from jtransformer.cli.arguments import Experiment, read_experiment, read_flags
from jtransformer.cli.corpora import Corpora
from jtransformer.cli.plan_ahead import compile_programs, device_seconds
from jtransformer.cli.plan_tables import print_figures
from jtransformer.cli.planning import continued, read_plan
from jtransformer.cli.preflight import checkpoint_bytes
from jtransformer.cli.resolution import Noise, pilot_noise, resolvable
from jtransformer.cli.targets import LOCAL, define_target, read_target
from jtransformer.cli.timings import Timings, device, time_parts
from jtransformer.spec import RunSpec, SpecError
from jtransformer.sweep import Cell, Plan, manifest, states

ABOUT: dict[str, Any] = {"title": "", "question": "", "command": "", "data": {}}
"""What a manifest says beyond the plan; here it is not asked for."""


class GroupOfCells(NamedTuple):
    """Runs that share a program; `todo` are those that are not complete."""

    cells: list[Cell]
    todo: list[Cell]

    @property
    def updates(self) -> int:
        return sum(cell.spec.training.steps for cell in self.cells)


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    values = _flags(argv)
    noise = None if values.noise is None else Noise(values.noise, "--noise")
    if values.pilot is not None:
        noise = pilot_noise(Path(values.pilot).expanduser())
    corpora = Corpora()
    experiment = read_experiment(Path(values.config), argv)
    # Before anything starts JAX, which is told here what is at hand.
    target = None if values.topology is None else read_target(values, experiment.layout)
    plan, complete = _plan(values, experiment, corpora)
    figures = _figures(plan, complete, noise, corpora.taken_over(plan))
    groups = groups_of(plan.cells, complete)
    measured = [
        time_parts(group.cells[0].spec, corpora) if values.measure else None for group in groups
    ]
    figures["groups"] = [_group(*pair) for pair in zip(groups, measured, strict=True)]
    if target is not None:
        devices = target.layout.devices
        figures |= {"topology": target.topology.name, "mesh": target.layout.label}
        found = compile_programs([group.cells[0].spec for group in groups], target)
        for shown, group, program in zip(figures["groups"], groups, found, strict=True):
            updates = sum(cell.spec.training.steps for cell in group.todo)
            shown["ahead"] = program
            shown["device_seconds"] = device_seconds(program, updates, devices)
    figures["measured_on"] = device() if values.measure else None
    seconds = [group["seconds"] for group in figures["groups"]]
    figures["seconds"] = sum(seconds) if values.measure else None
    if values.json:
        print(json.dumps(figures))
    else:
        print_figures(figures)
    return 0


def _plan(
    values: flags.FlagValues, experiment: Experiment, corpora: Corpora
) -> tuple[Plan, set[str]]:
    """Returns the plan, and the fingerprints of what is complete in the work directory."""
    if experiment.sweep is None:
        raise SpecError(values.config, "has no get_sweep(); `jtransformer count` says what a "
                        "single run needs.")  # fmt: skip
    plan = read_plan(experiment, corpora)
    if values.workdir is None:
        return plan, set()
    workdir = Path(values.workdir).expanduser()
    old = records.load_manifest(workdir) or ABOUT
    plan, new, _ = continued(plan, workdir, ABOUT | {"data": old["data"]})
    found = states(workdir, new["cells"])
    return plan, {identity for identity, state in found.items() if state in records.COMPLETE}


def groups_of(cells: Sequence[Cell], complete: set[str]) -> list[GroupOfCells]:
    """Groups the runs of a plan by their program, in the order in which they first appear.

    Args:
        cells: The runs.
        complete: Fingerprints of those that need no work.
    """
    from jtransformer.training import program_key

    groups: dict[RunSpec, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(program_key(cell.spec), []).append(cell)
    return [
        GroupOfCells(own, [cell for cell in own if cell.fingerprint not in complete])
        for own in groups.values()
    ]


def _tokens(spec: RunSpec) -> int:
    """Returns the tokens that a run is trained on, of the target where there is a source."""
    rows = spec.training.steps * spec.training.batch_size
    return rows * spec.row_lengths.length


def _figures(
    plan: Plan, complete: set[str], noise: Noise | None, starts: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Returns everything that is known without a device, as JSON has it."""
    arms = manifest(plan, ABOUT | {"starts": starts})["arms"]
    for arm in arms:
        arm["runs"] = sum(cell.arm == arm["name"] for cell in plan.cells)
        del arm["spec"]
    operations = {arm["name"]: arm["training_flops_per_token"] for arm in arms}
    tokens = [(cell.arm, _tokens(cell.spec)) for cell in plan.cells]
    scales = collections.Counter(arm["scale"] for arm in arms)
    seeds = len(plan.declaration.seeds)
    return {
        "baseline": plan.baseline,
        "loss_unit": plan.base.loss_unit,
        "arms": arms,
        "runs": len(plan.cells),
        "complete": len(complete),
        "seeds": list(plan.declaration.seeds),
        "tokens": sum(count for _, count in tokens),
        "training_flops": sum(operations[arm] * count for arm, count in tokens),
        "disk_bytes": sum(checkpoint_bytes(cell.spec) for cell in plan.cells),
        "later_runs": plan.declaration.search.rungs is not None
        or plan.declaration.extend is not None,
        "resolvable": resolvable(noise, arms=list(scales.values()), seeds=seeds),
    }


def _group(group: GroupOfCells, measured: Timings | None) -> dict[str, Any]:
    """Returns what a group of runs is and needs; "seconds" are those of its unfinished runs."""
    needs = [accounting.memory(cell.spec) for cell in group.cells]
    largest = max(needs, key=lambda memory: memory.total)
    seconds = None
    if measured is not None:
        seconds = sum(measured.run_seconds(cell.spec) for cell in group.todo)
        seconds += measured.compile if group.todo else 0.0
    return {
        "arms": list(dict.fromkeys(cell.arm for cell in group.cells)),
        "runs": len(group.cells),
        "unfinished": len(group.todo),
        "updates": group.updates,
        "memory_bytes": dataclasses.asdict(largest) | {"total": largest.total},
        "measured": None if measured is None else measured._asdict(),
        "seconds": seconds,
    }


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    for name in ("config", "workdir", "pilot"):
        flags.DEFINE_string(name, None, name, flag_values=values)
    define_target(values, topology=None)
    flags.DEFINE_float("noise", None, "noise", flag_values=values)
    for name in ("measure", "json"):
        flags.DEFINE_bool(name, False, name, flag_values=values)
    read_flags(values, argv, stray="write --config FILE and --config.PATH=VALUE")
    if not values.config:
        raise SpecError("--config", "is missing; add --config FILE.")
    for name in ("mesh", "cache"):
        if values[name].present and values.topology is None:
            raise SpecError(f"--{name}", "would do nothing without --topology; add that.")
    if values.measure and values.topology not in (None, LOCAL):
        raise SpecError("--measure", "is of the devices here, which --topology sets aside; ask "
                        "for one at a time.")  # fmt: skip
    if values.noise is not None and values.pilot is not None:
        raise SpecError("--noise", "and --pilot both say what the noise is; give one of them.")
    if values.noise is not None and not 0 < values.noise < math.inf:
        raise SpecError("--noise", f"must be a positive number, got {values.noise}.")
    return values
