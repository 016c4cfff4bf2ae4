"""The parent of processes that train one run together: it starts them, watches them, ends them.

When a process is lost, the others wait for it until JAX aborts them, from C++ and with a page of
trace each. The parent sees the loss at once, says it in one sentence and ends what is left. For a
process that a scheduler started among others there is a parent as well, of that one alone.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from jtransformer import records
from jtransformer.cli.main import FAILED_RUN, REQUEUE, USER_ERROR
from jtransformer.cli.progress import say
from jtransformer.cli.stopping import Stopped, stop_requests
from jtransformer.spec import SpecError
from jtransformer.sweep.launchers.local import visible_gpus

AUTO = "auto"
LOOPBACK = "127.0.0.1"
FLAGS = ("processes", "distributed")
POLL_SECONDS = 0.05
ASK_AGAIN_SECONDS = 1.0
"""How often processes are asked to stop: one that has not begun to train does not hear it."""
START_SECONDS = 300
"""How long processes wait for the last one to come; a scheduler may start it later."""
CONTINUE = "run the same command to continue from the newest checkpoint"


class Join(NamedTuple):
    """How a process comes to the others; what a scheduler knows is None.

    Attributes:
        address: Host and port of the first one.
        processes: How many there are.
        process: Number of this one.
        devices: Numbers of the GPUs that are its own.
    """

    address: str | None = None
    processes: int | None = None
    process: int | None = None
    devices: list[int] | None = None


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


def define_flags() -> flags.FlagValues:
    """Returns the flags that say which processes train, not yet read."""
    values = flags.FlagValues()
    flags.DEFINE_integer("processes", 1, "processes", flag_values=values)
    flags.DEFINE_string("distributed", None, "distributed", flag_values=values)
    return values


def read_joins(values: flags.FlagValues) -> list[Join]:
    """Returns the processes to start; none where this one trains by itself.

    Raises:
        SpecError: If the flags make no sense.
    """
    if values.processes < 1:
        raise SpecError("--processes", f"must be at least 1, got {values.processes}.")
    if values.distributed is not None:
        if values.processes > 1:
            raise SpecError(
                "--distributed",
                f"joins one process to others, and --processes {values.processes} starts several; "
                "leave one of them out.",
            )
        return [_joined(values.distributed)]
    if values.processes == 1:
        return []
    address = f"{LOOPBACK}:{_free_port()}"
    own = _gpus(values.processes)
    return [Join(address, values.processes, place, own[place]) for place in range(values.processes)]


def lead(joins: list[Join], argv: list[str], threads: int | None) -> int:
    """Starts processes that train a run, and follows them until it is over.

    Args:
        joins: The processes.
        argv: What followed the command.
        threads: Those of a CPU that each had when the run was begun; None divides them now.

    Returns:
        0; 1 if one failed or was lost; 75 if they were asked to stop, and have saved.

    Raises:
        SpecError: If one found a mistake in the input.
        Stopped: If they were asked to stop before all of them had come.
    """
    own = list(_without(FLAGS, argv))
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
        end = f"waited {START_SECONDS} s and not all of the others came; start all of them again."
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


def _joined(text: str) -> Join:
    """Reads `--distributed`."""
    if text == AUTO:
        return Join()
    match = re.fullmatch(r"([^,\s]+:(\d{1,5})),(\d{1,9}),(\d{1,9})", text, re.ASCII)
    if match is None:
        raise SpecError(
            "--distributed",
            f"must be {AUTO}, or HOST:PORT,N,I as in 10.0.0.1:1234,4,0 for the first of four, "
            f"got {text!r}.",
        )
    address, port, processes, process = match[1], *map(int, match.group(2, 3, 4))
    if not 0 < port < 2**16:
        raise SpecError("--distributed", f"= {text!r} has the port {port}; use one of 1 to 65535.")
    if process >= processes:
        raise SpecError(
            "--distributed",
            f"= {text!r} is process {process} of {processes}; they are numbered from 0.",
        )
    if process == 0 and not _is_free(port):
        raise SpecError(
            "--distributed",
            f"= {text!r} has a port that is in use; give the host of process 0, with a port that "
            "is free there.",
        )
    return Join(address, processes, process)


def _is_free(port: int) -> bool:
    """Whether process 0 can listen there; where it cannot, JAX 0.12 ends it from C++."""
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True


def _gpus(processes: int) -> list[list[int] | None]:
    """Deals the GPUs of this host to processes; None each where there are none to deal."""
    found = visible_gpus(os.environ)
    if not found or os.environ.get("JAX_PLATFORMS") == "cpu":
        return [None] * processes
    if len(found) % processes:
        raise SpecError(
            "--processes",
            f"= {processes} do not divide the {len(found)} GPUs of this host; use as many "
            "processes as there are GPUs.",
        )
    each = len(found) // processes
    return [list(range(place * each, (place + 1) * each)) for place in range(processes)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def _without(names: tuple[str, ...], argv: list[str]) -> Iterator[str]:
    """Leaves flags out of a command line, with their values."""
    words = iter(argv)
    for word in words:
        name, equals, _ = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in names:
            yield word
        elif not equals:
            next(words, None)


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None
