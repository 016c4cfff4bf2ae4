"""What launchers have in common."""

import sys
from pathlib import Path
from typing import Protocol

LOST = -1
"""In place of an exit code, where a worker went without one: its node died, its job vanished."""


class Handle(Protocol):
    """A worker that was started, or waits to be.

    Attributes:
        name: What to call it in a message.
        log: What it prints, in the work directory.
    """

    name: str
    log: Path

    def poll(self) -> int | None:
        """Returns its exit code, or a negative number if it was killed; None before that."""
        ...

    def stop(self) -> None:
        """Asks it to save and to end; one that has ended is left alone."""
        ...


class Launcher(Protocol):
    """Starts workers of one work directory."""

    def submit(self, count: int) -> list[Handle]:
        """Starts workers, at once or when there is room.

        Raises:
            SpecError: If none can be started here; what is missing is said.
        """
        ...


def worker_command(workdir: Path, parent: int) -> list[str]:
    """Returns the command of a worker.

    Args:
        workdir: The work directory, absolute.
        parent: The process whose end makes the worker stop.
    """
    words = ["-m", "jtransformer", "worker", "--workdir", str(workdir), "--parent", str(parent)]
    return [sys.executable, *words]
