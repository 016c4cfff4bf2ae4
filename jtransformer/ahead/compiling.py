"""The one entry: programs of a run, compiled for a topology, and what the compiler knows of them.

What a compiler found is kept in a cache, if there is one (`jtransformer.ahead.keys`); what is only
computed from the spec is computed each time.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax

from jtransformer import records
from jtransformer.ahead.collectives import Collective, collectives
from jtransformer.ahead.hlo import parse
from jtransformer.ahead.keys import digest_of, key_of, versions
from jtransformer.ahead.memory import (
    EXHAUSTED,
    DeviceMemory,
    Reserved,
    device_memory,
    refused,
    reserved,
)
from jtransformer.ahead.programs import (
    Decoding,
    Lowered,
    What,
    decoding_of,
    device_bytes,
    lower,
    programs_of,
)
from jtransformer.ahead.roofline import Roofline, Work, roofline
from jtransformer.ahead.topologies import Topology, check_layout, default_layout, topology
from jtransformer.ahead.traffic import memory_bytes
from jtransformer.ahead.work import decoding_work, training_work
from jtransformer.spec import Layout, RunSpec


@dataclasses.dataclass(frozen=True)
class Findings:
    """What a compiler knows of a program; plain data, all of one device.

    Attributes:
        reserved: Memory.
        collectives: What is sent; nothing of a program that was refused.
        memory_bytes: Bytes moved to and from memory; 0 likewise.
        unknown_loops: Loops whose number of turns the text does not tell: they count once.
        seconds: Time that the compiler took.
    """

    reserved: Reserved
    collectives: tuple[Collective, ...]
    memory_bytes: int
    unknown_loops: int
    seconds: float

    def to_record(self) -> dict[str, Any]:
        """Returns plain data."""
        return {**dataclasses.asdict(self), "reserved": self.reserved._asdict()}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Findings":
        """Reads what `to_record` wrote."""
        return cls(
            **record
            | {
                "reserved": Reserved(**record["reserved"]),
                "collectives": tuple(Collective(**one) for one in record["collectives"]),
            }
        )


@dataclasses.dataclass(frozen=True)
class Compiled:
    """One program of a run, for a topology.

    Attributes:
        what: "train": an update. "decode": one token of every row.
        fingerprint: Of the program, before it was compiled.
        lower_seconds: Time that tracing and lowering took.
        compile_seconds: Time that the compiler took, now or when the cache was filled.
        cached: Whether it did not run now.
        memory: Of one device, by kind.
        collectives: What one device sends, by kind.
        unknown_loops: Loops that count once, because their turns are not known; the loop over
            tokens of "decode" does so on purpose and is left out.
        work: What a step does.
        roofline: How long that takes; None where the chip is not known, or nothing was compiled.
    """

    what: What
    fingerprint: str
    lower_seconds: float
    compile_seconds: float
    cached: bool
    memory: DeviceMemory
    collectives: tuple[Collective, ...]
    unknown_loops: int
    work: Work
    roofline: Roofline | None

    def to_record(self) -> dict[str, Any]:
        """Returns plain data."""
        return {
            **{name: getattr(self, name) for name in PLAIN},
            "memory": self.memory.to_record(),
            "collectives": [dataclasses.asdict(one) for one in self.collectives],
            "work": self.work._asdict(),
            "roofline": None if self.roofline is None else self.roofline._asdict(),
        }


PLAIN = ("what", "fingerprint", "lower_seconds", "compile_seconds", "cached", "unknown_loops")


@dataclasses.dataclass(frozen=True)
class CompileReport:
    """All programs of a run that were compiled.

    Attributes:
        topology: Name of the devices.
        chip: What they are; None where the figures are not known.
        devices: How many there are.
        layout: The layout, as `Layout.label`.
        versions: Releases of what takes part.
        programs: What was compiled, by name.
    """

    topology: str
    chip: str | None
    devices: int
    layout: str
    versions: dict[str, str]
    programs: dict[What, Compiled]

    @property
    def fits(self) -> bool:
        """Whether every program fits into the memory of a device."""
        return all(program.memory.fits for program in self.programs.values())

    def to_record(self) -> dict[str, Any]:
        """Returns plain data, which JSON can hold."""
        programs = {name: program.to_record() for name, program in self.programs.items()}
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**own, "programs": programs, "fits": self.fits}


def compile_run(
    spec: RunSpec,
    on: Topology | str,
    layout: Layout | None = None,
    *,
    what: tuple[What, ...] | None = None,
    decoding: Decoding | None = None,
    cache: Path | None = None,
) -> CompileReport:
    """Compiles what a run calls, for devices that need not be here.

    Args:
        spec: The run; its corpus is not read.
        on: The devices, or their name; see `topology`.
        layout: How the run is laid over them; None divides rows and parameters over all.
        what: Programs to compile; None is all that the model has.
        decoding: Rows and cache of "decode"; None is those of a batch.
        cache: Directory in which findings are kept; it is made. None keeps nothing.

    Raises:
        ValueError: If there are no such devices, the layout is for another number of them, or the
            model does not decode.
        DamagedRecord: If a file of the cache cannot be read.
    """
    found = topology(on) if isinstance(on, str) else on
    layout = default_layout(found) if layout is None else layout
    check_layout(layout, found)
    asked = decoding_of(spec) if decoding is None else decoding
    programs = {}
    for one in programs_of(spec) if what is None else what:
        lowered = lower(one, spec, found, layout, asked)
        findings, cached = _looked_up(lowered, key_of(lowered, found, layout), cache)
        programs[one] = _report(lowered, findings, cached, (spec, found, layout, asked))
    return CompileReport(
        topology=found.name,
        chip=None if found.chip is None else found.chip.name,
        devices=layout.devices,
        layout=layout.label,
        versions=versions(),
        programs=programs,
    )


def _looked_up(lowered: Lowered, key: dict[str, Any], cache: Path | None) -> tuple[Findings, bool]:
    """Returns what the cache knows of a program, else what the compiler finds; and which it was."""
    if cache is None:
        return _found(lowered), False
    path = cache / f"{lowered.what}-{digest_of(key)}.json"
    if path.exists():
        return _kept(path), True
    findings = _found(lowered)
    cache.mkdir(parents=True, exist_ok=True)
    records.write_json(path, {"key": key, "found": findings.to_record()})
    return findings, False


def _kept(path: Path) -> Findings:
    """Reads what a file of the cache says."""
    record = records.read_json(path)
    try:
        return Findings.from_record(record["found"])
    except (KeyError, TypeError) as error:
        raise records.DamagedRecord(
            f"{path} is damaged (it holds no findings); delete it to have it made again."
        ) from error


def _found(lowered: Lowered) -> Findings:
    """Compiles a program."""
    begun = time.perf_counter()
    try:
        compiled = lowered.program.compile()
    except jax.errors.JaxRuntimeError as error:
        if EXHAUSTED not in str(error):
            raise
        short = refused(str(error), sum(map(device_bytes, lowered.held.values())))
        return Findings(short, (), 0, 0, time.perf_counter() - begun)
    seconds = time.perf_counter() - begun
    text = parse(compiled.as_text())
    return Findings(
        reserved(compiled),
        tuple(collectives(text)),
        memory_bytes(text),
        text.unknown_loops(),
        seconds,
    )


def _report(
    lowered: Lowered,
    findings: Findings,
    cached: bool,
    asked: tuple[RunSpec, Topology, Layout, Decoding],
) -> Compiled:
    spec, found, layout, decoding = asked
    moved = dict(
        memory_bytes=findings.memory_bytes,
        network_bytes=sum(one.sent for one in findings.collectives),
    )
    if lowered.what == "train":
        work = training_work(spec, **moved)
    else:
        work = decoding_work(spec, decoding, **moved)
    line = None
    if found.chip is not None and findings.reserved.refusal is None:
        line = roofline(work, found.chip, devices=layout.devices)
    return Compiled(
        what=lowered.what,
        fingerprint=lowered.fingerprint,
        lower_seconds=lowered.seconds,
        compile_seconds=findings.seconds,
        cached=cached,
        memory=device_memory(lowered, findings.reserved, spec, layout, found.capacity),
        collectives=findings.collectives,
        unknown_loops=findings.unknown_loops - (lowered.what == "decode"),
        work=work,
        roofline=line,
    )
