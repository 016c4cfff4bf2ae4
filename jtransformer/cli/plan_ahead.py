"""Which programs of a sweep fit devices that are not here, before those are rented."""

from collections.abc import Sequence
from typing import Any

from jtransformer.cli.progress import say
from jtransformer.cli.targets import Target
from jtransformer.spec import RunSpec


def compile_programs(programs: Sequence[RunSpec], target: Target) -> list[dict[str, Any]]:
    """Compiles the update of each program of a sweep.

    Args:
        programs: A run of each.
        target: What they are compiled for.

    Returns:
        For each the record of an `ahead.Compiled`, and "refusal": why it cannot run there, None
        where it can. What cannot be laid out at all has nothing but that.
    """
    return [
        _compiled(f"[{number}/{len(programs)}]", spec, target)
        for number, spec in enumerate(programs, 1)
    ]


def device_seconds(found: dict[str, Any], updates: int, devices: int) -> float | None:
    """Returns the time of all devices together that updates are estimated to take.

    Args:
        found: What `compile_programs` knows of the program.
        updates: How many.
        devices: How many devices each takes.
    """
    speed = found.get("roofline")
    return None if speed is None else speed["seconds"] * updates * devices


def _compiled(place: str, spec: RunSpec, target: Target) -> dict[str, Any]:
    from jtransformer import ahead
    from jtransformer.cli.compile_tables import in_short, shortage

    try:
        report = ahead.compile_run(
            spec, target.topology, target.layout, what=("train",), cache=target.cache
        )
    except ValueError as error:
        # An arm that this layout cannot hold is what was asked for; the others are still compiled.
        say(f"{place} {error}")
        return {"refusal": str(error)}
    found = report.programs["train"].to_record()
    say(f"{place} {in_short(found)}")
    return {**found, "refusal": shortage(found["memory"])}
