"""Writing the report of a work directory."""

from pathlib import Path
from typing import NamedTuple

from jtransformer.records import SweepFiles, SweepRecord, load_sweep, write_bytes, write_text
from jtransformer.report import style
from jtransformer.report.figures import figures
from jtransformer.report.markdown import results_markdown
from jtransformer.report.page import page
from jtransformer.stats import Analysis, analyse, results_table, timings_table

_PNG_SCALE = 2.0


class Report(NamedTuple):
    """A report that was written: its page, and the analysis that the page shows."""

    page: Path
    analysis: Analysis


def write(workdir: Path) -> Report:
    """Writes the report of a sweep in any state, each file atomically.

    `report/results.csv` has no clock in it: the same runs give the same bytes.

    Args:
        workdir: A work directory; its `report` folder is made.

    Raises:
        FileNotFoundError: If the directory holds no sweep.
        ValueError: If a record is damaged.
    """
    record = load_sweep(workdir)
    analysis = analyse(record)
    folder = SweepFiles(workdir).report
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    write_text(folder / "results.csv", results_table(record).to_csv(index=False))
    write_text(folder / "timings.csv", timings_table(record).to_csv(index=False))
    write_text(folder / "results.md", results_markdown(analysis))
    _write_static(folder / "figures", record, analysis)
    index = folder / "index.html"
    write_text(index, page(record, analysis, figures(record, analysis, style.PAGE)))
    return Report(index, analysis)


def _write_static(folder: Path, record: SweepRecord, analysis: Analysis) -> None:
    import vl_convert

    for figure in figures(record, analysis, style.PAPER):
        svg = vl_convert.vegalite_to_svg(figure.spec)
        write_text(folder / f"{figure.name}.svg", svg)
        write_bytes(folder / f"{figure.name}.png", vl_convert.svg_to_png(svg, scale=_PNG_SCALE))
