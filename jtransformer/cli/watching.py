"""Keeping the page of a running sweep up to date."""

import time
from collections.abc import Callable
from pathlib import Path

from jtransformer import records
from jtransformer.cli.stopping import stop_requests
from jtransformer.sweep import is_worked_on

EVERY = 30
"""Seconds between two looks at the records, where none are given."""
SHORTEST = 1
_NAP_SECONDS = 0.1
"""How long a request to stop may wait."""


def with_seconds(argv: list[str]) -> list[str]:
    """Lets --watch stand without its seconds, which a flag of absl cannot."""
    followed = [*argv, "--"][1:]
    return [
        f"--watch={EVERY}" if word == "--watch" and after.startswith("-") else word
        for word, after in zip(argv, followed, strict=True)
    ]


def watch(workdir: Path, seconds: float) -> None:
    """Writes the page whenever the records have changed, until every run has ended.

    Returns as well when it is asked to stop. The page that it leaves still loads itself anew; the
    caller writes the last one.

    Args:
        workdir: A work directory.
        seconds: Between two looks.
    """
    from jtransformer import report

    seen, was_over = "", False
    with stop_requests() as should_stop:
        while not should_stop():
            state, over = records.state_of_files(workdir), _is_over(workdir)
            # A search may add runs right after the last one has ended, so it is asked twice.
            if over and was_over:
                return
            was_over = over
            if state != seen:
                began = time.monotonic()
                analyses = report.write(workdir, seconds).analyses
                finished = sum(one.runs.finished for one in analyses)
                planned = sum(one.runs.planned for one in analyses)
                took = time.monotonic() - began
                print(
                    f"{time.strftime('%H:%M:%S')} {finished} of {planned} runs finished; page "
                    f"written in {took:.1f} s",
                    flush=True,
                )
                seen = state
            _wait(seconds, should_stop)


def _is_over(workdir: Path) -> bool:
    """Whether every planned run has ended, and nobody tries one again that failed."""
    for cell in (records.load_manifest(workdir) or {"cells": []})["cells"]:
        files = records.RunFiles(workdir / cell["directory"])
        if files.status.exists():
            continue
        if not files.failure.exists() or is_worked_on(files.directory):
            return False
    return True


def _wait(seconds: float, should_stop: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not should_stop() and time.monotonic() < end:
        time.sleep(min(_NAP_SECONDS, seconds))
