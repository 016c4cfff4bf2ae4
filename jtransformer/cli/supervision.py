"""A sweep whose workers run elsewhere: started, followed by their records, replaced if lost."""

import time
from pathlib import Path
from typing import Any

from jtransformer import records
from jtransformer.cli.main import FAILED_RUN, USER_ERROR
from jtransformer.cli.progress import Progress, say
from jtransformer.cli.stopping import stop_requests
from jtransformer.spec import SpecError
from jtransformer.sweep import Board, CellRecord, Launch, states
from jtransformer.sweep.launchers import Handle, Launcher

POLL_SECONDS = 0.5
MOST_LOST = 10
"""Workers that may be lost and started again while not one run ends."""


class LaunchError(RuntimeError):
    """No worker is left, and runs are."""


def supervise(
    launcher: Launcher, count: int, workdir: Path, manifest: dict[str, Any], launch: Launch
) -> int | None:
    """Starts workers and follows them until every run of a sweep has ended.

    Args:
        launcher: Starts them.
        count: How many.
        workdir: The work directory.
        manifest: Its sweep.json.
        launch: What its workers follow.

    Returns:
        How many runs have failed in this launch; None if it was asked to stop.

    Raises:
        SpecError: If a worker found a mistake in the input.
        PairingError: If two arms are not paired, or a model is not of the planned size.
        LaunchError: If workers are lost again and again, or end before all runs have.
    """
    board = Board(workdir, manifest, launch)
    board.update()
    now = states(workdir, manifest["cells"])
    with stop_requests() as asked, Progress(manifest, now) as progress:
        handles, lost = launcher.submit(count), 0
        try:
            while handles and board.open():
                time.sleep(POLL_SECONDS)
                if _follow(board, progress, workdir):
                    lost = 0
                if asked():
                    return None
                ended = [handle for handle in handles if handle.poll() is not None]
                handles = [handle for handle in handles if handle not in ended]
                gone = [handle for handle in ended if _is_lost(handle)]
                lost += len(gone)
                if gone and board.open() and lost <= MOST_LOST:
                    names = ", ".join(f"{handle.name} ({handle.poll()})" for handle in gone)
                    say(f"lost: {names}; as many workers are started again.")
                    handles += launcher.submit(len(gone))
        finally:
            _end(handles)
            _follow(board, progress, workdir)
    if board.open():
        logs = records.SweepFiles(workdir).workers
        raise LaunchError(f"{len(board.open())} runs are left and no worker is; what the workers "
                          f"said is in {logs}. Run the same command to continue.")  # fmt: skip
    return board.failed()


def _is_lost(handle: Handle) -> bool:
    """Whether a worker that has ended did so by no fault of its own.

    Raises:
        SpecError: If it found a mistake in the input, which the next would find too.
    """
    if handle.poll() == USER_ERROR:
        lines = handle.log.read_text(errors="replace").strip().splitlines() or ["no reason given"]
        raise SpecError("", lines[-1].removeprefix("jtransformer worker: "))
    return handle.poll() not in (0, FAILED_RUN)


def _end(handles: list[Handle]) -> None:
    """Asks workers to stop and waits until they have saved."""
    for handle in handles:
        handle.stop()
    while any(handle.poll() is None for handle in handles):
        time.sleep(POLL_SECONDS)


def _follow(board: Board, progress: Progress, workdir: Path) -> bool:
    """Shows what the records say; returns whether a run has ended."""
    if progress.is_live:
        for cell in board.open():
            _show_rows(progress, workdir, cell)
    news = board.update()
    for cell, state in news:
        _show_rows(progress, workdir, cell)
        progress.on_done(cell, state)
    return bool(news)


def _show_rows(progress: Progress, workdir: Path, cell: CellRecord) -> None:
    rows = records.read_rows(records.RunFiles(workdir / cell["directory"]).metrics)
    evaluated = [row for row in rows if row["validation_nll"] is not None]
    for row in [*evaluated[-1:], *rows[-1:]]:
        progress.on_row(cell, row)
