"""A planned sweep as tables and sentences for the terminal."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from jtransformer import records
from jtransformer.cli.progress import console
from jtransformer.cli.timings import Timings
from jtransformer.cli.units import as_bytes, as_time


def print_plan(manifest: dict[str, Any]) -> None:
    """Prints the arms of a sweep with their sizes, and what is tuned."""
    _print_arms(manifest["arms"], collections.Counter(cell["arm"] for cell in manifest["cells"]))
    search = {part: value for part, value in manifest["search"].items() if value is not None}
    print(f"tuned per arm: {manifest['nuisance']}; search: {search}; seeds: {manifest['seeds']}")


def print_figures(figures: dict[str, Any]) -> None:
    """Prints what `jtransformer plan` has found."""
    _print_arms(figures["arms"], {arm["name"]: arm["runs"] for arm in figures["arms"]})
    _print_groups(figures)
    print(
        f"in all: {figures['tokens']:,} tokens, {figures['training_flops']:.3g} operations, "
        f"checkpoints of at most {figures['disk_bytes'] / 2**20:,.0f} MiB; "
        f"{figures['complete']} of {figures['runs']} runs are complete"
    )
    if figures["later_runs"]:
        print("runs that will be decided from results (rungs, wider ranges) are not in this")
    print(_resolution(figures))
    if "topology" in figures:
        print(_shortages(figures))


def _print_arms(arms: Sequence[dict[str, Any]], runs: Mapping[str, int]) -> None:
    differing = [
        name for name in arms[0]["mismatches"] if any(arm["mismatches"][name] for arm in arms)
    ]
    table = Table(title=f"{len(arms)} arms, {sum(runs.values())} runs")
    columns = ("arm", "solved", "runs", "parameters", "training MFLOP/token")
    for heading in (*columns, *(f"Δ {name.replace('_', ' ')}" for name in differing)):
        table.add_column(heading, justify="left" if heading in ("arm", "solved") else "right")
    for arm in arms:
        solved = ", ".join(f"{path.split('.')[-1]} {n}" for path, n in arm["matched"].items())
        apart = [arm["mismatches"][name] for name in differing]
        table.add_row(
            escape(arm["name"] + (" (baseline)" if arm["name"] == arm["baseline"] else "")),
            escape(solved),
            str(runs[arm["name"]]),
            f"{arm['parameters']:,}",
            f"{arm['training_flops_per_token'] / 1e6:.3f}",
            *("—" if value is None else f"{value:+.3%}" for value in apart),
        )
    console().print(table)
    for line in start_lines(arms):
        print(line)


def start_lines(arms: Sequence[dict[str, Any]]) -> list[str]:
    """Says what arms take over from other parameters, and warns where that is unequal."""
    starts = {arm["name"]: arm.get("start") for arm in arms}
    if not any(starts.values()):
        return []
    lines = [
        f"{name} starts anew"
        if start is None
        else f"{name} takes over from {start['directory']}: {records.taken_sentence(start)}"
        for name, start in starts.items()
    ]
    for scale in dict.fromkeys(arm["scale"] for arm in arms):
        own = {arm["name"]: arm.get("start") for arm in arms if arm["scale"] == scale}
        unequal = records.unequal_starts(own)
        lines += [] if unequal is None else [f"Warning: {unequal}."]
    return lines


def _print_groups(figures: dict[str, Any]) -> None:
    table = Table(title=f"{len(figures['groups'])} groups of runs that share a program")
    measured = figures["measured_on"] is not None
    headings = ["arms", "runs", "updates", "memory of a step, MiB"]
    headings += ["compile, s", "update, ms", "unfinished runs, min"] if measured else []
    ahead = "topology" in figures
    headings += ["of one device there", "fits", "update there", "device-hours"] if ahead else []
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "arms" else "right")
    for group in figures["groups"]:
        cells = [str(group["runs"]), f"{group['updates']:,}"]
        cells.append(f"{group['memory_bytes']['total'] / 2**20:,.1f}")
        if measured:
            found = Timings(**group["measured"])
            cells += [f"{found.compile:.1f}", f"{1e3 * found.update:.2f} ± {found.spread:.0%}"]
            cells.append(f"{group['seconds'] / 60:.1f}")
        if ahead:
            cells += _ahead(group)
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


def _ahead(group: dict[str, Any]) -> list[str]:
    """Returns what is known of a group on devices that are not here."""
    found, seconds = group["ahead"], group["device_seconds"]
    memory = as_bytes(found["memory"]["total"]) if "memory" in found else "—"
    if found["refusal"] is not None:
        return [memory, "no", "", ""]
    if seconds is None:
        return [memory, "yes", "—", "—"]
    return [memory, "yes", as_time(found["roofline"]["seconds"]), f"{seconds / 3600:,.1f}"]


def _shortages(figures: dict[str, Any]) -> str:
    """Says which arms cannot be trained on the devices that were asked about."""
    where = f"{figures['topology']}, mesh {figures['mesh']}"
    short = [group for group in figures["groups"] if group["ahead"]["refusal"] is not None]
    if not short:
        return f"every arm fits {where}; times there are estimates"
    lines = [f"{len(short)} of {len(figures['groups'])} groups do not fit {where}:"]
    for group in short:
        lines.append(f"  {', '.join(group['arms'])}: {group['ahead']['refusal']}")
    return "\n".join(
        [*lines, "  other meshes: jtransformer compile --search; or take more or larger devices"]
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
