"""Where each file of a run and of a sweep lies, and how they are read back."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from jtransformer.records.files import DamagedRecord, append_row, read_json, read_rows

SCHEMA = 2
"""Version of the file formats; part of every fingerprint."""

STATUS_PARTS = ("fingerprint", "state", "result", "pairing", "timing")
"""The entries of the status of a run."""
PARTS = (
    "title",
    "question",
    "command",
    "metric",
    "baseline",
    "scientific",
    "nuisance",
    "seeds",
    "match",
    "base",
    "data",
    "arms",
    "cells",
)
"""What every manifest has beside its schema."""
PROBE_PARTS = ("step", "rows", "stacks", "outside", "logits", "maps", "reasons", "caveat")
"""What every probe has."""
State = Literal["pending", "running", "done", "diverged", "failed"]
COMPLETE = ("done", "diverged")
"""What a status may say; without one the state follows from the other files."""


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """Paths of one run's directory."""

    directory: Path

    @property
    def spec(self) -> Path:
        return self.directory / "spec.json"

    @property
    def tokenizer(self) -> Path:
        """What turned text into ids; its hash stands in the file of the spec."""
        return self.directory / "tokenizer.json"

    @property
    def environment(self) -> Path:
        return self.directory / "environment.json"

    @property
    def metrics(self) -> Path:
        return self.directory / "metrics.jsonl"

    @property
    def events(self) -> Path:
        """What went wrong and was survived: damaged checkpoints, interruptions."""
        return self.directory / "events.jsonl"

    @property
    def status(self) -> Path:
        """Exists, created once and whole, exactly when the run is complete."""
        return self.directory / "status.json"

    @property
    def failure(self) -> Path:
        return self.directory / "failure.json"

    @property
    def checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    @property
    def probes(self) -> Path:
        """What was measured of the inside of the model at declared steps, a file each."""
        return self.directory / "probes"

    def probe(self, step: int) -> Path:
        """Returns the file of a step."""
        return self.probes / f"step_{step:06d}.json"

    def probed(self) -> tuple[Path, ...]:
        """Lists the probes that there are, the earliest first."""
        # Numbers with more digits than the zeros provide for come last.
        found = self.probes.glob("step_*.json")
        return tuple(sorted(found, key=lambda path: (len(path.name), path.name)))

    @property
    def claims(self) -> Path:
        """Who has worked on the run: 1.json, 2.json, …; the highest number owns it."""
        return self.directory / "claims"


@dataclasses.dataclass(frozen=True)
class SweepFiles:
    """Paths of one sweep's work directory."""

    directory: Path

    @property
    def manifest(self) -> Path:
        return self.directory / "sweep.json"

    @property
    def lock(self) -> Path:
        return self.directory / "sweep.lock"

    @property
    def launch(self) -> Path:
        """What the newest `sweep` command wants of the workers of its work directory."""
        return self.directory / "launch.json"

    @property
    def workers(self) -> Path:
        """What workers have printed, a file each."""
        return self.directory / "workers"

    @property
    def executions(self) -> Path:
        """How the runs of each program are trained together, a file each.

        Created once; replaced only where a launch asks for another way and accepts that.
        """
        return self.directory / "executions"

    @property
    def compile_cache(self) -> Path:
        return self.directory / "compile_cache"

    @property
    def report(self) -> Path:
        return self.directory / "report"

    @property
    def report_mark(self) -> Path:
        """What the report was made from; written last."""
        return self.report / "made_from.txt"


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """What one run has left on disk.

    `cell` is the run's row in the manifest (arm, nuisance setting, seed, fingerprint, directory).
    `probes` are the files of its probes, which are large: `read_probe` reads one.
    """

    cell: dict[str, Any]
    state: State
    status: dict[str, Any] | None
    metrics: list[dict[str, Any]]
    environment: dict[str, Any] | None
    failure: dict[str, Any] | None
    probes: tuple[Path, ...] = ()


@dataclasses.dataclass(frozen=True)
class SweepRecord:
    """A sweep's manifest and its runs, in the manifest's order."""

    manifest: dict[str, Any]
    runs: tuple[RunRecord, ...]


