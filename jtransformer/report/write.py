"""Writing the report of a work directory."""

from pathlib import Path
from typing import NamedTuple

import jtransformer
from jtransformer.records import (
    SweepFiles,
    load_sweep,
    mark_report,
    state_of_records,
    write_bytes,
    write_text,
)
from jtransformer.report import style
from jtransformer.report.contents import contents, find_all
from jtransformer.report.latex import latex_table
from jtransformer.report.markdown import results_markdown
from jtransformer.report.markup import markdown_of, markdown_table
from jtransformer.report.page import page
from jtransformer.report.section import Section
from jtransformer.stats import Analysis, results_table, timings_table

_PNG_SCALE = 1.5


class Report(NamedTuple):
    """A report that was written: its page, and what the page shows, one analysis per scale."""

    page: Path
    analyses: tuple[Analysis, ...]


def write(workdir: Path, reload_seconds: float | None = None) -> Report:
    """Writes the report of a sweep in any state, each file atomically.

    `report/results.csv` has no clock in it: the same runs give the same bytes.

    Args:
        workdir: A work directory; its `report` folder is made.
        reload_seconds: How often the page loads itself anew, None for never. Beside a page that
            does there are no pictures, which take the longest, and it does not count as finished.

    Raises:
        FileNotFoundError: If the directory holds no sweep.
        ValueError: If a record is damaged.
    """
    state = state_of_records(workdir)
    record = load_sweep(workdir)
    found = find_all(record)
    analyses = tuple(one.analysis for one in found)
    folder = SweepFiles(workdir).report
    folder.mkdir(parents=True, exist_ok=True)
    if reload_seconds is not None:
        # Ended by force, a watch leaves a page that is not the last one.
        SweepFiles(workdir).report_mark.unlink(missing_ok=True)
    write_text(folder / "results.csv", results_table(record).to_csv(index=False))
    write_text(folder / "timings.csv", timings_table(record).to_csv(index=False))
    write_text(folder / "results.md", results_markdown(*analyses))
    shown = contents(found, style.PAGE)
    write_text(folder / "sections.md", markdown_of(shown, analyses[0].title))
    if reload_seconds is None:
        write_files(folder, contents(found, style.PAPER).all())
    else:
        write_data(folder, shown.all())
    index = folder / "index.html"
    write_text(index, page(record, shown, reload_seconds))
    if reload_seconds is None:
        mark_report(workdir, state, jtransformer.__version__)
    return Report(index, analyses)


def write_files(folder: Path, sections: list[Section]) -> None:
    """Writes the tables of sections, their figures in three formats, and the data behind them.

    Args:
        folder: That of the report; it gets the folders tables and figures.
        sections: In the theme of paper.
    """
    import vl_convert

    write_data(folder, sections)
    for figure in (figure for section in sections for figure in section.figures):
        path = folder / "figures" / figure.name
        svg = vl_convert.vegalite_to_svg(figure.spec)
        write_text(path.with_suffix(".svg"), svg)
        write_bytes(path.with_suffix(".pdf"), vl_convert.svg_to_pdf(svg))
        write_bytes(path.with_suffix(".png"), vl_convert.svg_to_png(svg, scale=_PNG_SCALE))


def write_data(folder: Path, sections: list[Section]) -> None:
    """Writes the tables of sections as LaTeX and Markdown, and the data behind their figures.

    Args:
        folder: That of the report; it gets the folders tables and figures.
        sections: In any theme.
    """
    tables, figures = folder / "tables", folder / "figures"
    for below in (tables, figures):
        below.mkdir(parents=True, exist_ok=True)
    for section in sections:
        for table in section.tables:
            write_text(tables / f"{table.name}.tex", latex_table(table))
            write_text(tables / f"{table.name}.md", markdown_table(table) + "\n")
        for figure in section.figures:
            write_text(figures / f"{figure.name}.csv", figure.table.to_csv(index=False))
