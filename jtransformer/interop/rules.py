"""Which of their tensors holds which of our parameters: rules, and helpers that write several.

A family is a list of rules. Names of ours are paths below "params", joined by "/".
"""

import dataclasses
from collections.abc import Iterator
from typing import Protocol

from jtransformer.interop.layouts import (
    Concatenated,
    Flat,
    Grouped,
    Layout,
    Same,
    Transposed,
)
from jtransformer.spec import LayerNorm, ModelSpec


@dataclasses.dataclass(frozen=True)
class Rule:
    """One of their tensors and what it holds.

    Attributes:
        theirs: Its name.
        ours: Paths of the parameters that it holds.
        layout: How it holds them.
        copies: Other names under which the same tensor may be stored, as a tied head is: each may
            stand for it, and must be equal to it where both are there.
    """

    theirs: str
    ours: tuple[str, ...]
    layout: Layout
    copies: tuple[str, ...] = ()


class Matrix(Protocol):
    """A layout of matrices, by the number of axes that are inputs: `Transposed`, `Straight`."""

    def __call__(self, inputs: int = 1) -> Layout: ...


def table(theirs: str, ours: str, *, copies: tuple[str, ...] = ()) -> Rule:
    """Returns the rule of a table, whose rows are looked up.

    Args:
        theirs: Their module.
        ours: Our module.
        copies: Their modules that may hold it too.
    """
    others = tuple(f"{name}.weight" for name in copies)
    return Rule(f"{theirs}.weight", (f"{ours}/table",), Same(), others)


def dense(
    theirs: str, ours: str, *, bias: bool, inputs: int = 1, matrix: Matrix = Transposed
) -> Iterator[Rule]:
    """Yields the rules of a matrix, and of its bias where there is one.

    Args:
        theirs: Their module.
        ours: Our module.
        bias: Whether it has a bias.
        inputs: Axes of our kernel that are inputs; 2 for the output of attention.
        matrix: How their matrix lies.
    """
    yield Rule(f"{theirs}.weight", (f"{ours}/kernel",), matrix(inputs))
    if bias:
        yield Rule(f"{theirs}.bias", (f"{ours}/bias",), Flat())


def joined(
    theirs: str,
    ours: tuple[str, ...],
    *,
    bias: bool,
    matrix: Matrix = Transposed,
    grouped: bool = False,
) -> Iterator[Rule]:
    """Yields the rules of several matrices that are one of theirs, and of their biases.

    Args:
        theirs: Their module.
        ours: Our modules: queries, keys and values, or gate and up.
        bias: Whether they have biases.
        matrix: How their matrix lies.
        grouped: Whether queries, keys and values alternate by key heads.
    """
    join = Grouped if grouped else Concatenated
    yield Rule(f"{theirs}.weight", tuple(f"{name}/kernel" for name in ours), join(matrix(1)))
    if bias:
        yield Rule(f"{theirs}.bias", tuple(f"{name}/bias" for name in ours), join(Flat()))


def norm(spec: ModelSpec, theirs: str, ours: str) -> Iterator[Rule]:
    """Yields the rules of one of the model's norms."""
    yield Rule(f"{theirs}.weight", (f"{ours}/scale",), Flat())
    if isinstance(spec.norm, LayerNorm) and spec.norm.bias:
        yield Rule(f"{theirs}.bias", (f"{ours}/bias",), Flat())


def scale(theirs: str, ours: str) -> Rule:
    """Returns the rule of a norm inside attention, which has a scale alone."""
    return Rule(f"{theirs}.weight", (f"{ours}/scale",), Flat())


def qkv(attention: str) -> tuple[str, str, str]:
    """Returns our modules of queries, keys and values below an attention."""
    return f"{attention}/query", f"{attention}/key", f"{attention}/value"
