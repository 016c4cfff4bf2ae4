"""What devices send one another in one call of a compiled program.

Bytes are those of the whole array that a collective is about, as one device holds it before or
after: n. By a ring each of g devices sends

| kind | n | sent |
| --- | --- | --- |
| all-gather | what comes out | n (g - 1) / g |
| reduce-scatter | what goes in | n (g - 1) / g |
| all-reduce | what goes in | 2 n (g - 1) / g |
| all-to-all | what goes in | n (g - 1) / g |
| collective-permute | what goes in | n |

(Thakur, Rabenseifner and Gropp 2005, sec. 3 and 4, https://doi.org/10.1177/1094342005051521).
A collective inside a loop counts once for each turn. One among a single device is left out.

The TPU compiler writes a reduce-scatter as a fusion of an all-reduce of which each device keeps a
slice, and a collective that runs beside products as several fusions of one channel: its start, the
products it runs beside and its end. The CPU has no reduce-scatter; there it is an all-reduce.
"""

import collections
import dataclasses
import math
import re

from jtransformer.ahead.hlo import Computation, HloModule, Instruction

KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)
LISTED = re.compile(r"replica_groups=\{\{([\d,]*)\}")
COUNTED = re.compile(r"replica_groups=\[\d+,(\d+)\]")
MESH = re.compile(r"replica_groups=\w+\[([^\]]*)\][^{]*\{([^}]*)\}")
CHANNEL = re.compile(r"\bchannel_id=\d+")
AXIS = re.compile(r"'([^']+)'(?::\(\d+\)(\d+))?(?:=(\d+))?")


@dataclasses.dataclass(frozen=True)
class Collective:
    """All collectives of one kind and size of group.

    Attributes:
        kind: One of `KINDS`.
        devices: Devices of a group [g].
        count: How often one runs in a call of the program.
        nbytes: Bytes that they are about, on one device, all calls together.
        sent: Bytes that one device sends.
    """

    kind: str
    devices: int
    count: int
    nbytes: int
    sent: int


def collectives(program: HloModule) -> list[Collective]:
    """Lists what a compiled program sends, the most first."""
    counts: collections.Counter[tuple[str, int]] = collections.Counter()
    sizes: collections.Counter[tuple[str, int]] = collections.Counter()
    in_parts: set[str] = set()
    for run in program.runs():
        for instruction in run.computation.instructions.values():
            kind = _kind(run.computation, instruction)
            devices = 1 if kind is None else _group(instruction, program.partitions)
            if kind is None or devices == 1:
                continue
            channel = CHANNEL.search(instruction.attributes)
            if run.is_fused and channel is not None:
                if channel.group() in in_parts:
                    continue
                in_parts.add(channel.group())
            counts[kind, devices] += run.times
            sizes[kind, devices] += run.times * _nbytes(kind, run.computation, instruction, devices)
    found = [
        Collective(kind, devices, count, size, sent(kind, size, devices))
        for (kind, devices), count in counts.items()
        for size in [sizes[kind, devices]]
    ]
    return sorted(found, key=lambda one: (-one.sent, one.kind, one.devices))


def sent(kind: str, nbytes: int, devices: int) -> int:
    """Returns the bytes that each device of a group sends; see the module's table.

    Args:
        kind: One of `KINDS`.
        nbytes: Bytes of the whole array [n].
        devices: Devices of the group [g].
    """
    if kind == "collective-permute":
        return nbytes
    passes = 2 if kind == "all-reduce" else 1
    return passes * nbytes * (devices - 1) // devices


def _kind(computation: Computation, instruction: Instruction) -> str | None:
    """Returns which collective an instruction is; None for others, and where one ends."""
    opcode = instruction.opcode.removesuffix("-start").removeprefix("ragged-")
    if opcode not in KINDS:
        return None
    return "reduce-scatter" if computation.name.startswith("all-reduce-scatter") else opcode


def _nbytes(kind: str, computation: Computation, instruction: Instruction, devices: int) -> int:
    operands = computation.operands(instruction)
    if kind == "collective-permute":
        # What follows the first operand of a started one is its bookkeeping.
        operands = operands[:1]
    given = sum(shape.nbytes for shapes in operands for shape in shapes)
    return given * devices if kind == "all-gather" else given


def _group(instruction: Instruction, partitions: int) -> int:
    """Returns how many devices take part together."""
    text = instruction.attributes
    if instruction.opcode.startswith("collective-permute"):
        return partitions
    if (listed := LISTED.search(text)) is not None:
        return len(listed.group(1).split(","))
    if (counted := COUNTED.search(text)) is not None:
        return int(counted.group(1))
    if (mesh := MESH.search(text)) is not None:
        sizes = {name: int(size) for name, _, size in AXIS.findall(mesh.group(1))}
        over = AXIS.findall(mesh.group(2))
        return math.prod(int(part) if part else sizes[name] for name, part, _ in over)
    return partitions
