"""A section of the page: sentences, tables and figures about one side of a result.

A module of this package turns one finding of `jtransformer.stats` into one section; the page, the
Markdown and LaTeX tables, the data behind figures and the JSON of `report --section` are all
written from these values.
"""

from typing import NamedTuple

from jtransformer.report.style import Figure
from jtransformer.report.summary import Column


class Table(NamedTuple):
    """A table of a section.

    Attributes:
        name: Stem of its files; unique on a page.
        caption: What its figures are, with unit and uncertainty.
        columns: Headings and cells, as text.
        text: Headings of the columns that hold words.
        marks: Which cells stand out as a warning, row by row; None where none does.
    """

    name: str
    caption: str
    columns: list[Column]
    text: tuple[str, ...] = ("arm",)
    marks: list[list[bool]] | None = None

    def rows(self) -> list[list[tuple[str, bool]]]:
        """Returns the rows: each cell, and whether it stands out."""
        cells = list(zip(*(column.cells for column in self.columns), strict=True))
        marks = self.marks or [[False] * len(self.columns) for _ in cells]
        return [list(zip(*row, strict=True)) for row in zip(cells, marks, strict=True)]


class Section(NamedTuple):
    """A part of the page with a heading of its own.

    Attributes:
        name: Its anchor, and what `report --section` calls it; unique on a page.
        title: Its heading.
        paragraphs: What came out, in sentences by rule, and what the reader must not take it for.
        tables: Its tables.
        figures: Its figures.
    """

    name: str
    title: str
    paragraphs: list[str]
    tables: list[Table]
    figures: list[Figure]
