"""Boxes at their place: how large one is, and where its words stand."""

from collections.abc import Mapping
from typing import NamedTuple

from jtransformer.drawing.diagram import Box, inside_of
from jtransformer.drawing.metrics import LINE, width_of
from jtransformer.drawing.shapes import SIGNS, Drawn, Grid, Line, Mark, Rect, Text
from jtransformer.drawing.words import axes

PAD = 8
GAP = 14
"""Between boxes, where an arrow stands."""
LEAD = 5
"""Between the words of a box and the first row inside of it."""
BETWEEN = 8
"""Between neighbours in a row, and between words of one line."""
CELL = 6


class Size(NamedTuple):
    """What something takes, in pixels."""

    width: float
    height: float


class Words(NamedTuple):
    """The lines of a box.

    Attributes:
        title: The first line.
        shape: What stands at its right.
        facts: The lines that follow.
        parameters: Their number, at the right of the last line.
    """

    title: str
    shape: str
    facts: tuple[str, ...]
    parameters: str


def words_of(box: Box, marks: Mapping[str, Mark], *, narrow: bool) -> Words:
    """Returns what is written in a box.

    Args:
        box: The box.
        marks: What a comparison says of boxes, by key.
        narrow: Whether it has neighbours, so that its number of parameters has a line of its own.
    """
    shapes = dict.fromkeys(axes(value.shape) for value in box.values)
    count = f"{box.parameters:,}" if box.parameters else ""
    facts = box.facts
    shape = ", ".join(shapes)
    if count and (narrow or (shape and not facts)):
        facts = (*facts, "")
    return Words(SIGNS[marks.get(box.key, "")] + box.title, shape, facts, count)


def size_of(box: Box, marks: Mapping[str, Mark], *, narrow: bool = False) -> Size:
    """Returns how large a box is at least, with what is inside."""
    words = words_of(box, marks, narrow=narrow)
    lines = [width_of(fact, "fact") for fact in words.facts]
    first = width_of(words.title, "title") + _apart(words.shape)
    if lines:
        lines[-1] += _apart(words.parameters)
    else:
        first += _apart(words.parameters)
    width, height = max([first, *lines]), LINE * (1 + len(lines))
    if box.mask is not None:
        side = CELL * len(box.mask.cells)
        width = max(first, max(lines, default=0) + BETWEEN + side)
        height = max(height, LINE + side)
    if box.rows:
        columns, unit = _columns(box, marks)
        width = max(width, columns * unit + BETWEEN * (columns - 1))
        heights = [_row_height(row, marks) for row in box.rows]
        height += LEAD + sum(heights) + GAP * (len(heights) - 1)
    return Size(width + 2 * PAD, height + 2 * PAD)


def _columns(box: Box, marks: Mapping[str, Mark]) -> tuple[int, float]:
    """Returns how many columns the boxes inside of one have, and how wide each is at least."""
    columns = {sum(1 if part is None else part.span for part in row) for row in box.rows}
    assert len(columns) == 1, f"{box.key} has rows of {columns} columns"
    units = [
        (size_of(part, marks, narrow=_is_narrow(part, box)).width - BETWEEN * (part.span - 1))
        / part.span
        for part in inside_of(box)
    ]
    return columns.pop(), max(units)


def _is_narrow(part: Box, box: Box) -> bool:
    """Whether a box has neighbours in its row, or place for some."""
    return any(part in row and len(row) > 1 for row in box.rows)


def _row_height(row: tuple[Box | None, ...], marks: Mapping[str, Mark]) -> float:
    narrow = len(row) > 1
    return max(size_of(part, marks, narrow=narrow).height for part in row if part is not None)


def _apart(words: str) -> float:
    return 2 * BETWEEN + width_of(words, "fact") if words else 0


def place(
    box: Box,
    at: tuple[float, float],
    size: Size,
    marks: Mapping[str, Mark],
    *,
    narrow: bool = False,
) -> list[Drawn]:
    """Returns a box at its place, with what is inside.

    Args:
        box: The box.
        at: Its upper left corner.
        size: What it takes, at least `size_of`.
        marks: What a comparison says of boxes, by key.
        narrow: As for `words_of`.
    """
    x, y = at
    right, words = x + size.width - PAD, words_of(box, marks, narrow=narrow)
    rect = Rect(box.key, x, y, *size, box.role, bool(box.rows), marks.get(box.key, ""))
    baseline = y + PAD + 11
    drawn: list[Drawn] = [rect, Text(x + PAD, baseline, words.title, "title")]
    if words.shape:
        drawn.append(Text(right, baseline, words.shape, "fact", to_right=True))
    for nth, fact in enumerate(words.facts, start=1):
        if fact:
            drawn.append(Text(x + PAD, baseline + LINE * nth, fact, "fact"))
    if words.parameters:
        last = baseline + LINE * len(words.facts)
        drawn.append(Text(right, last, words.parameters, "fact", to_right=True))
    if box.mask is not None:
        side = CELL * len(box.mask.cells)
        drawn.append(Grid(right - side, y + PAD + LINE, CELL, box.mask.cells))
    return drawn + _inside(box, (x, y), size, marks, lines=1 + len(words.facts))


def _inside(
    box: Box,
    at: tuple[float, float],
    size: Size,
    marks: Mapping[str, Mark],
    *,
    lines: int,
) -> list[Drawn]:
    """Returns the boxes inside of one, over all of its width, and the arrows between them."""
    drawn = list[Drawn]()
    if not box.rows:
        return drawn
    (x, y), (columns, _) = at, _columns(box, marks)
    unit = (size.width - 2 * PAD - BETWEEN * (columns - 1)) / columns
    top = y + PAD + LINE * lines + LEAD
    above: list[Rect | None] = [None] * columns
    for row in box.rows:
        height, column = _row_height(row, marks), 0
        for part in row:
            if part is None:
                column += 1
                continue
            own = Size(part.span * unit + BETWEEN * (part.span - 1), height)
            left = x + PAD + column * (unit + BETWEEN)
            found = place(part, (left, top), own, marks, narrow=len(row) > 1)
            covered = slice(column, column + part.span)
            rect = found[0]
            assert isinstance(rect, Rect)
            drawn += [*_arrows(above[covered], rect), *found]
            above[covered] = [rect] * part.span
            column += part.span
        top += height + GAP
    return drawn


def _arrows(above: list[Rect | None], below: Rect) -> list[Line]:
    """Returns the arrows to a box from those that stand nearest above it."""
    found = []
    for rect in dict.fromkeys(rect for rect in above if rect is not None):
        narrower = min(rect, below, key=lambda one: one.width)
        middle = narrower.x + narrower.width / 2
        found.append(Line(((middle, rect.bottom), (middle, below.y)), has_arrow=True))
    return found
