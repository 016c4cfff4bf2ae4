"""A sheet as lines of text."""

import itertools
import textwrap
from collections.abc import Iterator, Mapping

from jtransformer.drawing.diagram import Box, Diagram, Layers, Mask, Node, Residual, inside_of
from jtransformer.drawing.shapes import SIGNS, Mark
from jtransformer.drawing.sheet import COMPARED, Sheet
from jtransformer.drawing.words import axes, group_words

NARROWEST = 64
"""Columns of characters in which a diagram can still be read."""
_BETWEEN = 4
_HALVES = {(True, True): "█", (True, False): "▀", (False, True): "▄", (False, False): "·"}
Marks = Mapping[str, Mark]


def lines(sheet: Sheet, width: int) -> list[str]:
    """Returns the lines of a sheet.

    Args:
        sheet: What is drawn; two diagrams stand beside one another where there is room.
        width: Columns of characters.
    """
    width = max(width, NARROWEST)
    pairs = list(zip(sheet.diagrams, sheet.marks, strict=True))
    half = (width - _BETWEEN) // 2
    if len(pairs) > 1 and half >= NARROWEST:
        left, right = (list(_diagram(*pair, half)) for pair in pairs)
        rows = itertools.zip_longest(left, right, fillvalue="")
        found = [f"{a:<{half}}{' ' * _BETWEEN}{b}".rstrip() for a, b in rows]
    else:
        found = [line for pair in pairs for line in (*_diagram(*pair, width), "")]
    if sheet.settings:
        wrapped = (textwrap.wrap(words, width) for words in (*sheet.settings, COMPARED))
        found += ["", *itertools.chain.from_iterable(wrapped)]
    return found


def _diagram(diagram: Diagram, marks: Marks, width: int) -> Iterator[str]:
    for words in (diagram.name, f"{diagram.total:,} parameters", *diagram.facts):
        yield from textwrap.wrap(words, width, break_on_hyphens=False)
    for stack in diagram.stacks:
        yield ""
        yield stack.title
        yield from (f"  {fact}" for fact in stack.facts)
        yield from _nodes(stack.nodes, marks, width, "  ")


def _nodes(nodes: tuple[Node, ...], marks: Marks, width: int, indent: str) -> Iterator[str]:
    for node in nodes:
        match node:
            case Box():
                yield from _box(node, marks, width, indent)
            case Residual():
                yield from _residual(node, marks, width, indent)
            case Layers():
                words, count = group_words(node)
                sign = SIGNS[marks.get(node.key, "")]
                yield f"{indent}{sign}{words}, {count}"
                yield from _nodes(node.nodes, marks, width, f"{indent}  ")


def _residual(node: Residual, marks: Marks, width: int, indent: str) -> Iterator[str]:
    """Yields a sum; a line at its left is the stream, or the frame of a branch alone."""
    side = "│ " if node.has_stream else "  "
    for box in node.before:
        yield from _box(box, marks, width, f"{indent}{side}")
    for nth, branch in enumerate(node.branches, start=1):
        if len(node.branches) > 1:
            yield f"{indent}{side}branch {nth}:"
        inner = f"{indent}{side}{'  ' if len(node.branches) > 1 else ''}"
        for box in branch:
            yield from _box(box, marks, width, inner)
    corner = "╰" if node.has_stream else " "
    yield from _box(node.add, marks, width, f"{indent}{corner}⊕ ")
    for box in node.after:
        yield from _box(box, marks, width, indent)


def _box(box: Box, marks: Marks, width: int, indent: str) -> Iterator[str]:
    """Yields a box: words at the left, the number of its parameters at the right."""
    shapes = dict.fromkeys(axes(value.shape) for value in box.values)
    facts = [*(box.facts if box.mask is None else ()), *shapes]
    title = f"{SIGNS[marks.get(box.key, '')]}{box.title}"
    words = " · ".join([title, *facts])
    count = f"{box.parameters:,}" if box.parameters else ""
    room = width - len(indent) - len(count) - 1
    # Lines that follow are set in by two.
    first, *rest = textwrap.wrap(words, max(room - 2, 20), break_on_hyphens=False)
    later = indent.replace("╰⊕", "  ") + "  "
    yield f"{indent}{first}".ljust(width - len(count)) + count if count else f"{indent}{first}"
    yield from (later + line for line in rest)
    if box.mask is not None:
        yield from _mask(box, box.mask, width, later)
    for part in inside_of(box):
        yield from _box(part, marks, width, later)


def _mask(box: Box, mask: Mask, width: int, indent: str) -> Iterator[str]:
    """Yields the facts of a box, and beside them its mask, two rows to a line."""
    upper, lower = mask.cells[::2], mask.cells[1::2]
    drawn = [
        "".join(_HALVES[pair] for pair in zip(*rows, strict=True))
        for rows in zip(upper, lower, strict=True)
    ]
    room = max(width - len(indent) - len(drawn[0]) - 1, 20)
    words = [line for fact in box.facts for line in textwrap.wrap(fact, room)]
    for word, cells in itertools.zip_longest(words, drawn, fillvalue=""):
        yield f"{indent}{word:<{room}} {cells}".rstrip()
