"""The text of a compiled program (HLO), read as computations that call one another.

XLA's own count (`cost_analysis`) takes the body of a loop once, whatever its length. Here every
computation knows how often it runs: the compiler writes a loop's number of turns down
(`known_trip_count`, on CPU and GPU), or it follows from the comparison that ends the loop (TPU).
Of the branches of a condition each counts as taken, which is an upper bound.

Shapes are those of one device: the text is of a program already cut for its mesh.
"""

import collections
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

BITS = {
    "pred": 8, "token": 0, "opaque": 0,
    "s2": 2, "u2": 2, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16,
    "s32": 32, "u32": 32, "s64": 64, "u64": 64,
    "bf16": 16, "f16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128,
    "f4e2m1fn": 4, "f8e3m4": 8, "f8e4m3": 8, "f8e4m3b11fnuz": 8, "f8e4m3fn": 8,
    "f8e4m3fnuz": 8, "f8e5m2": 8, "f8e5m2fnuz": 8, "f8e8m0fnu": 8,
}  # fmt: skip
"""Bits of a number of each type."""

HEADER = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .* \{")
ASSIGNMENT = re.compile(r"\s+(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = ")
SHAPE = re.compile(r"(?P<type>[a-z]\w*)\[(?P<sizes>[\d,<=]*)\](?P<layout>\{[^}]*\})?")
SPACE = re.compile(r"S\((\d+)\)")
CALLS = re.compile(
    r"(calls|to_apply|body|condition|branch_computations|called_computations|"
    r"true_computation|false_computation)=(\{[^}]*\}|%?[\w.\-]+)"
)
NAMES = re.compile(r"%?([\w.\-]+)")
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
INDEX = re.compile(r"\bindex=(\d+)")
PARTITIONS = re.compile(r"\bnum_partitions=(\d+)")
UNCHANGED = ("copy", "bitcast", "convert", "reshape")
"""What hands a number on as it is."""


class Shape(NamedTuple):
    """An array on one device.

    Attributes:
        type: Type of its numbers, as "bf16".
        sizes: Of its axes.
        space: Where it lies; 0 is the device's main memory, others are on the chip or the host.
    """

    type: str
    sizes: tuple[int, ...]
    space: int

    @property
    def nbytes(self) -> int:
        """Its bytes, without what a tiled layout adds."""
        return -(-math.prod(self.sizes) * BITS[self.type] // 8)


class Instruction(NamedTuple):
    """One line of a computation.

    Attributes:
        name: Its name, by which others use it.
        opcode: What it does, as "all-reduce".
        result: What it makes; several arrays where that is a tuple.
        operands: Names of what it uses, in order.
        given: What stands between the parentheses; the number itself, of a constant.
        attributes: What stands behind them.
    """

    name: str
    opcode: str
    result: tuple[Shape, ...]
    operands: tuple[str, ...]
    given: str
    attributes: str

    def called(self, *roles: str) -> list[str]:
        """Returns the names of the computations that it calls in such roles, as "body"."""
        found = [text for role, text in CALLS.findall(self.attributes) if role in roles]
        return [name for text in found for name in NAMES.findall(text)]


class Computation(NamedTuple):
    """Instructions by name, in order, and the one whose result is returned."""

    name: str
    instructions: dict[str, Instruction]
    root: Instruction

    def operands(self, instruction: Instruction) -> list[tuple[Shape, ...]]:
        """Returns the shapes of what an instruction uses."""
        return [self.instructions[name].result for name in instruction.operands]

    def origin(self, name: str) -> Instruction:
        """Returns what a value comes from, unchanged."""
        found = self.instructions[name]
        while found.opcode in UNCHANGED:
            found = self.instructions[found.operands[0]]
        return found


class Run(NamedTuple):
    """A computation and how often it runs in one call of the program.

    Attributes:
        computation: The computation.
        times: Its number of runs.
        is_fused: Whether it is the inside of a fusion, whose values never reach memory.
    """

    computation: Computation
    times: int
    is_fused: bool


class HloModule(NamedTuple):
    """A compiled program.

    Attributes:
        computations: All of them, by name.
        entry: Name of the one that is called.
        partitions: Devices that it is cut for.
    """

    computations: dict[str, Computation]
    entry: str
    partitions: int

    def runs(self) -> list[Run]:
        """Returns every computation that runs, with how often."""
        times: collections.Counter[tuple[str, bool]] = collections.Counter()
        pending = [(self.entry, 1, False)]
        while pending:
            name, count, is_fused = pending.pop()
            times[name, is_fused] += count
            computation = self.computations[name]
            for instruction in computation.instructions.values():
                for called, turns, fused in self._calls(computation, instruction):
                    pending.append((called, count * turns, is_fused or fused))
        return [
            Run(self.computations[name], count, is_fused)
            for (name, is_fused), count in times.items()
        ]

    def unknown_loops(self) -> int:
        """Counts loops whose number of turns is not known; their bodies count once."""
        return sum(
            instruction.opcode == "while" and self._turns(run.computation, instruction) is None
            for run in self.runs()
            for instruction in run.computation.instructions.values()
        )

    def _calls(
        self, computation: Computation, instruction: Instruction
    ) -> Iterator[tuple[str, int, bool]]:
        """Yields what an instruction calls, how often, and whether as the inside of a fusion."""
        if instruction.opcode == "while":
            turns = self._turns(computation, instruction)
            for body in instruction.called("body"):
                yield body, 1 if turns is None else turns, False
        elif instruction.opcode in ("fusion", "call", "async-start", "conditional"):
            roles = [role for role, _ in CALLS.findall(instruction.attributes)]
            for name in dict.fromkeys(instruction.called(*roles)):
                yield name, 1, instruction.opcode == "fusion"

    def _turns(self, computation: Computation, loop: Instruction) -> int | None:
        """Returns how often the body of a loop runs; None where the text does not tell."""
        if (known := TRIPS.search(loop.attributes)) is not None:
            return int(known.group(1))
        condition = self.computations[loop.called("condition")[0]]
        body = self.computations[loop.called("body")[0]]
        bound = _bound(condition)
        if bound is None:
            return None
        index, last = bound
        first = _constant(computation, _element(computation, loop.operands[0], index))
        step = _step(body, index)
        if first is None or step is None:
            return None
        return max(0, math.ceil((last - first) / step))


def parse(text: str) -> HloModule:
    """Reads the text of a compiled program, as `jax.stages.Compiled.as_text` returns it."""
    computations: dict[str, Computation] = {}
    entry, name, is_entry = "", "", False
    lines: dict[str, Instruction] = {}
    root: Instruction | None = None
    for line in text.splitlines():
        if not line.startswith(" "):
            if (header := HEADER.match(line)) is not None:
                name, is_entry, lines, root = header["name"], bool(header["entry"]), {}, None
            # Kernels write their metadata over several lines, some of which begin with "}}".
            elif line.rstrip() == "}" and name:
                assert root is not None
                computations[name] = Computation(name, lines, root)
                entry, name = (name if is_entry else entry), ""
        elif name and (found := ASSIGNMENT.match(line)) is not None:
            instruction = _instruction(found["name"], line[found.end() :])
            lines[found["name"]] = instruction
            if found["root"]:
                root = instruction
    partitions = PARTITIONS.search(text[: text.find("\n")])
    return HloModule(computations, entry, int(partitions.group(1)) if partitions else 1)


def _instruction(name: str, line: str) -> Instruction:
    shape_end = _end(line, 0, " ")
    opening = line.index("(", shape_end)
    closing = _end(line, opening + 1, ")")
    given = line[opening + 1 : closing]
    opcode = line[shape_end:opening].strip()
    operands = (
        () if opcode in ("constant", "parameter") else tuple(re.findall(r"%([\w.\-]+)", given))
    )
    return Instruction(
        name, opcode, _shapes(line[:shape_end]), operands, given, line[closing + 1 :]
    )


def _end(line: str, begin: int, mark: str) -> int:
    """Returns where `mark` stands first outside of brackets."""
    depth = 0
    for place in range(begin, len(line)):
        if depth == 0 and line[place] == mark:
            return place
        depth += (line[place] in "([{") - (line[place] in ")]}")
    return len(line)


def _shapes(text: str) -> tuple[Shape, ...]:
    found = []
    for match in SHAPE.finditer(text):
        sizes = tuple(int(size.lstrip("<=")) for size in match["sizes"].split(",") if size)
        space = SPACE.search(match["layout"] or "")
        found.append(Shape(match["type"], sizes, int(space.group(1)) if space else 0))
    return tuple(found)


def _bound(condition: Computation) -> tuple[int, int] | None:
    """Returns which element of a loop's state is counted, and the number it stays below."""
    root = condition.root
    if root.opcode != "compare" or "direction=LT" not in root.attributes:
        return None
    counter, last = condition.origin(root.operands[0]), _constant(condition, root.operands[1])
    if counter.opcode != "get-tuple-element" or last is None:
        return None
    index = INDEX.search(counter.attributes)
    return None if index is None else (int(index.group(1)), last)


def _element(computation: Computation, name: str, index: int) -> str | None:
    made = computation.origin(name)
    return made.operands[index] if made.opcode == "tuple" else None


def _constant(computation: Computation, name: str | None) -> int | None:
    if name is None:
        return None
    made = computation.origin(name)
    is_number = made.opcode == "constant" and re.fullmatch(r"-?\d+", made.given)
    return int(made.given) if is_number else None


def _step(body: Computation, index: int) -> int | None:
    """Returns by how much a turn raises an element of the state."""
    name = _element(body, body.root.name, index)
    made = None if name is None else body.origin(name)
    if made is None or made.opcode != "add":
        return None
    steps = [_constant(body, operand) for operand in made.operands]
    known = [step for step in steps if step]
    return known[0] if len(known) == 1 else None
