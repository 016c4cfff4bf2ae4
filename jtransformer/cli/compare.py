"""Puts several work directories on one page: the same question at other times, sizes or seeds.

usage: jtransformer compare --workdir DIR --workdir DIR ... --into DIR [--json]

Every arm stands beside itself, with its difference and verdict in each directory. Directories that
differ in nothing but seeds are pooled as well, a run that stands in several counting once; of all
others the page says what they differ in, and their runs are not pooled. Works while sweeps run.

  --workdir DIR  a work directory; give two or more
  --into DIR     where the page goes: index.html, comparison.csv, figures/ and tables/
  --json         print the figures as one JSON object beside writing the page

example: jtransformer compare --workdir runs/monday --workdir runs/friday --into runs/both
"""

import json
from pathlib import Path

from absl import flags

from jtransformer import records
from jtransformer.cli.arguments import read_flags
from jtransformer.cli.preflight import (
    check_no_sweep,
    check_packages,
    check_writable,
    read_manifest,
)
from jtransformer.cli.progress import print_table
from jtransformer.spec import SpecError


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    values = _flags(argv)
    workdirs = _named([Path(word).expanduser() for word in values.workdir])
    into = Path(values.into).expanduser()
    for workdir in workdirs.values():
        read_manifest(workdir)
    check_no_sweep(into, "--into")
    _check_apart(into)
    check_writable(into, "--into")
    check_packages()
    _compare(workdirs, into, as_json=values.json)
    return 0


def _check_apart(into: Path) -> None:
    """Refuses a place inside a work directory, whose own page may be there.

    Raises:
        SpecError: If it is inside one.
    """
    for above in into.absolute().parents:
        if records.SweepFiles(above).manifest.exists():
            raise SpecError(
                "--into",
                f"= {str(into)!r} is inside the work directory {above}, whose files are its own; "
                "choose a place outside.",
            )


def _compare(workdirs: dict[str, Path], into: Path, *, as_json: bool) -> None:
    from jtransformer import report, stats

    sweeps = {name: records.load_sweep(workdir) for name, workdir in workdirs.items()}
    for sweep in sweeps.values():
        records.check_complete(sweep)
    try:
        compared = stats.compare(sweeps)
    except ValueError as error:
        raise SpecError("", str(error)) from None
    places = {name: (workdir, sweeps[name]) for name, workdir in workdirs.items()}
    page = report.write_comparison(places, compared, into)
    if as_json:
        print(json.dumps(report.comparison_values(compared) | {"page": str(page)}))
        return
    print_table(report.comparison_table(compared))
    for sentence in report.pooling(compared):
        print(sentence)
    print(f"page: {page}")


def _named(workdirs: list[Path]) -> dict[str, Path]:
    """Names directories by their last part, or by the whole path where that is taken.

    Raises:
        SpecError: If one is given twice.
    """
    resolved = [workdir.resolve() for workdir in workdirs]
    for workdir, real in zip(workdirs, resolved, strict=True):
        if resolved.count(real) > 1:
            raise SpecError("--workdir", f"= {str(workdir)!r} is given twice; name it once.")
    last = [real.name for real in resolved]
    return {
        real.name if last.count(real.name) == 1 else str(workdir): workdir
        for workdir, real in zip(workdirs, resolved, strict=True)
    }


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_multi_string("workdir", [], "A work directory.", flag_values=values)
    flags.DEFINE_string("into", None, "Where the page goes.", flag_values=values)
    flags.DEFINE_bool("json", False, "json", flag_values=values)
    read_flags(values, argv, stray="write --workdir DIR --workdir DIR --into DIR")
    if len(values.workdir) < 2:
        raise SpecError(
            "--workdir",
            f"is given {len(values.workdir)} times; a comparison needs two or more, each as "
            "--workdir DIR.",
        )
    if not values.into:
        raise SpecError("--into", "is missing; add --into DIR.")
    return values
