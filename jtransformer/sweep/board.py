"""Which runs of a sweep have ended, and that those which have are paired."""

from pathlib import Path
from typing import Any

from jtransformer import records
from jtransformer.spec import SpecError
from jtransformer.sweep.launch import Launch

CellRecord = dict[str, Any]
"""A cell, as sweep.json lists it."""
_ABSENT = (FileNotFoundError, NotADirectoryError)
"""There is no such file; a file may stand where its directory should be."""


class PairingError(RuntimeError):
    """Two arms of one seed did not see the same batches or start from the same values."""


class Board:
    """The runs of a sweep as one launch sees them; it only ever reads."""

    def __init__(self, workdir: Path, manifest: dict[str, Any], launch: Launch):
        """Reads nothing yet.

        Args:
            workdir: The work directory.
            manifest: The content of its sweep.json.
            launch: Decides which failures are final.
        """
        self._workdir, self._launch = workdir, launch
        self._cells: list[CellRecord] = manifest["cells"]
        self._planned = {arm["name"]: arm["parameters"] for arm in manifest["arms"]}
        self._pairing = records.Pairing()
        self._ended: dict[str, str] = {}

    def update(self) -> list[tuple[CellRecord, str]]:
        """Returns the runs that have ended since the last call, with their states.

        Raises:
            SpecError: If a run's directory does not belong to this sweep.
            PairingError: If two arms are not paired, or a model is not of the planned size.
        """
        news = []
        for cell in self.open():
            status = read_status(self._workdir, cell)
            if status is not None:
                self._check_paired(cell, status)
                self.end(cell, status["state"])
            elif self._has_failed(cell):
                self.end(cell, "failed")
            else:
                continue
            news.append((cell, self._ended[cell["fingerprint"]]))
        return news

    def end(self, cell: CellRecord, state: str) -> None:
        """Takes note that a run has ended."""
        self._ended[cell["fingerprint"]] = state

    def open(self) -> list[CellRecord]:
        """Returns the runs that have not ended, in the order of the manifest."""
        return [cell for cell in self._cells if cell["fingerprint"] not in self._ended]

    def failed(self) -> int:
        """Returns how many runs have failed in this launch."""
        return sum(state == "failed" for state in self._ended.values())

    def _has_failed(self, cell: CellRecord) -> bool:
        return attempts(self._workdir / cell["directory"], self._launch) > self._launch.retries

    def _check_paired(self, cell: CellRecord, status: dict[str, Any]) -> None:
        counted, planned = status["result"]["parameters"], self._planned[cell["arm"]]
        if counted != planned:
            raise PairingError(
                f"{cell['directory']} holds {counted} parameters, the plan says {planned}."
            )
        for found in self._pairing.add(cell, status["pairing"]):
            what = "batches" if found.what == "batches" else f"initial values of {found.what}"
            raise PairingError(
                f"The {what} of {found.directory} and {found.other} differ although seed and "
                "settings are the same, so they cannot be compared; delete the run that was made "
                "by other code."
            )


def states(workdir: Path, cells: list[CellRecord]) -> dict[str, str]:
    """Returns "done", "diverged" or "pending" for every cell, by fingerprint, in order.

    Raises:
        SpecError: If a run's directory does not belong to this sweep.
    """
    found = {cell["fingerprint"]: read_status(workdir, cell) for cell in cells}
    return {
        identity: status["state"] if status else "pending" for identity, status in found.items()
    }


def read_status(workdir: Path, cell: CellRecord) -> dict[str, Any] | None:
    """Returns the status of a run; None where it has none that can be read.

    Raises:
        SpecError: If it is that of another run.
    """
    files = records.RunFiles(workdir / cell["directory"])
    try:
        status = records.read_json(files.status)
        parts = [status[part] for part in records.STATUS_PARTS]
    except (*_ABSENT, records.DamagedRecord, KeyError, TypeError):
        return None
    found = str(parts[0])
    if found != cell["fingerprint"]:
        raise SpecError(
            "",
            f"{files.status} belongs to another run (fingerprint {found[:8]}, expected "
            f"{cell['fingerprint'][:8]}); use another work directory.",
        )
    return status


def attempts(directory: Path, launch: Launch) -> int:
    """Returns how often a run has failed within a launch."""
    try:
        failure = records.read_json(records.RunFiles(directory).failure)
        return int(failure["attempts"]) if failure["launch"] == launch.identity else 0
    except (*_ABSENT, records.DamagedRecord, KeyError, TypeError, ValueError):
        return 0
