"""Writing the report of a work directory."""

import os
from pathlib import Path

from jtransformer.records import SweepFiles, SweepRecord, load_sweep, write_text
from jtransformer.report import style
from jtransformer.report.figures import figures
from jtransformer.report.markdown import results_markdown
from jtransformer.report.page import page
from jtransformer.stats import Analysis, analyse, results_table, timings_table

_PNG_SCALE = 2.0


def write(workdir: Path) -> Path:
    """Writes the report of a sweep in any state, each file atomically.

    `report/results.csv` has no clock in it: the same runs give the same bytes.

    Args:
        workdir: A work directory; its `report` folder is made.

    Returns:
        The page, `report/index.html`.

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
    return index


def _write_static(folder: Path, record: SweepRecord, analysis: Analysis) -> None:
    import vl_convert

    for figure in figures(record, analysis, style.PAPER):
        svg = vl_convert.vegalite_to_svg(figure.spec)
        write_text(folder / f"{figure.name}.svg", svg)
        _write_bytes(folder / f"{figure.name}.png", vl_convert.svg_to_png(svg, scale=_PNG_SCALE))


def _write_bytes(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)
