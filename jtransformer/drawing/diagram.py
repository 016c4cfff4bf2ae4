"""The diagram of a model as plain data: boxes in their order, what they hold, what joins them.

Nothing here knows how it will look. A renderer reads a `Diagram` and nothing else, so that a
picture and a table of the same model cannot disagree.
"""

import dataclasses
from collections.abc import Iterator
from typing import Literal, NamedTuple

Role = Literal[
    "input",
    "embedding",
    "position",
    "norm",
    "attention",
    "ffn",
    "product",
    "dropout",
    "scale",
    "sum",
    "stream",
    "head",
]
Shape = tuple[str | int, ...]
"""Axes of a value: numbers, and the letters B, T and S of what a call decides."""

MEMORY, TABLE = "memory", "table"
"""What links lead from one box to another."""


class Value(NamedTuple):
    """What leaves a box.

    Attributes:
        name: What `jtransformer.modules.intermediates` calls it, inside its layer or its stack.
        shape: Its axes.
    """

    name: str
    shape: Shape


class Mask(NamedTuple):
    """A small picture of which keys a query sees.

    Attributes:
        cells: Rows are queries, columns keys; True is visible.
        words: What it is, in words.
        step: How many tokens lie between two neighbours in the picture.
    """

    cells: tuple[tuple[bool, ...], ...]
    words: str
    step: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Box:
    """One part.

    Attributes:
        key: Its name in the diagram, unique there.
        role: What kind of part it is.
        title: What it is called.
        facts: What else is to be known, a line each.
        values: What leaves it, in the order in which the values come to be.
        paths: Where its parameters lie in the tree, its own ones.
        parameters: How many those are, in one layer.
        shares: Path of parameters that another box has and this one reads too; empty is none.
        mask: Which keys its queries see.
        rows: Boxes inside of it, row by row, over the same columns in each; None is an empty
            column. A box reads those that stand nearest above it.
        span: Columns that it takes where it is inside of another.
        aside: Whether the stream does not pass through it.
    """

    key: str
    role: Role
    title: str
    facts: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    paths: tuple[str, ...] = ()
    parameters: int = 0
    shares: str = ""
    mask: Mask | None = None
    rows: tuple[tuple["Box | None", ...], ...] = ()
    span: int = 1
    aside: bool = False


Row = tuple[Box | None, ...]
"""Boxes inside of another beside one another; None is an empty column."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Residual:
    """A sum of the stream and one branch or several, which all read the same.

    Attributes:
        before: What all branches share.
        branches: The boxes of each branch.
        add: The sum.
        after: What follows it, still inside of the sublayer.
        has_stream: Whether the stream is part of the sum.
    """

    before: tuple[Box, ...] = ()
    branches: tuple[tuple[Box, ...], ...]
    add: Box
    after: tuple[Box, ...] = ()
    has_stream: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layers:
    """Layers that are alike, or a pattern of them, drawn once.

    Attributes:
        key: Its name in the diagram, unique there.
        repeat: How often it stands behind itself.
        first: The first layer in it, counted from 0.
        layers: How many layers it stands for, repetitions included.
        nodes: Residual sums of one layer, or groups of a pattern.
    """

    key: str
    repeat: int
    first: int
    layers: int
    nodes: tuple["Node", ...]

    @property
    def is_layer(self) -> bool:
        """Whether one pass through it is one layer."""
        return not isinstance(self.nodes[0], Layers)


Node = Box | Residual | Layers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stack:
    """What data pass from top to bottom.

    Attributes:
        key: Its name in the diagram; empty where it is the only one.
        title: What it is called.
        facts: What holds for all of it, a line each.
        nodes: Its parts.
    """

    key: str
    title: str
    facts: tuple[str, ...] = ()
    nodes: tuple[Node, ...]


class Link(NamedTuple):
    """What joins two boxes beside the stream: a memory that is read, or a matrix that is shared.

    Attributes:
        start: Key of the box that has it.
        end: Key of the box that reads it.
        what: `MEMORY` or `TABLE`.
    """

    start: str
    end: str
    what: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagram:
    """A model.

    Attributes:
        name: What the user calls it.
        facts: Its sizes, and what holds for all of it.
        stacks: Its stacks; the last has the head.
        links: What joins boxes beside the stream.
        total: Number of its parameters.
    """

    name: str
    facts: tuple[str, ...]
    stacks: tuple[Stack, ...]
    links: tuple[Link, ...]
    total: int


class Placed(NamedTuple):
    """A box, and in how many layers it stands."""

    box: Box
    times: int


def inside_of(box: Box) -> tuple[Box, ...]:
    """Returns the boxes inside of one, row by row."""
    return tuple(part for row in box.rows for part in row if part is not None)


def boxes_of(diagram: Diagram) -> Iterator[Placed]:
    """Yields every box, those inside of others too, in the order of the data."""
    for stack in diagram.stacks:
        yield from boxes_within(stack.nodes)


def boxes_within(nodes: tuple[Node, ...], times: int = 1) -> Iterator[Placed]:
    """Yields the boxes of some nodes, each layer once.

    Args:
        nodes: The nodes.
        times: How often they stand in the model.
    """
    for node in nodes:
        match node:
            case Box():
                yield Placed(node, times)
                yield from boxes_within(inside_of(node), times)
            case Residual():
                parts = (*node.before, *(box for branch in node.branches for box in branch))
                yield from boxes_within((*parts, node.add, *node.after), times)
            case Layers():
                yield from boxes_within(node.nodes, times * node.repeat)


def parameters_within(nodes: tuple[Node, ...]) -> int:
    """Returns how many parameters some nodes have, all layers counted."""
    return sum(box.parameters * times for box, times in boxes_within(nodes))
