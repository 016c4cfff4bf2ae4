"""All that a report shows, in a theme: the page, its files and its JSON are written from this."""

import dataclasses
import re
from typing import NamedTuple

from jtransformer.records import SweepRecord, check_complete
from jtransformer.report import result, style
from jtransformer.report.section import Section
from jtransformer.report.sections import Findings, find, sections, sections_across
from jtransformer.stats import Analysis, analyse_scales, at_scales, ladder


class Part(NamedTuple):
    """What is shown of one scale, or of a sweep without scales.

    Attributes:
        analysis: Its analysis.
        verdict: The answer, its caveats and the table of arms.
        sections: What follows.
    """

    analysis: Analysis
    verdict: Section
    sections: list[Section]


class Contents(NamedTuple):
    """What is shown of a sweep.

    Attributes:
        across: What holds its scales together.
        parts: Its scales, or itself alone.
    """

    across: list[Section]
    parts: list[Part]

    def all(self) -> list[Section]:
        """Lists every section, in the order in which they are read."""
        own = [[part.verdict, *part.sections] for part in self.parts]
        return [*self.across, *(section for listed in own for section in listed)]


def find_all(record: SweepRecord) -> list[Findings]:
    """Computes everything that is shown, one finding for each scale.

    Raises:
        DamagedRecord: If a record lacks what is read of it.
    """
    check_complete(record)
    analyses = analyse_scales(record)
    parts = list(zip(at_scales(record), analyses, strict=True))
    across = ladder(parts)
    return [find(*one)._replace(ladder=across) for one in parts]


def contents(found: list[Findings], theme: style.Theme) -> Contents:
    """Writes and draws all sections in a theme.

    Tables and figures of a scale are named after it, so that every file has a name of its own.
    """
    parts = []
    for one in found:
        own = [result.verdict(one.analysis), *sections(one, theme)]
        first, *rest = [_named_after_scale(section, one.analysis) for section in own]
        parts.append(Part(one.analysis, first, rest))
    return Contents(sections_across(found, theme), parts)


def _named_after_scale(section: Section, analysis: Analysis) -> Section:
    if analysis.scale is None:
        return section
    number = list(analysis.scales).index(analysis.scale) + 1
    end = f"_{number}_" + re.sub(r"\W+", "_", analysis.scale)
    tables = [table._replace(name=table.name + end) for table in section.tables]
    figures = [
        dataclasses.replace(
            figure, name=figure.name + end, title=f"{figure.title}, {analysis.scale}"
        )
        for figure in section.figures
    ]
    return section._replace(tables=tables, figures=figures)