def load_run(directory: Path, cell: dict[str, Any]) -> RunRecord:
    """Reads one run, finished or not.

    Raises:
        DamagedRecord: If a file is damaged, or a status belongs to another fingerprint.
    """
    files = RunFiles(directory)
    status = read_object(files.status)
    if status is not None and status.get("fingerprint") != cell["fingerprint"]:
        raise DamagedRecord(
            f"{files.status} belongs to fingerprint {status.get('fingerprint')}, the sweep expects "
            f"{cell['fingerprint']}; delete that run's directory to train it again."
        )
    failure = read_object(files.failure)
    if failure is not None and "error" not in failure:
        raise DamagedRecord(f"{files.failure} is damaged (it lacks error); delete it.")
    if status is not None:
        state = status.get("state")
        missing = [part for part in STATUS_PARTS if part not in status]
        if state not in COMPLETE or missing:
            wrong = f"it lacks {', '.join(missing)}" if missing else f"its state is {state!r}"
            raise DamagedRecord(f"{files.status} is damaged ({wrong}); delete it to "
                             "have it made again.")  # fmt: skip
    elif failure is not None:
        state = "failed"
    else:
        state = "running" if files.metrics.exists() else "pending"
    environment = read_object(files.environment)
    rows = [row for row in read_rows(files.metrics) if "step" in row]
    return RunRecord(cell, state, status, rows, environment, failure, files.probed())


def set_aside_status(files: RunFiles) -> None:
    """Moves a status away that cannot be read, so that its run can be completed anew."""
    files.status.rename(files.directory / "status.json.damaged")
    append_row(files.events, {"event": "damaged status"})


def load_manifest(workdir: Path) -> dict[str, Any] | None:
    """Reads the manifest of a work directory; None where it holds no sweep.

    Raises:
        DamagedRecord: If the file is damaged, or was written in another format.
    """
    path = SweepFiles(workdir).manifest
    manifest = read_object(path)
    if manifest is None:
        return None
    if manifest.get("schema") != SCHEMA:
        raise DamagedRecord(
            f"{path} has format {manifest.get('schema')!r}, this version of jtransformer reads "
            f"{SCHEMA}; use the version that wrote it."
        )
    missing = [part for part in PARTS if part not in manifest]
    if missing:
        raise DamagedRecord(f"{path} is damaged (it lacks {', '.join(missing)}); restore it from "
                            "a copy, or use another work directory.")  # fmt: skip
    if not all(map(_is_cell, manifest["cells"] or ())):
        raise DamagedRecord(f"{path} is damaged (a cell lacks directory or fingerprint); restore "
                            "it from a copy, or use another work directory.")  # fmt: skip
    return manifest


def _is_cell(value: Any) -> bool:
    return isinstance(value, dict) and all(map(value.get, ("directory", "fingerprint")))


def load_sweep(workdir: Path) -> SweepRecord:
    """Reads a work directory, finished or not.

    Raises:
        FileNotFoundError: If it holds no sweep.
        DamagedRecord: If a file is damaged, or the sweep was written in another format.
    """
    manifest = load_manifest(workdir)
    if manifest is None:
        raise FileNotFoundError(f"{workdir} holds no sweep (sweep.json is missing).")
    runs = tuple(load_run(workdir / cell["directory"], cell) for cell in manifest["cells"])
    return SweepRecord(manifest, runs)


def read_probe(path: Path) -> dict[str, Any]:
    """Reads what was measured at one step.

    Raises:
        DamagedRecord: If the file is damaged or missing.
    """
    try:
        value = read_json(path)
    except (DamagedRecord, FileNotFoundError):
        value = None
    found: dict[str, Any] = value if isinstance(value, dict) else {}
    missing = [part for part in PROBE_PARTS if part not in found]
    if missing:
        # A run that has ended is trained no further, so nothing makes the file again by itself.
        raise DamagedRecord(
            f"{path} is damaged (it lacks {', '.join(missing)}); delete it, or write it anew with "
            f"`jtransformer probe --workdir {path.parents[1]} "
            f"--step {int(path.stem.removeprefix('step_'))} --into {path}` where that checkpoint "
            "is kept."
        )
    return found


def read_object(path: Path) -> dict[str, Any] | None:
    """Reads a JSON file that holds an object; None if there is no such file.

    Raises:
        DamagedRecord: If the file holds anything else.
    """
    if not path.exists():
        return None
    value = read_json(path)
    if not isinstance(value, dict):
        raise DamagedRecord(
            f"{path} is damaged (it holds no object); delete it to have it made again."
        )
    return value
