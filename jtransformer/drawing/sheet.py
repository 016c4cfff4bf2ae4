"""One diagram, or two beside one another with what differs."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jtransformer.drawing.describe import describe
from jtransformer.drawing.diagram import Box, Diagram, Layers, Node, Residual, inside_of
from jtransformer.drawing.shapes import Mark
from jtransformer.spec import ModelSpec, SpecError, differences, to_tree

COMPARED = "≠ another in the other model. + in this model alone."


class Sheet(NamedTuple):
    """What is drawn.

    Attributes:
        diagrams: One or two.
        marks: What the comparison says of the boxes of each, by key; nothing of those alike.
        settings: The settings that differ, with both values, a line each.
    """

    diagrams: tuple[Diagram, ...]
    marks: tuple[Mapping[str, Mark], ...]
    settings: tuple[str, ...]


def sheet(model: ModelSpec, name: str) -> Sheet:
    """Returns the sheet of one model.

    Args:
        model: The model.
        name: What it is called.
    """
    return Sheet((describe(model, name),), ({},), ())


def compared(first: tuple[str, ModelSpec], second: tuple[str, ModelSpec]) -> Sheet:
    """Returns two models beside one another.

    Args:
        first: The name and the model that is drawn on the left.
        second: The other.

    Raises:
        SpecError: If they are one and the same model.
    """
    (name, model), (other_name, other) = first, second
    trees = to_tree(model), to_tree(other)
    found = differences(*trees)
    if not found:
        raise SpecError("--against", f"= {other_name!r} is the same model as {name!r}; leave it "
                        "out, or change a setting of the model.")  # fmt: skip
    diagrams = describe(model, name), describe(other, other_name)
    ours, theirs = (dict(_contents(diagram)) for diagram in diagrams)
    marks = (_marks(ours, theirs), _marks(theirs, ours))
    settings = tuple(
        f"model.{path}: {_shown(a)} → {_shown(b)}"
        for path, (a, b) in found.items()
        # Of a choice that is another, the settings have no counterpart.
        if not isinstance(a, dict) and not isinstance(b, dict)
    )
    return Sheet(diagrams, marks, settings)


def _shown(value: Any) -> str:
    return str(value) if value != "" else "none"


def _marks(
    own: Mapping[str, tuple[str, Any]], others: Mapping[str, tuple[str, Any]]
) -> dict[str, Mark]:
    found: dict[str, Mark] = {}
    for name, (key, content) in own.items():
        if name not in others:
            found[key] = "only"
        elif content != others[name][1]:
            found[key] = "changed"
    return found


def _contents(diagram: Diagram) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Yields every box and group by a name that is the same in any diagram: key and content.

    The stack that the head reads is the main one, whether there is another or not.
    """
    main = diagram.stacks[-1].key
    for stack in diagram.stacks:
        for key, content in _parts(stack.nodes):
            name = key.removeprefix(f"{main}/") if stack.key == main else key
            yield name, (key, content)


def _parts(nodes: tuple[Node, ...]) -> Iterator[tuple[str, Any]]:
    for node in nodes:
        match node:
            case Box():
                # What is inside is compared by itself; where parameters lie is no matter here,
                # nor which box of a sublayer is its last.
                shown = dataclasses.replace(node, key="", rows=(), paths=(), shares="")
                is_sum = node.role == "sum"
                yield node.key, dataclasses.replace(shown, values=()) if is_sum else shown
                yield from _parts(inside_of(node))
            case Residual():
                inside = (*node.before, *(box for branch in node.branches for box in branch))
                yield from _parts((*inside, node.add, *node.after))
            case Layers():
                yield node.key, (node.repeat, node.first, node.layers)
                yield from _parts(node.nodes)
