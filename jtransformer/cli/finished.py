"""A finished sweep that is run again: what its page says is shown, without statistics or JAX."""

import json
from pathlib import Path
from typing import Any

import jtransformer
from jtransformer import records

OF_ONE_COMMAND = ("command", "execution")
"""What a manifest says of how it came about; a page is as right after another command."""


def is_finished(workdir: Path, manifest: dict[str, Any]) -> bool:
    """Whether the page of a sweep without missing runs is there, made from this very plan.

    Args:
        workdir: The work directory.
        manifest: Of the plan.
    """
    old = records.load_manifest(workdir) or {}
    same = _lasting(old) == _lasting(manifest)
    return same and records.report_is_current(workdir, jtransformer.__version__)


def show_finished(workdir: Path) -> None:
    """Prints the results as the page's folder has them."""
    report = records.SweepFiles(workdir).report
    print((report / "results.md").read_text(encoding="utf-8").rstrip())
    print(f"\nnothing to train: every run is complete\npage: {report / 'index.html'}")


def _lasting(manifest: dict[str, Any]) -> dict[str, Any]:
    # Through JSON, in which tuples are lists.
    plain = json.loads(json.dumps(manifest))
    return {part: value for part, value in plain.items() if part not in OF_ONE_COMMAND}
