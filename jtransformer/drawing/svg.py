"""A picture as the text of an SVG file: legible on light and on dark pages, read out by its title.

The file brings its own background, and turns with the wish of the reader for light or dark; a
viewer that does not know of such wishes shows the light one.
"""

import math
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from jtransformer.drawing.diagram import Box, Layers, Node, Residual
from jtransformer.drawing.metrics import SIZES, width_of
from jtransformer.drawing.palette import DARK, LIGHT
from jtransformer.drawing.picture import picture
from jtransformer.drawing.shapes import Drawn, Grid, Line, Picture, Plus, Rect, Text
from jtransformer.drawing.sheet import Sheet
from jtransformer.drawing.words import group_words
from jtransformer.spec import SpecError

FONT = "'DejaVu Sans', Verdana, Geneva, sans-serif"
_ARROW = 5


def svg(sheet: Sheet) -> str:
    """Returns the text of an SVG file that shows a sheet."""
    title, description = said(sheet)
    return written(picture(sheet), title=title, description=description)


def png(text: str) -> bytes:
    """Returns the PNG of an SVG, on its light ground, two pixels wide for each of its own.

    Raises:
        SpecError: If the package that draws it is missing.
    """
    try:
        import vl_convert
    except ImportError:
        raise SpecError(
            "", "A PNG needs the package vl-convert-python; pip install "
            "'jtransformer[experiments]', or write an SVG."
        ) from None  # fmt: skip
    return vl_convert.svg_to_png(text, scale=2.0)


def said(sheet: Sheet) -> tuple[str, str]:
    """Returns the name of a sheet and what it shows, for who hears it."""
    names = " and ".join(diagram.name for diagram in sheet.diagrams)
    parts = []
    for diagram in sheet.diagrams:
        stacks = "; ".join(
            f"{stack.title}: {', '.join(_heard(stack.nodes))}" for stack in diagram.stacks
        )
        parts.append(f"{diagram.name}, {diagram.total:,} parameters. {stacks}.")
    return f"Block diagram of {names}", " ".join([*parts, *sheet.settings])


def _heard(nodes: tuple[Node, ...]) -> Iterator[str]:
    """Yields the titles of boxes that are not inside of others, and where layers repeat."""
    for node in nodes:
        match node:
            case Box():
                yield node.title
            case Residual():
                yield from (box.title for box in node.before)
                yield from (box.title for branch in node.branches for box in branch)
                yield from (box.title for box in (node.add, *node.after))
            case Layers():
                yield f"{group_words(node)[0]} ({', '.join(_heard(node.nodes))})"


def written(drawing: Picture, *, title: str, description: str) -> str:
    """Returns the text of an SVG file.

    Args:
        drawing: What is drawn.
        title: Its name, for who hears it.
        description: What it shows, likewise.
    """
    width, height = math.ceil(drawing.width), math.ceil(drawing.height)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title description" '
        f"font-family={quoteattr(FONT)}>",
        f'<title id="title">{_text(title)}</title>',
        f'<desc id="description">{_text(description)}</desc>',
        f"<style>@media (prefers-color-scheme: dark) {{ {_dark()} }}</style>",
        f'<rect class="f-ground" width="{width}" height="{height}" fill="{LIGHT["ground"]}"/>',
    ]
    for drawn in drawing.drawn:
        lines += _drawn(drawn)
    return "\n".join([*lines, "</svg>", ""])


def _dark() -> str:
    """Returns the rules by which each colour turns dark."""
    fills = [f".f-{name} {{ fill: {color} }}" for name, color in DARK.items()]
    strokes = [f".s-{name} {{ stroke: {DARK[name]} }}" for name in ("line", "link", "mark")]
    return " ".join(fills + strokes)


def _drawn(drawn: Drawn) -> Iterator[str]:
    match drawn:
        case Rect():
            yield _rect(drawn)
        case Text():
            yield _words(drawn)
        case Line():
            yield from _line(drawn)
        case Plus():
            yield from _plus(drawn)
        case Grid():
            yield from _grid(drawn)


