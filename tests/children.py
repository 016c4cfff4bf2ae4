"""Processes that a test starts: none outlives it, whatever the test came to.

One that is left runs on beside later tests, and its object, once nobody holds it, warns in the
middle of whichever of them is at work.
"""

import subprocess
from collections.abc import Sequence
from typing import Any

_STARTED: list[subprocess.Popen] = []


def start(words: Sequence[str], **options: Any) -> subprocess.Popen:
    """Starts a process as `subprocess.Popen` does; `conftest.py` ends it behind the test."""
    process = subprocess.Popen(words, **options)
    _STARTED.append(process)
    return process


def end_all() -> None:
    """Ends what has been started and waits for it."""
    while _STARTED:
        end(_STARTED.pop())


def end(process: subprocess.Popen) -> None:
    """Kills a process, also one that is paused, waits for it, and closes its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
