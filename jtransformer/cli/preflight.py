"""Everything that can be wrong is found here, before the first step is trained."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from jtransformer import accounting, records
from jtransformer.spec import RunSpec, SpecError

ARRAYS_PER_PARAMETER = 3
"""A checkpoint holds each parameter and AdamW's two moments."""
BYTES_PER_NUMBER = 4
CHECKPOINTS_ON_DISK = 4
"""Two newest, the best, and the one that is being written."""
OVERHEAD_BYTES = 2**20
"""Metrics, metadata and the like, per run."""


def check_writable(workdir: Path) -> None:
    """Makes the work directory and proves that a file can be written there.

    Raises:
        SpecError: If it cannot.
    """
    probe = workdir / f".writable.{os.getpid()}"
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        probe.write_text("probe")
        probe.unlink()
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError(
            "--workdir", f"= {str(workdir)!r} cannot be written ({reason}); choose another place."
        ) from None


def check_space(workdir: Path, unfinished: list[RunSpec]) -> None:
    """Compares the free space with what the checkpoints of the unfinished runs can take.

    Raises:
        SpecError: If it is less.
    """
    needed = sum(checkpoint_bytes(spec) for spec in unfinished)
    free = shutil.disk_usage(workdir).free
    if free < needed:
        raise SpecError(
            "--workdir",
            f"= {str(workdir)!r} has {free / 2**20:.1f} MiB free, but the checkpoints of "
            f"{len(unfinished)} runs can take {needed / 2**20:.1f} MiB; make room or choose "
            "another disk.",
        )


def checkpoint_bytes(spec: RunSpec) -> int:
    """Returns what a run can take on disk at most."""
    numbers = ARRAYS_PER_PARAMETER * accounting.parameters(spec.model).total
    return CHECKPOINTS_ON_DISK * numbers * BYTES_PER_NUMBER + OVERHEAD_BYTES


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Holds a work directory for this process; the kernel lets go of it even after a kill.

    Raises:
        SpecError: If another process holds it.
    """
    path = records.SweepFiles(workdir).lock
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise SpecError(
                "--workdir",
                f"= {str(workdir)!r} is in use by process {holder}; wait for it or end it.",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