def _rect(rect: Rect) -> str:
    stroke, width = ("mark", 2.5) if rect.mark else ("line", 1)
    dash = ' stroke-dasharray="5 4"' if rect.look == "group" and not rect.mark else ""
    radius = 14 if rect.look == "input" else 4
    return (
        f'<rect class="f-{rect.look} s-{stroke}" x="{_n(rect.x)}" y="{_n(rect.y)}" '
        f'width="{_n(rect.width)}" height="{_n(rect.height)}" rx="{radius}" '
        f'fill="{LIGHT[rect.look]}" stroke="{LIGHT[stroke]}" stroke-width="{width}"{dash}/>'
    )


def _words(text: Text) -> str:
    anchor = ' text-anchor="end"' if text.to_right else ""
    weight = "" if text.style == "fact" else ' font-weight="bold"'
    return (
        f'<text class="f-ink" x="{_n(text.x)}" y="{_n(text.baseline)}" fill="{LIGHT["ink"]}" '
        f'font-size="{SIZES[text.style]}"{weight}{anchor} '
        f'textLength="{_n(width_of(text.words, text.style))}" lengthAdjust="spacingAndGlyphs">'
        f"{_text(text.words)}</text>"
    )


def _line(line: Line) -> Iterator[str]:
    name = "link" if line.look == "link" else "line"
    dash = ' stroke-dasharray="4 3"' if line.look == "link" else ""
    points = " ".join(f"{_n(x)},{_n(y)}" for x, y in line.points)
    yield (
        f'<polyline class="s-{name}" points="{points}" fill="none" stroke="{LIGHT[name]}" '
        f'stroke-width="1.2"{dash}/>'
    )
    if line.has_arrow:
        (x0, y0), (x1, y1) = line.points[-2:]
        long = math.hypot(x1 - x0, y1 - y0) or 1.0
        dx, dy = _ARROW * (x1 - x0) / long, _ARROW * (y1 - y0) / long
        corners = (
            (x1, y1),
            (x1 - dx - dy / 1.7, y1 - dy + dx / 1.7),
            (x1 - dx + dy / 1.7, y1 - dy - dx / 1.7),
        )
        tip = " ".join(f"{_n(x)},{_n(y)}" for x, y in corners)
        yield f'<polygon class="f-{name}" points="{tip}" fill="{LIGHT[name]}"/>'


def _plus(plus: Plus) -> Iterator[str]:
    stroke, width = ("mark", 2.5) if plus.mark else ("line", 1.2)
    x, y, r = plus.x, plus.y, plus.radius
    look = f'class="f-sum s-{stroke}" stroke="{LIGHT[stroke]}"'
    yield (
        f'<circle {look} cx="{_n(x)}" cy="{_n(y)}" r="{_n(r)}" fill="{LIGHT["sum"]}" '
        f'stroke-width="{width}"/>'
    )
    arm = r / 2
    yield (
        f'<path {look} d="M{_n(x - arm)} {_n(y)}H{_n(x + arm)}M{_n(x)} {_n(y - arm)}'
        f'V{_n(y + arm)}" stroke-width="1.4"/>'
    )


def _grid(grid: Grid) -> Iterator[str]:
    """Yields the cells of a mask as two paths: those that are seen, and the rest."""
    for name, is_seen in (("empty", False), ("cell", True)):
        corners = [
            (grid.x + column * grid.cell, grid.y + row * grid.cell)
            for row, cells in enumerate(grid.cells)
            for column, seen in enumerate(cells)
            if seen is is_seen
        ]
        side = _n(grid.cell - 1)
        path = "".join(f"M{_n(x)} {_n(y)}h{side}v{side}h-{side}z" for x, y in corners)
        if path:
            yield f'<path class="f-{name}" d="{path}" fill="{LIGHT[name]}"/>'


def _n(value: float) -> str:
    """Writes a number of pixels, rounded to what can be seen."""
    return f"{value:.1f}".removesuffix(".0")


def _text(words: str) -> str:
    """Writes words so that XML can hold them, whatever a file is called."""
    plain = "".join(letter if letter.isprintable() else "\ufffd" for letter in words)
    return escape(plain)
