"""What a user sees while runs are trained: a live table on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from jtransformer.sweep import CellRecord

PLAIN_WIDTH = 140
_remarks_to: list[TextIO] = []
MARKS = {"done": "●", "diverged": "✕", "failed": "!", "running": "◐", "pending": "·"}


class Progress:
    """Follows a sweep; use it as a context."""

    def __init__(self, manifest: dict[str, Any], states: dict[str, str]):
        """Begins to follow.

        Args:
            manifest: The content of sweep.json.
            states: State of each cell, by fingerprint.
        """
        self._manifest, self._states = manifest, states
        self._cells: list[CellRecord] = manifest["cells"]
        self._unit: str = manifest["data"]["loss_unit"]
        shown = Console()
        self._live = Live(console=shown, auto_refresh=False) if shown.is_terminal else None
        self._begin = time.perf_counter()
        self._trained = 0
        self._rows: dict[str, dict[str, Any]] = {}
        self._losses: dict[str, float] = {}

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live:
            self._live.__exit__(*error)

    @property
    def is_live(self) -> bool:
        """Whether rows are shown as they come."""
        return self._live is not None

    def on_row(self, cell: CellRecord, row: dict[str, Any]) -> None:
        """Shows a new row of metrics of the run in progress."""
        identity = cell["fingerprint"]
        self._states[identity] = "running"
        self._rows[identity] = row
        if row["validation_nll"] is not None:
            self._losses[identity] = row["validation_nll"]
        if self._live:
            self._live.update(self._table(), refresh=True)

    def on_done(self, cell: CellRecord, state: str) -> None:
        """Counts a run that has ended."""
        identity = cell["fingerprint"]
        row = self._rows.pop(identity, {})
        self._states[identity] = state
        self._trained += 1
        if self._live:
            self._live.update(self._table(), refresh=True)
            return
        total = len(self._cells)
        loss = self._losses.get(identity)
        shown = f"{state}, validation {loss:.4f} {self._unit}" if loss is not None else state
        # A run that another worker trained has no speed here.
        if row:
            shown += f", {row['tokens_per_second'] / 1e3:.0f}k tokens/s"
        print(
            f"[{total - self._left():>{len(str(total))}}/{total}] "
            f"{_describe(cell)}: {shown}, {self._time_left()}",
            flush=True,
        )

    def _left(self) -> int:
        ended = ("done", "diverged", "failed")
        return sum(self._states[cell["fingerprint"]] not in ended for cell in self._cells)

    def _time_left(self) -> str:
        left = self._left()
        if not left:
            return "all runs ended"
        if not self._trained:
            return f"{left} runs left"
        seconds = (time.perf_counter() - self._begin) / self._trained * left
        return f"about {seconds / 60:.1f} min left"

    def _table(self) -> Table:
        cells = self._cells
        table = Table(
            title=f"{len(cells) - self._left()} of {len(cells)} runs, {self._time_left()}"
        )
        table.add_column("arm")
        labels = {str(cell["nuisance"]): _setting(cell) for cell in cells}
        for label in labels.values():
            table.add_column(label or "runs")
        table.add_column("now", justify="right")
        for arm in self._manifest["arms"]:
            own = [cell for cell in cells if cell["arm"] == arm["name"]]
            marks = [
                " ".join(
                    MARKS[self._states[cell["fingerprint"]]]
                    for cell in own
                    if str(cell["nuisance"]) == nuisance
                )
                for nuisance in labels
            ]
            table.add_row(arm["name"], *marks, self._now(own))
        return table

    def _now(self, cells: list[CellRecord]) -> str:
        """Returns what the newest rows of an arm's runs in progress say."""
        rows = [self._rows[c["fingerprint"]] for c in cells if c["fingerprint"] in self._rows]
        return "\n".join(
            f"step {row['step']}  train {row['train_nll']:.3f} {self._unit}  "
            f"{row['tokens_per_second'] / 1e3:.0f}k tokens/s"
            for row in rows
        )


def _setting(cell: CellRecord) -> str:
    return " ".join(f"{path.split('.')[-1]} {value!r}" for path, value in cell["nuisance"].items())


def _describe(cell: CellRecord) -> str:
    return " ".join(filter(None, [cell["arm"], _setting(cell), f"seed {cell['seed']}"]))


def console() -> Console:
    """Returns where tables are printed; a file or a pipe is given room for all columns."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=PLAIN_WIDTH)


def print_table(columns: Iterable[Any], title: str | None = None) -> None:
    """Prints columns of a report as a table; names from configs are no markup.

    Args:
        columns: Each with a heading and its cells, as text.
        title: What stands above it.
    """
    table = Table(title=None if title is None else escape(title))
    shown = list(columns)
    for column in shown:
        table.add_column(escape(column.heading))
    for cells in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*map(escape, cells))
    console().print(table)


def say(text: str) -> None:
    """Prints a line for the user; results go to stdout, remarks to stderr."""
    print(text, file=_remarks_to[-1] if _remarks_to else sys.stderr, flush=True)


def say_to(stream: TextIO) -> None:
    """Sends remarks of this process to `stream`, where stderr is left to libraries."""
    _remarks_to.append(stream)
