"""A worker as the child of a process that some scheduler has started."""

import os
import signal
import subprocess
import time
from pathlib import Path

from jtransformer.sweep.launchers.protocol import worker_command

IGNORED = (signal.SIGUSR1, signal.SIGUSR2)
"""Warnings of schedulers to what they started; a worker that they reach too would end by them."""

WATCHED_EVERY_SECONDS = 0.2


def start_worker(workdir: Path, log: Path, folder: Path) -> subprocess.Popen:
    """Starts a worker that stops by itself when this process has gone.

    Args:
        workdir: The work directory, absolute.
        log: Where it prints; appended to.
        folder: Where it works, for paths of data that are relative; where there is no such folder
            on this host, it stays in that of this process.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in IGNORED}
    try:
        with open(log, "ab") as output:
            # What is ignored here stays ignored there, unlike what is handled.
            return subprocess.Popen(
                worker_command(workdir, os.getpid()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder if folder.is_dir() else None,
            )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch_worker(process: subprocess.Popen) -> int:
    """Waits for a worker and returns its exit code.

    It looks again and again: a wait is neither interrupted by how Ray cancels a task, nor could a
    handler of signals that came in the middle of one ask anything of the process.
    """
    while (code := process.poll()) is None:
        time.sleep(WATCHED_EVERY_SECONDS)
    return code


def stop_worker(process: subprocess.Popen) -> int:
    """Asks a worker to save and end, waits for it, and returns its exit code."""
    process.terminate()
    return process.wait()
