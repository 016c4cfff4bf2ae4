"""Writes the page of a work directory again, from the records of its runs.

usage: jtransformer report --workdir DIR [--watch [SECONDS]]
       jtransformer report --workdir DIR [--section NAME] [--json]

DIR/report/ gets index.html, sections.md (the same as text), results.csv, timings.csv, results.md;
in figures/ each figure as SVG, PDF and PNG with its data as CSV; in tables/ each table as LaTeX
and Markdown. Works while the sweep runs.

--watch writes the page whenever the records have changed, looking every SECONDS (30), until every
run has ended or you stop it; an open page follows.
--section prints one section of the page, --json its numbers with all digits; --json alone prints
the analysis and lists the sections. Neither writes a file.

example: jtransformer report --workdir runs/norm_and_ffn
example: jtransformer report --workdir runs/norm_and_ffn --section power --json
"""

from pathlib import Path

from absl import flags as absl_flags

from jtransformer.cli.arguments import parse
from jtransformer.cli.preflight import check_packages, read_manifest
from jtransformer.cli.progress import print_table
from jtransformer.cli.watching import SHORTEST, watch, with_seconds
from jtransformer.spec import SpecError


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    own = absl_flags.FlagValues()
    absl_flags.DEFINE_float("watch", None, "Seconds between looks.", flag_values=own)
    absl_flags.DEFINE_string("section", None, "A section of the page.", flag_values=own)
    flags = parse(with_seconds(argv), takes_config=False, switches=("json",), others=own)
    workdir = Path(flags.workdir).expanduser()
    asked = flags.json or flags.section is not None
    if flags.watch is not None:
        _check_watch(flags.watch, asked)
    read_manifest(workdir)
    check_packages()
    if asked:
        print(_numbers(workdir, flags.section, as_json=flags.json))
        return 0
    if flags.watch is not None:
        watch(workdir, flags.watch)
    show(workdir)
    return 0


def show(workdir: Path) -> None:
    """Writes the page of a work directory and prints its table, answer and caveats."""
    from jtransformer import report

    page, analyses = report.write(workdir)
    for analysis in analyses:
        title = None if analysis.scale is None else report.scale(analysis)
        print_table(report.summary_table(analysis), title)
        print(report.answer(analysis))
        for caveat in report.caveats(analysis):
            print(f"- {caveat}")
    print(f"page: {page}")


def _check_watch(seconds: float, asked: bool) -> None:
    if asked:
        raise SpecError("--watch", "writes the page, --section and --json print; leave one out.")
    if not SHORTEST <= seconds < float("inf"):
        raise SpecError("--watch", f"= {seconds:g} must be a number of seconds from {SHORTEST} on.")


def _numbers(workdir: Path, section: str | None, *, as_json: bool) -> str:
    from jtransformer import report

    try:
        if as_json:
            return report.numbers_json(workdir, section)
        assert section is not None
        return report.section_text(workdir, section)
    except report.UnknownSection as error:
        raise SpecError("--section", f"= {section!r}: {error}") from None
