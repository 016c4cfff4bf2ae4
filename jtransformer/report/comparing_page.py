"""Writing the page of a comparison, with the files behind its tables and figures."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas

from jtransformer.records import SweepFiles, SweepRecord, write_text
from jtransformer.report import style
from jtransformer.report.comparing import sections
from jtransformer.report.page import bundle, environment, ready
from jtransformer.report.side_by_side import rows
from jtransformer.report.write import write_files
from jtransformer.stats import Compared


def write_comparison(
    sweeps: Mapping[str, tuple[Path, SweepRecord]], compared: Compared, into: Path
) -> Path:
    """Writes several work directories on one page, each file atomically.

    Args:
        sweeps: Directory and records by the name that the page has for them.
        compared: What came out of them.
        into: Where; it is made. `comparison.csv` has every figure of the table with all digits.

    Returns:
        The page.
    """
    write_files(into, sections(compared, style.PAPER))
    write_text(into / "comparison.csv", pandas.DataFrame(rows(compared)).to_csv(index=False))
    on_page = sections(compared, style.PAGE)
    index = into / "index.html"
    text = environment().get_template("comparing.html.j2").render(
        command=_command([workdir for workdir, _ in sweeps.values()], into),
        reload_seconds=None,
        title=f"Comparison of {', '.join(sweeps)}",
        sections=[ready(section, "all") for section in on_page],
        directories=[_directory(name, *one, into) for name, one in sweeps.items()],
        bundle=bundle() if any(section.figures for section in on_page) else "",
    )  # fmt: skip
    write_text(index, text)
    return index


def _directory(name: str, workdir: Path, record: SweepRecord, into: Path) -> dict[str, Any]:
    page = SweepFiles(workdir).report / "index.html"
    question, _, _ = record.manifest["question"].strip().partition("\n\n")
    return {
        "name": name,
        "workdir": shlex.quote(str(workdir)),
        "question": " ".join(question.split()),
        "command": record.manifest["command"],
        "page": Path(os.path.relpath(page, into)).as_posix() if page.exists() else None,
    }


def _command(workdirs: list[Path], into: Path) -> str:
    flags = [word for workdir in workdirs for word in ("--workdir", str(workdir))]
    return shlex.join(["jtransformer", "compare", *flags, "--into", str(into)])
