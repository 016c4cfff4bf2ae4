"""Bytes that one device reads and writes in its main memory, in one call of a compiled program.

XLA's own count takes a loop once. Here every instruction that is not inside of a fusion reads its
operands and writes its result, as often as its computation runs (`jtransformer.ahead.hlo`). What
only takes a slice of an operand, or writes one into it in place, counts the slice; what lies in
memory on the chip (VMEM of a TPU) counts nothing. A kernel that XLA does not see into reads and
writes its arguments once. What caches hold for the next instruction is counted all the same, so
that on a CPU or GPU this is an upper bound.
"""

from jtransformer.ahead.hlo import Computation, HloModule, Instruction, Shape

FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "add-dependency",
    "opt-barrier", "partition-id", "replica-id", "domain", "while", "call", "conditional",
    "async-start", "async-update", "async-done",
}  # fmt: skip
"""What moves nothing itself; the computations that some of these call are counted."""
ALLOCATIONS = 'custom_call_target="AllocateBuffer"'


def memory_bytes(program: HloModule) -> int:
    """Counts the bytes that one device moves to and from its main memory."""
    return sum(
        run.times * _moved(program, run.computation, instruction)
        for run in program.runs()
        if not run.is_fused
        for instruction in run.computation.instructions.values()
    )


def _moved(program: HloModule, computation: Computation, instruction: Instruction) -> int:
    opcode = instruction.opcode
    if opcode in FREE or opcode.endswith("-done") or ALLOCATIONS in instruction.attributes:
        return 0
    operands = [_nbytes(shapes) for shapes in computation.operands(instruction)]
    result = _nbytes(instruction.result)
    if opcode == "fusion":
        inside = program.computations[instruction.called("calls")[0]]
        return _fused(inside, operands, result)
    if opcode.endswith("-start"):
        # The result of what is started holds the operand too.
        return operands[0] + max(0, result - operands[0])
    if opcode in ("dynamic-slice", "slice", "gather"):
        return 2 * result + sum(operands[1:])
    if opcode == "dynamic-update-slice":
        return 2 * operands[1]
    if opcode == "scatter":
        return sum(operands[1:]) + operands[-1]
    return sum(operands) + result


def _fused(inside: Computation, operands: list[int], result: int) -> int:
    """Counts what a fusion reads and writes, slices of its operands alone where it takes those."""
    in_place = _updated(inside)
    moved = result if in_place is None else in_place[1]
    for instruction in inside.instructions.values():
        if instruction.opcode != "parameter":
            continue
        place = int(instruction.given)
        if in_place is not None and instruction.name == in_place[0]:
            continue
        sliced = _sliced(inside, instruction.name)
        moved += operands[place] if sliced is None else min(operands[place], sliced)
    return moved


def _updated(inside: Computation) -> tuple[str, int] | None:
    """Returns the parameter that a fusion writes a slice into, and the bytes of the slice."""
    root = inside.origin(inside.root.name)
    if root.opcode != "dynamic-update-slice":
        return None
    base = inside.origin(root.operands[0])
    update = inside.instructions[root.operands[1]]
    return None if base.opcode != "parameter" else (base.name, _nbytes(update.result))


def _sliced(inside: Computation, name: str) -> int | None:
    """Returns the bytes that are taken of a value which is only sliced, else None."""
    taken = 0
    for user in inside.instructions.values():
        if name not in user.operands:
            continue
        if user.opcode == "bitcast":
            below = _sliced(inside, user.name)
            if below is None:
                return None
            taken += below
        elif user.opcode in ("dynamic-slice", "slice", "gather") and user.operands[0] == name:
            taken += _nbytes(user.result)
        else:
            return None
    return taken


def _nbytes(shapes: tuple[Shape, ...]) -> int:
    return sum(shape.nbytes for shape in shapes if shape.space == 0)
