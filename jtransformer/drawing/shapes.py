"""What a picture is made of, at its place in pixels."""

from typing import Literal, NamedTuple

from jtransformer.drawing.diagram import Role
from jtransformer.drawing.metrics import Style

Mark = Literal["", "changed", "only"]
"""What a comparison says of a box: it is the same, it is another, or it is here alone."""
SIGNS: dict[Mark, str] = {"": "", "changed": "≠ ", "only": "+ "}


class Rect(NamedTuple):
    """A box, the frame around several ("frame"), or around layers ("group")."""

    key: str
    x: float
    y: float
    width: float
    height: float
    look: Role | Literal["group"]
    is_frame: bool
    mark: Mark

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


class Text(NamedTuple):
    """A line of text; x is its start, or its end where it is set to the right."""

    x: float
    baseline: float
    words: str
    style: Style
    to_right: bool = False


class Line(NamedTuple):
    """A path along the axes; the stream, what is read of a memory, or a table that is shared."""

    points: tuple[tuple[float, float], ...]
    look: Literal["flow", "link"] = "flow"
    has_arrow: bool = False


class Plus(NamedTuple):
    """The sign of a sum."""

    key: str
    x: float
    y: float
    radius: float
    mark: Mark


class Grid(NamedTuple):
    """The picture of a mask; its cells are squares."""

    x: float
    y: float
    cell: float
    cells: tuple[tuple[bool, ...], ...]


Drawn = Rect | Text | Line | Plus | Grid


class Picture(NamedTuple):
    """Everything that is drawn, what lies below first."""

    width: float
    height: float
    drawn: tuple[Drawn, ...]
