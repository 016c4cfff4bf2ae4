"""Block diagrams of models, derived from their specs alone.

A spec becomes a `Diagram`, which is plain data: boxes in the order of the data, with what is known
of each. Renderers read that and nothing else. Its parameters are those that
`jtransformer.accounting` counts, its masks those that attention uses.
"""

from jtransformer.drawing.describe import describe
from jtransformer.drawing.diagram import (
    Box,
    Diagram,
    Layers,
    Link,
    Mask,
    Residual,
    Stack,
    Value,
    boxes_of,
)
from jtransformer.drawing.sheet import Sheet, compared, sheet
from jtransformer.drawing.svg import png, svg
from jtransformer.drawing.terminal import lines

__all__ = [
    "Box",
    "Diagram",
    "Layers",
    "Link",
    "Mask",
    "Residual",
    "Sheet",
    "Stack",
    "Value",
    "boxes_of",
    "compared",
    "describe",
    "lines",
    "png",
    "sheet",
    "svg",
]
