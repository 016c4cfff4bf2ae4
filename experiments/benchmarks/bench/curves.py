"""Measures what a training step costs as one size grows and the others stay."""

from collections.abc import Mapping
from typing import NamedTuple

from .bench import Bench
from .peers import OURS
from .sizes import Size

BASE = Size(L=2, D=128, N=4, F=512, T=128, B=8, V=512)


class Axis(NamedTuple):
    """What grows.

    Attributes:
        title: Its name in figures.
        values: Of the one size.
    """

    title: str
    values: tuple[int, ...]


AXES = {
    "L": Axis("depth, layers", (1, 2, 4, 8)),
    "D": Axis("width D, with F = 4 D and heads of 32", (64, 128, 256, 512)),
    "T": Axis("length, tokens", (64, 128, 256, 512, 1024)),
    "B": Axis("batch, rows", (2, 4, 8, 16, 32)),
    "V": Axis("vocabulary", (512, 2048, 8192, 32768)),
}


def size_at(axis: str, value: int, base: Size = BASE) -> Size:
    """Returns the base with one size changed, and with it what goes along."""
    if axis == "D":
        return base._replace(D=value, F=4 * value, N=max(1, value // 32))
    return base._replace(**{axis: value})


def measure(bench: Bench, axes: Mapping[str, Axis] = AXES, base: Size = BASE) -> None:
    """Times updates at every value of every axis, the values in turn; lines are "curve"."""
    for axis, (_, values) in axes.items():
        each = [{"axis": axis, "value": value} for value in values]
        left = bench.journal.rounds_left(bench.plan.rounds, "curve", each)
        if not left:
            continue
        updates = {}
        for value in values:
            label, size = f"{axis}{value}", size_at(axis, value, base)
            made = bench.ask(OURS, "prepare", label=label, size=list(size))
            updates[value] = bench.updates(2 * made["update_seconds"])
        for round_ in left:
            for value in values:
                seconds = bench.ask(
                    OURS, "time", label=f"{axis}{value}", updates=updates[value]
                )  # fmt: skip
                bench.write("curve", axis=axis, value=value, round=round_, seconds=seconds)
        for value in values:
            bench.ask(OURS, "forget", label=f"{axis}{value}")
