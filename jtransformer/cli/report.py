"""Writes the page of a work directory again, from the records of its runs.

usage: jtransformer report --workdir DIR

DIR/report/ gets index.html, results.csv, timings.csv, results.md and figures. Works while the
sweep runs.

example: jtransformer report --workdir runs/norm_and_ffn
"""

from pathlib import Path

from rich.markup import escape

from jtransformer.cli.arguments import parse
from jtransformer.cli.preflight import check_packages, read_manifest
from jtransformer.cli.progress import console


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    flags = parse(argv, takes_config=False)
    workdir = Path(flags.workdir).expanduser()
    read_manifest(workdir)
    check_packages()
    show(workdir)
    return 0


def show(workdir: Path) -> None:
    """Writes the page of a work directory and prints its table, answer and caveats."""
    from rich.table import Table

    from jtransformer import report

    page, analyses = report.write(workdir)
    for analysis in analyses:
        table = Table(title=None if analysis.scale is None else escape(report.scale(analysis)))
        columns = report.summary_table(analysis)
        for column in columns:
            table.add_column(escape(column.heading))
        for cells in zip(*(column.cells for column in columns), strict=True):
            table.add_row(*map(escape, cells))
        console().print(table)
        print(report.answer(analysis))
        for caveat in report.caveats(analysis):
            print(f"- {caveat}")
    print(f"page: {page}")
