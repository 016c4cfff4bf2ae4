"""
jtransformer report --workdir DIR

Writes DIR/report/ again from the records of its runs: index.html, results.csv, timings.csv,
results.md and figures. Works while the sweep runs.

example: jtransformer report --workdir runs/norm_and_ffn
"""

from pathlib import Path

from jtransformer import records
from jtransformer.cli.arguments import parse
from jtransformer.spec import SpecError


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    flags = parse(argv, takes_config=False)
    workdir = Path(flags.workdir)
    if not records.SweepFiles(workdir).manifest.exists():
        raise SpecError("--workdir", f"= {str(workdir)!r} holds no sweep (sweep.json is missing).")
    show(workdir)
    return 0


def show(workdir: Path) -> None:
    """Writes the page of a work directory and prints its table."""
    from rich.console import Console

    from jtransformer import report

    page = report.write(workdir)
    Console().print(report.terminal_table(records.load_sweep(workdir)))
    print(f"page: {page}")
