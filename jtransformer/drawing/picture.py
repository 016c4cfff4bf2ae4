"""From a sheet to its picture: where every box, word and line lies."""

from collections.abc import Mapping

from jtransformer.drawing.columns import place_stack, stack_size
from jtransformer.drawing.diagram import MEMORY, Diagram
from jtransformer.drawing.metrics import LINE, width_of
from jtransformer.drawing.shapes import Drawn, Line, Mark, Picture, Rect, Text
from jtransformer.drawing.sheet import COMPARED, Sheet

MARGIN = 24
BESIDE = 48
"""Between stacks; a memory and shared tables pass there."""
LANE = 12
"""Between lines beside a column."""
NOTES = (
    "At the right of a box: its parameters, of one layer; and the axes of what leaves it.",
    "B: batch. T, S: tokens, tokens of the source. Dashed lines: a table or a memory that is read.",
)


def picture(sheet: Sheet) -> Picture:
    """Returns where everything of a sheet lies."""
    x, bottom, drawn = MARGIN, 0.0, list[Drawn]()
    for diagram, marks in zip(sheet.diagrams, sheet.marks, strict=True):
        shapes, right, low = _diagram(diagram, x, marks)
        drawn += shapes
        x, bottom = right + 2 * MARGIN, max(bottom, low)
    width = x - MARGIN
    notes = (*NOTES, *((COMPARED,) if sheet.settings else ()))
    for words in (*sheet.settings, *notes):
        bottom += LINE
        drawn.append(Text(MARGIN, bottom + 8, words, "fact"))
        width = max(width, 2 * MARGIN + width_of(words, "fact"))
    return Picture(width, bottom + 8 + MARGIN, tuple(drawn))


def _diagram(
    diagram: Diagram, left: float, marks: Mapping[str, Mark]
) -> tuple[list[Drawn], float, float]:
    """Returns a diagram from an edge on, its right edge and its lower one."""
    drawn: list[Drawn] = [Text(left, MARGIN + 14, diagram.name, "heading")]
    words = (f"{diagram.total:,} parameters", *diagram.facts)
    for nth, fact in enumerate(words, start=1):
        drawn.append(Text(left, MARGIN + 16 + LINE * nth, fact, "fact"))
    top = MARGIN + 16 + LINE * (len(words) + 1)
    x, bottom, columns = left, 0.0, {}
    for stack in diagram.stacks:
        width, height = stack_size(stack, marks)
        drawn += place_stack(stack, (x, top), width, marks)
        columns[stack.key] = (x, x + width)
        x, bottom = x + width + BESIDE, max(bottom, top + height)
    rects = {shape.key: shape for shape in drawn if isinstance(shape, Rect)}
    drawn += _links(diagram, rects, columns)
    right = x - BESIDE + 2 * LANE
    needed = [width_of(diagram.name, "heading"), *(width_of(fact, "fact") for fact in words)]
    return drawn, max(right, left + max(needed)), bottom + LINE


def _links(
    diagram: Diagram,
    rects: Mapping[str, Rect],
    columns: Mapping[str, tuple[float, float]],
) -> list[Drawn]:
    """Returns the lines that join boxes beside the stream."""
    drawn: list[Drawn] = []
    for link in diagram.links:
        start, end = rects[link.start], rects[link.end]
        here, there = (_column(key, diagram) for key in (link.start, link.end))
        # Tables and memories pass in lanes of their own.
        lane = columns[here][1] + LANE * (1 if link.what == MEMORY else 2)
        # What a frame reads enters it beside its title.
        height = end.y + 15 if end.is_frame else end.middle
        edge = end.right if here == there else end.x
        path = ((start.right, start.middle), (lane, start.middle), (lane, height), (edge, height))
        drawn.append(Line(path, "link", has_arrow=True))
    return drawn


def _column(key: str, diagram: Diagram) -> str:
    """Returns the key of the stack in which a box stands."""
    first = key.partition("/")[0]
    return first if first in {stack.key for stack in diagram.stacks} else ""
