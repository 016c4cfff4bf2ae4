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
from pathlib import Path
from typing import Any

from absl import flags
from rich.markup import escape

from jtransformer import accounting, records
from jtransformer.cli.arguments import read_experiment, read_flags
from jtransformer.cli.corpora import Corpora
from jtransformer.cli.groups import GroupOfCells, Measured, device, groups_of, measure
from jtransformer.cli.preflight import checkpoint_bytes
from jtransformer.cli.progress import console
from jtransformer.cli.resolution import Noise, pilot_noise, resolvable
from jtransformer.spec import RunSpec, SpecError
from jtransformer.sweep import (
    Plan,
    adopt,
    check_continuation,
    make_plan,
    manifest,
    read_declaration,
    states,
)

COMPLETE = ("done", "diverged")
ABOUT: dict[str, Any] = {"title": "", "question": "", "command": "", "data": {}}
"""What a manifest says beyond the plan; here it is not asked for."""


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    values = _flags(argv)
    noise = None if values.noise is None else Noise(values.noise, "--noise")
    if values.pilot is not None:
        noise = pilot_noise(Path(values.pilot).expanduser())
    corpora = Corpora()
    plan, complete = _plan(values, argv, corpora)
    figures = _figures(plan, complete, noise)
    groups = groups_of(plan.cells, complete)
    measured = [
        measure(group.cells[0].spec, corpora) if values.measure else None for group in groups
    ]
    figures["groups"] = [_group(*pair) for pair in zip(groups, measured, strict=True)]
    figures["measured_on"] = device() if values.measure else None
    seconds = [group["seconds"] for group in figures["groups"]]
    figures["seconds"] = sum(seconds) if values.measure else None
    if values.json:
        print(json.dumps(figures))
    else:
        _print(figures)
    return 0


def _plan(values: flags.FlagValues, argv: list[str], corpora: Corpora) -> tuple[Plan, set[str]]:
    """Returns the plan, and the fingerprints of what is complete in the work directory."""
    experiment = read_experiment(Path(values.config), argv)
    if experiment.sweep is None:
        raise SpecError(values.config, "has no get_sweep(); `jtransformer count` says what a "
                        "single run needs.")  # fmt: skip
    plan = make_plan(
        experiment.tree,
        read_declaration(experiment.sweep),
        corpora.sha256,
        touched=experiment.touched,
        inherited=experiment.inherited,
    )
    corpora.check(plan)
    if values.workdir is None:
        return plan, set()
    workdir = Path(values.workdir).expanduser()
    old = records.load_manifest(workdir)
    if old is None:
        return plan, set()
    plan = adopt(plan, old)
    new = manifest(plan, ABOUT | {"data": old["data"]})
    check_continuation(old, new, workdir)
    found = states(workdir, new["cells"])
    return plan, {identity for identity, state in found.items() if state in COMPLETE}


def _tokens(spec: RunSpec) -> int:
    """Returns the tokens that a run is trained on, of the target where there is a source."""
    rows = spec.training.steps * spec.training.batch_size
    return rows * accounting.row_lengths(spec).length


def _figures(plan: Plan, complete: set[str], noise: Noise | None) -> dict[str, Any]:
    """Returns everything that is known without a device, as JSON has it."""
    arms = manifest(plan, ABOUT)["arms"]
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


def _group(group: GroupOfCells, measured: Measured | None) -> dict[str, Any]:
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


