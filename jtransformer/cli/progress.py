"""What a user sees while runs are trained: a live table on a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from jtransformer.sweep import Cell, Plan

PLAIN_WIDTH = 140
MARKS = {"done": "●", "diverged": "✕", "failed": "!", "running": "◐", "pending": "·"}


class Progress:
    """Follows a sweep; use it as a context."""

    def __init__(self, plan: Plan, states: dict[str, str]):
        """Begins to follow.

        Args:
            plan: The sweep.
            states: State of each cell, by fingerprint.
        """
        self._plan, self._states = plan, states
        shown = Console()
        self._live = Live(console=shown, auto_refresh=False) if shown.is_terminal else None
        self._begin = time.perf_counter()
        self._trained = 0
        self._row: dict[str, Any] = {}
        self._losses: dict[str, float] = {}

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live:
            self._live.__exit__(*error)

    def on_row(self, cell: Cell, row: dict[str, Any]) -> None:
        """Shows a new row of metrics of the run in progress."""
        self._states[cell.fingerprint] = "running"
        self._row = row
        if row["validation_nll"] is not None:
            self._losses[cell.fingerprint] = row["validation_nll"]
        if self._live:
            self._live.update(self._table(cell), refresh=True)

    def on_done(self, cell: Cell, state: str) -> None:
        """Counts a run that has ended."""
        self._states[cell.fingerprint] = state
        self._trained += 1
        if self._live:
            self._live.update(self._table(cell), refresh=True)
            return
        ended = len(self._plan.cells) - self._left()
        loss = self._losses.get(cell.fingerprint)
        shown = (
            f"{state}, validation {loss:.4f} {cell.spec.loss_unit}" if loss is not None else state
        )
        speed = self._row.get("tokens_per_second", 0.0)
        print(
            f"[{ended:>{len(str(len(self._plan.cells)))}}/{len(self._plan.cells)}] "
            f"{_describe(cell)}: {shown}, {speed / 1e3:.0f}k tokens/s, {self._time_left()}",
            flush=True,
        )

    def _left(self) -> int:
        ended = ("done", "diverged", "failed")
        return sum(self._states[cell.fingerprint] not in ended for cell in self._plan.cells)

    def _time_left(self) -> str:
        left = self._left()
        if not left:
            return "all runs ended"
        if not self._trained:
            return f"{left} runs left"
        seconds = (time.perf_counter() - self._begin) / self._trained * left
        return f"about {seconds / 60:.1f} min left"

    def _table(self, current: Cell) -> Table:
        cells = self._plan.cells
        table = Table(
            title=f"{len(cells) - self._left()} of {len(cells)} runs, {self._time_left()}"
        )
        table.add_column("arm")
        nuisances = list(dict.fromkeys(str(cell.nuisance) for cell in cells))
        labels = {str(cell.nuisance): _setting(cell) for cell in cells}
        for nuisance in nuisances:
            table.add_column(labels[nuisance] or "runs")
        table.add_column("now", justify="right")
        for arm in self._plan.arms:
            own = [cell for cell in cells if cell.arm == arm.name]
            marks = [
                " ".join(
                    MARKS[self._states[cell.fingerprint]]
                    for cell in own
                    if str(cell.nuisance) == nuisance
                )
                for nuisance in nuisances
            ]
            table.add_row(arm.name, *marks, self._now() if arm.name == current.arm else "")
        return table

    def _now(self) -> str:
        row = self._row
        if not row:
            return ""
        speed = row["tokens_per_second"] / 1e3
        unit = self._plan.base.loss_unit
        return f"step {row['step']}  train {row['train_nll']:.3f} {unit}  {speed:.0f}k tokens/s"


def _setting(cell: Cell) -> str:
    return " ".join(f"{path.split('.')[-1]} {value!r}" for path, value in cell.nuisance.items())


def _describe(cell: Cell) -> str:
    return " ".join(filter(None, [cell.arm, _setting(cell), f"seed {cell.spec.seed}"]))


def console() -> Console:
    """Returns where tables are printed; a file or a pipe is given room for all columns."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=PLAIN_WIDTH)


def say(text: str) -> None:
    """Prints a line for the user; results go to stdout, remarks to stderr."""
    print(text, file=sys.stderr, flush=True)
