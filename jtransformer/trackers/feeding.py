"""Giving trackers what they lack."""

import contextlib
import fcntl
import importlib.util
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from jtransformer import records
from jtransformer.trackers import event_files, offline_runs
from jtransformer.trackers.runs import TrackedRun, tracked_runs

FEED_SECONDS = 30.0
"""How often a tracker is fed while runs are trained."""


class Tracker(NamedTuple):
    """A tool that shows runs.

    Attributes:
        package: What has to be installed for it.
        extra: The extra of this project that installs it.
        add: Adds what is new of a run to a directory and returns how many rows that was.
    """

    package: str
    extra: str
    add: Callable[[TrackedRun, Path], int]


TRACKERS = {
    "tensorboard": Tracker("tensorboardX", "tensorboard", event_files.add),
    "wandb": Tracker("wandb", "wandb", offline_runs.add),
}
"""Every tracker, by the name that commands know."""


def check_tracker(name: str) -> None:
    """Refuses a tracker that cannot be fed.

    Raises:
        ValueError: If it is unknown, or its package is not installed.
    """
    if name not in TRACKERS:
        raise ValueError(f"{name!r} is not a tracker; use one of {', '.join(TRACKERS)}.")
    package, extra, _ = TRACKERS[name]
    if importlib.util.find_spec(package) is None:
        raise ValueError(
            f"The package {package} is missing, which {name} needs; "
            f"pip install 'jtransformer[{extra}]'."
        )


def feed(workdir: Path, to: str, into: Path) -> int:
    """Adds what a tracker lacks of the runs of a work directory.

    It may be killed at any moment, and called again at any time and on any state of the runs:
    after a call that ended, each row is in the tracker once.

    Args:
        workdir: That of a sweep, or of a single run.
        to: Name of the tracker.
        into: Where its files are; made if missing. Processes of one host that feed the same
            directory wait for each other.

    Returns:
        How many rows were added.

    Raises:
        ValueError: If the tracker is unknown, or a record is damaged.
        FileNotFoundError: If `workdir` holds no run.
    """
    check_tracker(to)
    runs = tracked_runs(workdir)
    with _alone(into):
        return sum(TRACKERS[to].add(run, into) for run in runs)


@contextlib.contextmanager
def kept_fed(workdir: Path, to: str, into: Path) -> Iterator[None]:
    """Feeds a tracker now and then while the block lasts, and once behind it.

    That is done beside the block, which no fault of a tracker ends: it is raised behind it.

    Args:
        workdir: As `feed` takes it; its sweep is planned or its run begun.
        to: Name of the tracker.
        into: Where its files are.

    Raises:
        ValueError: As `feed` does.
    """
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(FEED_SECONDS):
            # A damaged status is made again by the sweep; where it is not, the last feed says so.
            with contextlib.suppress(records.DamagedRecord):
                feed(workdir, to, into)

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tracker") as thread:
        keeping = thread.submit(keep)
        try:
            yield
        finally:
            ended.set()
        keeping.result()
    feed(workdir, to, into)


@contextlib.contextmanager
def _alone(into: Path) -> Iterator[None]:
    """Holds a directory until the block ends; the kernel lets go of it even after a kill."""
    into.mkdir(parents=True, exist_ok=True)
    with open(into / ".feed.lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
