"""What was compiled ahead of time, as tables and sentences for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from jtransformer.cli.progress import console
from jtransformer.cli.units import as_bytes, as_flop, as_time

STEPS = {"train": "update", "decode": "decoding step"}
"""What the programs of a report are called, and what one call of each does."""
OF_NO_KIND = ("total", "capacity", "fits", "refusal")
"""Parts of a memory record that are no kind of memory."""

Record = Mapping[str, Any]


def print_report(report: Record) -> None:
    """Prints both steps of a run as they are compiled, and last whether they fit.

    Args:
        report: The record of an `ahead.CompileReport`, and "config".
    """
    print(f"{report['config']} on {_devices(report)}, mesh {report['layout']}")
    _print_memory(report)
    for name, program in report["programs"].items():
        print()
        for line in _speed(STEPS[name], program):
            print(line)
        if program["collectives"]:
            _print_collectives(STEPS[name], program)
    print()
    for name, program in report["programs"].items():
        print(_compiled(STEPS[name], program))
    for line in _verdict(report):
        print(line)


def print_search(found: Record) -> None:
    """Prints what a search has tried, what it has not, and the command that uses the best.

    Args:
        found: What `jtransformer compile --search --json` prints.
    """
    table = Table(title=escape(f"{found['config']} on {found['topology']}"))
    left = ("mesh", "rematerialize", "bound", "fits")
    headings = ("mesh", "rematerialize", "microbatches", "memory per device", "fits")
    for heading in (*headings, "update", "bound", "tokens/s", "utilisation", "compiled in"):
        table.add_column(heading, justify="left" if heading in left else "right")
    for one in found["tried"]:
        memory, roofline = one["memory"], one["roofline"]
        speed = ("", "", "", "") if not memory["fits"] else _columns(roofline)
        table.add_row(
            one["mesh"],
            one["rematerialize"],
            str(one["microbatches"]),
            as_bytes(memory["total"]),
            "yes" if memory["fits"] else "no",
            *speed,
            "kept" if one["cached"] else as_time(one["compile_seconds"]),
        )
    console().print(table)
    print(
        f"{found['candidates']} candidates: {len(found['tried'])} compiled, {found['too_large']} "
        f"too large for their state alone, {found['spared']} settled by another of their mesh, "
        f"{found['left']} left untried; times are estimates"
    )
    if found["command"] is None:
        further = "raise --limit, or " if found["left"] else ""
        print(f"none of those compiled fits; {further}take more or larger chips")
    else:
        print(f"to train so: {found['command']}")


def in_short(program: Record) -> str:
    """Says in a line what one program takes."""
    memory, roofline = program["memory"], program["roofline"]
    fits = "fits" if memory["fits"] else "does not fit"
    seconds = "kept" if program["cached"] else f"compiled in {as_time(program['compile_seconds'])}"
    speed = f", about {as_time(roofline['seconds'])}" if memory["fits"] and roofline else ""
    return f"{as_bytes(memory['total'])} a device, {fits}{speed} ({seconds})"


def shortage(memory: Record) -> str | None:
    """Says why a program does not fit; None if it does.

    Args:
        memory: The record of an `ahead.DeviceMemory`.
    """
    if memory["fits"]:
        return None
    if memory["refusal"] is not None:
        return f"the compiler refused it ({memory['refusal']})"
    return f"it takes {as_bytes(memory['total'])} of {as_bytes(memory['capacity'])}"


def _devices(report: Record) -> str:
    devices = report["devices"]
    return f"{report['topology']} ({devices} {'device' if devices == 1 else 'devices'})"


def _print_memory(report: Record) -> None:
    programs = report["programs"]
    kinds = {name for one in programs.values() for name, value in one["memory"].items() if value}
    table = Table(title="memory of one device")
    table.add_column("")
    for name in programs:
        table.add_column(STEPS[name], justify="right")
    memories = [one["memory"] for one in programs.values()]
    for name in memories[0]:
        if name in kinds and name not in OF_NO_KIND:
            table.add_row(
                name, *(as_bytes(memory[name]) if memory[name] else "" for memory in memories)
            )
    table.add_section()
    table.add_row("total", *(as_bytes(memory["total"]) for memory in memories))
    if memories[0]["capacity"] is not None:
        table.add_row("capacity", *(as_bytes(memory["capacity"]) for memory in memories))
        shares = [memory["total"] / memory["capacity"] for memory in memories]
        table.add_row("share", *(f"{share:.1%}" for share in shares))
    console().print(table)


def _speed(step: str, program: Record) -> list[str]:
    """Says what one call computes and moves, and how long it is estimated to take."""
    work, found = program["work"], program["roofline"]
    extra = work["extra_flops"]
    again = f", {as_flop(extra)} computed again" if extra else ""
    lines = [
        f"{step} of {work['tokens']:,} tokens: {as_flop(work['model_flops'])}{again} on all "
        f"devices; one device moves {as_bytes(work['memory_bytes'])} and sends "
        f"{as_bytes(work['network_bytes'])}"
    ]
    if found is None:
        lines.append("  time: no estimate, because the speed of these devices is not known")
        return lines
    parts = ", ".join(
        f"{name} {as_time(found[f'{name}_seconds'])}" for name in ("compute", "memory", "network")
    )
    lines.append(
        f"  time: about {as_time(found['seconds'])} (estimate; {found['bound']} bounds it), at "
        f"least {as_time(found['seconds_at_least'])} ({parts})"
    )
    lines.append(
        f"  speed: {found['tokens_per_second']:,.0f} tokens/s, utilisation "
        f"{found['utilisation']:.1%} of the chips' peak"
    )
    return lines


def _print_collectives(step: str, program: Record) -> None:
    table = Table(title=f"sent in one {step}, by one device")
    for heading in ("collective", "devices", "calls", "bytes", "sent"):
        table.add_column(heading, justify="left" if heading == "collective" else "right")
    for one in program["collectives"]:
        table.add_row(
            one["kind"],
            str(one["devices"]),
            f"{one['count']:,}",
            as_bytes(one["nbytes"]),
            as_bytes(one["sent"]),
        )
    console().print(table)


def _compiled(step: str, program: Record) -> str:
    seconds = program["lower_seconds"], program["compile_seconds"]
    kept = "; kept from an earlier compile" if program["cached"] else ""
    return (
        f"{step}: traced in {as_time(seconds[0])}, compiled in {as_time(seconds[1])}{kept}; "
        f"fingerprint {program['fingerprint'][:16]}"
    )


def _verdict(report: Record) -> list[str]:
    """Says of every step whether it fits."""
    lines = []
    for name, program in report["programs"].items():
        memory = program["memory"]
        if memory["capacity"] is None:
            lines.append(f"{STEPS[name]}: how much memory these devices have is not known")
        elif memory["fits"]:
            free = as_bytes(memory["capacity"] - memory["total"])
            lines.append(f"{STEPS[name]}: fits, with {free} of each device left")
        else:
            lines.append(f"{STEPS[name]}: does not fit: {shortage(memory)}")
    return lines


def _columns(found: Record | None) -> Sequence[str]:
    if found is None:
        return ("",) * 4
    return (
        as_time(found["seconds"]),
        found["bound"],
        f"{found['tokens_per_second']:,.0f}",
        f"{found['utilisation']:.1%}",
    )