def _print(figures: dict[str, Any]) -> None:
    from rich.table import Table

    baselines = {arm["baseline"] for arm in figures["arms"]}
    table = Table(title=f"{len(figures['arms'])} arms, {figures['runs']} runs")
    columns = ("arm", "solved", "runs", "parameters", "training MFLOP/token")
    differing = [
        name
        for name in figures["arms"][0]["mismatches"]
        if any(arm["mismatches"][name] for arm in figures["arms"])
    ]
    for heading in (*columns, *(f"Δ {name.replace('_', ' ')}" for name in differing)):
        table.add_column(heading, justify="left" if heading in ("arm", "solved") else "right")
    for arm in figures["arms"]:
        solved = ", ".join(f"{path.split('.')[-1]} {n}" for path, n in arm["matched"].items())
        apart = [arm["mismatches"][name] for name in differing]
        table.add_row(
            escape(arm["name"] + (" (baseline)" if arm["name"] in baselines else "")),
            escape(solved),
            str(arm["runs"]),
            f"{arm['parameters']:,}",
            f"{arm['training_flops_per_token'] / 1e6:.3f}",
            *("—" if value is None else f"{value:+.3%}" for value in apart),
        )
    console().print(table)
    _print_groups(figures)
    print(
        f"in all: {figures['tokens']:,} tokens, {figures['training_flops']:.3g} operations, "
        f"checkpoints of at most {figures['disk_bytes'] / 2**20:,.0f} MiB; "
        f"{figures['complete']} of {figures['runs']} runs are complete"
    )
    if figures["later_runs"]:
        print("runs that will be decided from results (rungs, wider ranges) are not in this")
    print(_resolution(figures))


def _print_groups(figures: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"{len(figures['groups'])} groups of runs that share a program")
    measured = figures["measured_on"] is not None
    headings = ["arms", "runs", "updates", "memory of a step, MiB"]
    headings += ["compile, s", "update, ms", "unfinished runs, min"] if measured else []
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "arms" else "right")
    for group in figures["groups"]:
        cells = [str(group["runs"]), f"{group['updates']:,}"]
        cells.append(f"{group['memory_bytes']['total'] / 2**20:,.1f}")
        if measured:
            found = Measured(**group["measured"])
            cells += [f"{found.compile:.1f}", f"{1e3 * found.update:.2f} ± {found.spread:.0%}"]
            cells.append(f"{group['seconds'] / 60:.1f}")
        table.add_row(escape(", ".join(group["arms"])), *cells)
    console().print(table)
    if not measured:
        print("time: not measured; add --measure")
        return
    spread = max(group["measured"]["spread"] for group in figures["groups"])
    print(
        f"time: about {figures['seconds'] / 60:.1f} min on {figures['measured_on']}, one run after "
        f"another; timings here differed by ± {spread:.0%}, and another load or device differs more"
    )


def _resolution(figures: dict[str, Any]) -> str:
    found, seeds = figures["resolvable"], len(figures["seeds"])
    known = found["noise"] is not None
    unit = figures["loss_unit"] if known else "sd of the noise"

    def text(value: float) -> str:
        return f"{value:.4f}" if known else f"{value:.2f}"

    others = ", ".join(
        f"{number}: {text(value)}"
        for number, value in found["differences"].items()
        if value is not None and number != seeds
    )
    noise = f"noise sd {found['noise']:.4f}, {found['origin']}" if known else "noise not given"
    if found["difference"] is None:
        first = "one seed leaves no noise to judge a difference by; give more"
    else:
        first = (
            f"smallest difference that {seeds} seeds resolve: {text(found['difference'])} {unit}"
        )
    return f"{first} ({found['comparisons']} comparisons, {noise}); by number of seeds: {others}"


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    for name in ("config", "workdir", "pilot"):
        flags.DEFINE_string(name, None, name, flag_values=values)
    flags.DEFINE_float("noise", None, "noise", flag_values=values)
    for name in ("measure", "json"):
        flags.DEFINE_bool(name, False, name, flag_values=values)
    read_flags(values, argv, stray="write --config FILE and --config.PATH=VALUE")
    if not values.config:
        raise SpecError("--config", "is missing; add --config FILE.")
    if values.noise is not None and values.pilot is not None:
        raise SpecError("--noise", "and --pilot both say what the noise is; give one of them.")
    if values.noise is not None and not 0 < values.noise < math.inf:
        raise SpecError("--noise", f"must be a positive number, got {values.noise}.")
    return values
