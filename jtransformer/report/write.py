"""Writing the report of a work directory."""

from pathlib import Path
from typing import NamedTuple

import jtransformer
from jtransformer.records import (
    SweepFiles,
    SweepRecord,
    load_sweep,
    mark_report,
    state_of_records,
    write_bytes,
    write_text,
)
from jtransformer.report import style
from jtransformer.report.figures import figures
from jtransformer.report.markdown import results_markdown
from jtransformer.report.page import Part, page_of_scales
from jtransformer.report.scales import scales_figure
from jtransformer.stats import (
    Analysis,
    analyse_scales,
    at_scales,
    results_table,
    timings_table,
)

_PNG_SCALE = 2.0


class Report(NamedTuple):
    """A report that was written: its page, and what the page shows, one analysis per scale."""

    page: Path
    analyses: tuple[Analysis, ...]


def write(workdir: Path) -> Report:
    """Writes the report of a sweep in any state, each file atomically.

    `report/results.csv` has no clock in it: the same runs give the same bytes.

    Args:
        workdir: A work directory; its `report` folder is made.

    Raises:
        FileNotFoundError: If the directory holds no sweep.
        ValueError: If a record is damaged.
    """
    state = state_of_records(workdir)
    record = load_sweep(workdir)
    analyses = analyse_scales(record)
    parted = list(zip(at_scales(record), analyses, strict=True))
    folder = SweepFiles(workdir).report
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    write_text(folder / "results.csv", results_table(record).to_csv(index=False))
    write_text(folder / "timings.csv", timings_table(record).to_csv(index=False))
    write_text(folder / "results.md", results_markdown(*analyses))
    _write_static(folder / "figures", parted)
    parts = [Part(one, analysis, figures(one, analysis, style.PAGE)) for one, analysis in parted]
    overview = scales_figure(analyses, style.PAGE) if len(parts) > 1 else None
    index = folder / "index.html"
    write_text(index, page_of_scales(record, parts, overview))
    mark_report(workdir, state, jtransformer.__version__)
    return Report(index, analyses)


def _write_static(folder: Path, parted: list[tuple[SweepRecord, Analysis]]) -> None:
    import vl_convert

    drawn = [figure for one in parted for figure in figures(*one, style.PAPER)]
    if len(parted) > 1 and (overview := scales_figure(tuple(a for _, a in parted), style.PAPER)):
        drawn.append(overview)
    for figure in drawn:
        svg = vl_convert.vegalite_to_svg(figure.spec)
        write_text(folder / f"{figure.name}.svg", svg)
        write_bytes(folder / f"{figure.name}.png", vl_convert.svg_to_png(svg, scale=_PNG_SCALE))
