"""The parent of processes that train one run together: it starts them, watches them, ends them.

When a process is lost, the others wait for it until JAX aborts them, from C++ and with a page of
trace each. The parent sees the loss at once, says it in one sentence and ends what is left. For a
process that a scheduler started among others there is a parent as well, of that one alone.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jtransformer import records
from jtransformer.cli.joins import FLAGS, Join, await_first, without
from jtransformer.cli.main import FAILED_RUN, REQUEUE, USER_ERROR
from jtransformer.cli.progress import say
from jtransformer.cli.stopping import Stopped, stop_requests
from jtransformer.spec import SpecError

POLL_SECONDS = 0.05
ASK_AGAIN_SECONDS = 1.0
"""How often processes are asked to stop: one that has not begun to train does not hear it."""
CONTINUE = "run the same command to continue from the newest checkpoint"


class Child(NamedTuple):
    """A process that was started, and the folder in which it says how it ended."""

    join: Join
    folder: Path
    process: subprocess.Popen

    @property
    def name(self) -> str:
        """What to call it in a message."""
        about = _read(self.folder / "begun") or {}
        number = about.get("process", self.join.process)
        count = about.get("processes", self.join.processes)
        return "the process" if number is None else f"process {number} of {count}"


def lead(joins: list[Join], argv: list[str], threads: int | None) -> int:
    """Starts processes that train a run, and follows them until it is over.

    Args:
        joins: The processes.
        argv: What followed the command.
        threads: Those of a CPU that each had when the run was begun; None divides them now.

    Returns:
        0; 1 if one failed or was lost; 75 if they were asked to stop, and have saved.

    Raises:
        SpecError: If one found a mistake in the input, or no first process to join.
        Stopped: If they were asked to stop before all of them had come.
    """
    if len(joins) == 1:
        await_first(joins[0])
    own = list(without(FLAGS, argv))
    environment = dict(os.environ)
    if len(joins) > 1:
        records.use_cpu_threads(threads or max(1, records.cpu_threads() // len(joins)), environment)
    with stop_requests() as asked, _scratch() as folder:
        children = [
            _start(join, folder / str(place), own, environment) for place, join in enumerate(joins)
        ]
        try:
            _follow(children, asked)
            lost = [child for child in children if child.process.poll() not in (None, 0, REQUEUE)]
            codes = [child.process.poll() for child in children]
        finally:
            for child in children:
                child.process.kill()
                child.process.wait()
        if lost:
            return _report(min(lost, key=_rank))
        return REQUEUE if REQUEUE in codes else 0


def _follow(children: list[Child], asked: Any) -> None:
    """Returns when all have ended, or one has as it should not; passes on what they are asked."""
    last = 0.0
    while any(child.process.poll() is None for child in children):
        if any(child.process.poll() not in (None, 0, REQUEUE) for child in children):
            return
        if asked() and not all((child.folder / "begun").exists() for child in children):
            # They wait for one another and hear nothing; there is nothing to save yet.
            raise Stopped
        if asked() and time.monotonic() - last > ASK_AGAIN_SECONDS:
            last = time.monotonic()
            for child in children:
                child.process.terminate()
        time.sleep(POLL_SECONDS)


def _rank(child: Child) -> int:
    """Orders processes that ended at once: a cause comes before what follows from it."""
    code = child.process.returncode
    if code == -signal.SIGABRT:
        return 3
    return 0 if code < 0 else 1 if code == USER_ERROR else 2


def _report(child: Child) -> int:
    """Says how a process was lost, in one sentence, and returns the exit code."""
    sentence, code = (_read(child.folder / "said") or {}).get("sentence"), child.process.returncode
    if code == USER_ERROR and sentence:
        raise SpecError("", sentence)
    if sentence:
        end = f"failed: {sentence}"
    elif code == -signal.SIGABRT and not (child.folder / "begun").exists():
        end = (
            f"waited {child.join.seconds} s and not all of the others came; start all of them "
            "again, or wait longer by --coordinator_timeout."
        )
    else:
        what = "ended with exit code" if code > 0 else "was ended by"
        what += f" {code if code > 0 else signal.Signals(-code).name}"
        why = ""
        if code != -signal.SIGKILL:
            (child.folder.parent / "kept").touch()
            why = f" (what it printed is in {child.folder / 'log'})"
        if code == -signal.SIGABRT:
            why = f" as it had lost contact with another one{why}"
        end = f"{what}{why}; {CONTINUE}."
    say(f"jtransformer train: {child.name} {end}")
    return FAILED_RUN


def _start(join: Join, folder: Path, argv: list[str], environment: dict[str, str]) -> Child:
    folder.mkdir()
    command = [sys.executable, "-m", "jtransformer.cli.member", json.dumps(join), str(folder)]
    # What a library prints goes to a file; what the first process says itself comes here.
    shown = os.dup(sys.stderr.fileno())
    with open(folder / "log", "wb") as log, open(shown, "w"):
        process = subprocess.Popen(
            [*command, str(shown), *argv],
            stdin=subprocess.DEVNULL,
            stderr=log,
            pass_fds=(shown,),
            # Ctrl-C reaches the parent alone, which then asks each to stop.
            start_new_session=True,
            env=environment,
        )
    return Child(join, folder, process)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Makes a folder for what processes say; it stays where there is something to look at."""
    folder = Path(tempfile.mkdtemp(prefix="jtransformer-"))
    try:
        yield folder
    finally:
        if not (folder / "kept").exists():
            shutil.rmtree(folder)


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None
