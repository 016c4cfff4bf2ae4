"""Trains the cells that are missing, and proves that those which exist are paired."""

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jtransformer import accounting, records
from jtransformer.spec import RunSpec, SpecError, differences
from jtransformer.sweep.plan import Cell, Plan

TrainOne = Callable[[RunSpec, Path], dict[str, Any]]


class PairingError(RuntimeError):
    """Two arms of one seed did not see the same batches or start from the same values."""


def states(plan: Plan, workdir: Path) -> dict[str, str]:
    """Returns "done", "diverged" or "pending" for every cell, by fingerprint, in order.

    Raises:
        SpecError: If a run's directory does not belong to this sweep.
    """
    found = {cell.fingerprint: _status(workdir, cell) for cell in plan.cells}
    return {
        identity: status["state"] if status else "pending" for identity, status in found.items()
    }


def execute(
    plan: Plan, workdir: Path, train: TrainOne, on_done: Callable[[Cell, str], None]
) -> int:
    """Trains every missing cell.

    Args:
        plan: The sweep.
        workdir: Its work directory, manifest written.
        train: Trains one run in its directory and returns its status.
        on_done: Called after each cell with its state.

    Returns:
        The number of cells that failed; each has its traceback in failure.json.

    Raises:
        SpecError: If a run's directory does not belong to this sweep.
        PairingError: If two arms are not paired, or a model is not of the planned size.
    """
    pairing, failed = records.Pairing(), 0
    planned = {arm.name: accounting.parameters(arm.spec.model).total for arm in plan.arms}
    todo = []
    for cell in plan.cells:
        status = _status(workdir, cell)
        if status is None:
            _set_aside_damaged(workdir, cell)
            todo.append(cell)
        else:
            _check_paired(pairing, cell, status, planned[cell.arm])
    for cell in todo:
        directory = workdir / cell.directory
        try:
            status = train(cell.spec, directory)
        except SpecError:
            raise
        # The boundary of a cell: one that fails must not take the others with it.
        except Exception as error:
            _record_failure(directory, error)
            failed += 1
            on_done(cell, "failed")
            continue
        _check_paired(pairing, cell, status, planned[cell.arm])
        on_done(cell, status["state"])
    return failed


def _record_failure(directory: Path, error: Exception) -> None:
    sentence = f"{type(error).__name__}: {error}"
    failure = {"error": sentence, "traceback": "".join(traceback.format_exception(error))}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        records.write_json(records.RunFiles(directory).failure, failure)
    except OSError:  # A full disk, most likely the failure itself.
        logging.getLogger(__name__).error("%s failed: %s", directory, sentence)


def _check_paired(
    pairing: records.Pairing, cell: Cell, status: dict[str, Any], planned: int
) -> None:
    counted = status["result"]["parameters"]
    if counted != planned:
        raise PairingError(f"{cell.directory} holds {counted} parameters, the plan says {planned}.")
    about = {"seed": cell.spec.seed, "directory": cell.directory}
    for found in pairing.add(about, status["pairing"]):
        what = "batches" if found.what == "batches" else f"initial values of {found.what}"
        raise PairingError(
            f"The {what} of {found.directory} and {found.other} differ although seed and settings "
            "are the same, so they cannot be compared; delete the run that was made by other code."
        )


def check_continuation(old: dict[str, Any], new: dict[str, Any], workdir: Path) -> int:
    """Decides whether a work directory may be continued by a plan.

    A sweep may grow, by seeds, values or arms; what it has must stay a part of it.

    Args:
        old: The manifest on disk.
        new: The manifest of the plan.
        workdir: Named in the message.

    Returns:
        How many cells are new.

    Raises:
        SpecError: If a run on disk is not a part of the plan; what differs is said.
    """
    kept = {cell["fingerprint"] for cell in new["cells"]}
    lost = [cell for cell in old["cells"] if cell["fingerprint"] not in kept]
    if not lost:
        return len(kept) - len(old["cells"])
    declared = ("base", "scientific", "nuisance", "seeds", "match", "data")
    there, here = ({part: record[part] for part in declared} for record in (old, new))
    changes = differences(there, here)
    described = "; ".join(f"{path}: {a!r} there, {b!r} here" for path, (a, b) in changes.items())
    raise SpecError(
        "",
        f"{workdir} holds another sweep ({described or 'its runs have other identities'}); "
        "use another work directory.",
    )


def _status(workdir: Path, cell: Cell) -> dict[str, Any] | None:
    files = records.RunFiles(workdir / cell.directory)
    if not files.status.exists():
        return None
    try:
        status = records.read_json(files.status)
        parts = [status[part] for part in records.STATUS_PARTS]
    except (records.DamagedRecord, KeyError, TypeError):
        return None
    found = str(parts[0])
    if found != cell.fingerprint:
        raise SpecError(
            "",
            f"{files.status} belongs to another run (fingerprint {found[:8]}, expected "
            f"{cell.fingerprint[:8]}); use another work directory.",
        )
    return status


def _set_aside_damaged(workdir: Path, cell: Cell) -> None:
    """Moves a status away that cannot be read; the run is then completed from its checkpoint."""
    files = records.RunFiles(workdir / cell.directory)
    if files.status.exists():
        files.status.rename(files.directory / "status.json.damaged")
        records.append_row(files.events, {"event": "damaged status"})
