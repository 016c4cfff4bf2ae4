"""The table of `jtransformer check`: a row per law."""

from typing import Any

from rich.markup import escape
from rich.table import Table

MARKS = {"pass": "holds", "fail": "BROKEN", "not applicable": "—"}


def table(name: str, report: Any) -> Table:
    """Returns the table of a report.

    Args:
        name: What was judged.
        report: A `jtransformer.checks.Report`.
    """
    shown = Table(title=escape(name))
    shown.add_column("about")
    shown.add_column("law")
    shown.add_column("")
    shown.add_column("measured", justify="right")
    shown.add_column("limit", justify="right")
    shown.add_column("s", justify="right")
    shown.add_column("unit; detail")
    group = None
    for row in report.rows:
        measured = "" if row.figure is None else f"{row.figure:.3g}"
        bound = "≥" if row.at_least else "≤"
        limit = "" if row.limit is None else f"{bound} {row.limit:.3g}"
        said = "; ".join(text for text in (row.unit, row.detail) if text)
        about = row.group if row.group != group else ""
        group = row.group
        shown.add_row(
            about,
            row.name,
            MARKS[row.verdict],
            measured,
            limit,
            f"{row.seconds:.1f}",
            escape(said),
        )
    return shown
