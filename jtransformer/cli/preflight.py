"""Everything that can be wrong is found here, before the first step is trained."""

import contextlib
import fcntl
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jtransformer import accounting, records
from jtransformer.spec import RunSpec, SpecError

BYTES_PER_NUMBER = 4
CHECKPOINTS_ON_DISK = 4
"""Two newest, the best, and the one that is being written."""
OVERHEAD_BYTES = 2**20
"""Metrics, metadata and the like, per run."""
PROBE_BYTES = 2**19
"""One probe, most of it eight maps of 64 × 64 numbers."""
PACKAGES = ("grain", "scipy", "pandas", "statsmodels", "altair", "vl_convert", "jinja2")
"""What a sweep and its page need beyond the base installation."""


def check_packages() -> None:
    """Refuses to begin what could not be ended.

    Raises:
        SpecError: If a package is missing; how to install it is said.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise SpecError(
            "",
            f"The packages {', '.join(missing)} are missing, which a sweep and its page need; "
            "pip install 'jtransformer[experiments]'.",
        )


def check_writable(workdir: Path, flag: str = "--workdir") -> None:
    """Proves that a file can be written in a directory, or where it will be made.

    Args:
        workdir: The directory.
        flag: What names it on the command line.

    Raises:
        SpecError: If it cannot.
    """
    try:
        probe = _existing(workdir) / f".writable.{os.getpid()}"
        probe.write_text("probe")
        probe.unlink()
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError(
            flag, f"= {str(workdir)!r} cannot be written ({reason}); choose another place."
        ) from None


def check_no_single_run(workdir: Path) -> None:
    """Refuses a sweep in the directory of a single run.

    Raises:
        SpecError: If there is one.
    """
    if records.RunFiles(workdir).spec.exists():
        raise SpecError("--workdir", f"= {str(workdir)!r} holds a single run; choose another.")


def check_no_sweep(workdir: Path, flag: str = "--workdir") -> None:
    """Refuses a single run in the directory of a sweep.

    Args:
        workdir: The directory.
        flag: What names it on the command line.

    Raises:
        SpecError: If there is one.
    """
    if records.SweepFiles(workdir).manifest.exists():
        raise SpecError(flag, f"= {str(workdir)!r} holds a sweep; choose another.")


def read_manifest(workdir: Path) -> dict[str, Any]:
    """Reads the sweep.json of a work directory.

    Raises:
        SpecError: If it holds no sweep.
        DamagedRecord: If the file is damaged.
    """
    manifest = records.load_manifest(workdir)
    if manifest is None:
        raise SpecError("--workdir", f"= {str(workdir)!r} holds no sweep (sweep.json is missing).")
    return manifest


def check_space(workdir: Path, unfinished: list[RunSpec]) -> None:
    """Compares the free space with what the checkpoints of the unfinished runs can take.

    Raises:
        SpecError: If it is less.
    """
    needed = sum(checkpoint_bytes(spec) for spec in unfinished)
    free = shutil.disk_usage(_existing(workdir)).free
    if free < needed:
        raise SpecError(
            "--workdir",
            f"= {str(workdir)!r} has {free / 2**20:.1f} MiB free, but the checkpoints of "
            f"{len(unfinished)} runs can take {needed / 2**20:.1f} MiB; make room or choose "
            "another disk.",
        )


def _existing(workdir: Path) -> Path:
    """Returns the work directory, or the nearest directory above it that exists."""
    return next(path for path in [workdir, *workdir.absolute().parents] if path.exists())


def checkpoint_bytes(spec: RunSpec) -> int:
    """Returns what a run can take on disk at most."""
    parameters = accounting.parameters(spec.model).total
    copies = 1 if spec.training.average_decay is None else 2
    kept = accounting.optimizer_numbers(spec.model, spec.optimizer.rule)
    numbers = copies * parameters + kept
    probes = PROBE_BYTES * len(spec.training.probe_steps)
    return CHECKPOINTS_ON_DISK * numbers * BYTES_PER_NUMBER + probes + OVERHEAD_BYTES


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Makes a work directory and holds it for this process; the kernel lets go even after a kill.

    Raises:
        SpecError: If another process holds it.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    path = records.SweepFiles(workdir).lock
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
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
