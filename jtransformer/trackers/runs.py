"""What a tracker is told of a run: its rows, its settings, and which of it is new."""

from pathlib import Path
from typing import Any, NamedTuple

from jtransformer import records

SINGLE_RUN = "run"
"""Name of the arm of a run that belongs to no sweep."""


class Fed(NamedTuple):
    """How far a tracker has been fed with a run.

    Attributes:
        step: Step of the newest row; 0 before the first.
        state: State of the run at that moment.
    """

    step: int = 0
    state: str = ""


class TrackedRun(NamedTuple):
    """One run as trackers show it.

    Attributes:
        identity: Its fingerprint, by which a tracker knows it again.
        name: Where it lies among the runs of its sweep; also a relative path.
        project: What it belongs to.
        arm: Its arm.
        config: Its settings of the sweep and its seed, by dotted path.
        rows: Its rows of metrics, oldest first.
        seconds: When each row was written, in seconds since 1970: training began when the run's
            environment was recorded, and lasted as long as the rows' tokens and speeds say.
        state: Its state.
        result: What its status says of it; empty before it is complete.
    """

    identity: str
    name: str
    project: str
    arm: str
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    seconds: list[float]
    state: str
    result: dict[str, Any]

    @property
    def known(self) -> Fed:
        """How far a tracker is fed that has all of it."""
        return Fed(self.rows[-1]["step"] if self.rows else 0, self.state)

    def is_news(self, fed: Fed) -> bool:
        """Whether there is something that a tracker lacks.

        A run that was killed goes on from its newest checkpoint and writes its last rows again;
        until it is past those that the tracker has, there is none. Nor is there behind the end of
        a run, even where its status was damaged and the end is made again.
        """
        return (
            fed.state not in records.COMPLETE and fed != self.known and fed.step <= self.known.step
        )


def figures(row: dict[str, Any]) -> dict[str, float]:
    """Returns the numbers of a row; what was not measured, or was not finite, is left out."""
    return {name: value for name, value in row.items() if name != "step" and value is not None}


def tracked_runs(workdir: Path) -> list[TrackedRun]:
    """Reads the runs of a work directory that have a row of metrics.

    Args:
        workdir: That of a sweep, or of a single run; in any state.

    Raises:
        FileNotFoundError: If it holds neither.
        DamagedRecord: If a file is damaged.
    """
    if records.load_manifest(workdir) is not None:
        sweep = records.load_sweep(workdir)
        found = [_of_sweep(workdir, sweep.manifest, run) for run in sweep.runs]
    elif records.RunFiles(workdir).spec.exists():
        found = [_single(workdir)]
    else:
        raise FileNotFoundError(f"{workdir} holds no sweep and no run.")
    return [run for run in found if run.rows]


def _of_sweep(workdir: Path, manifest: dict[str, Any], record: records.RunRecord) -> TrackedRun:
    cell = record.cell
    arm = next(arm for arm in manifest["arms"] if arm["name"] == cell["arm"])
    settings = {**arm["factors"], **arm["matched"], **cell["nuisance"]}
    if "rung" in cell:
        settings["rung"] = cell["rung"]["number"]
    name = cell["directory"].removeprefix("runs/")
    directory = workdir / cell["directory"]
    return _tracked(directory, record, name, manifest["title"], settings)


def _single(workdir: Path) -> TrackedRun:
    about = records.read_json(records.RunFiles(workdir).spec)
    cell = {
        "arm": SINGLE_RUN,
        "seed": about["spec"]["seed"],
        "fingerprint": about["fingerprint"],
    }
    record = records.load_run(workdir, cell)
    name = f"{SINGLE_RUN}/seed{cell['seed']}-{cell['fingerprint'][:8]}"
    return _tracked(workdir, record, name, workdir.absolute().name, {})


def _tracked(
    directory: Path, record: records.RunRecord, name: str, project: str, settings: dict[str, Any]
) -> TrackedRun:
    cell, rows = record.cell, record.metrics
    return TrackedRun(
        identity=cell["fingerprint"],
        name=name,
        project=project,
        arm=cell["arm"],
        config={**settings, "arm": cell["arm"], "seed": cell["seed"]},
        rows=rows,
        seconds=_seconds(directory, rows),
        state=record.state,
        result=record.status["result"] if record.status else {},
    )


def _seconds(directory: Path, rows: list[dict[str, Any]]) -> list[float]:
    environment = records.RunFiles(directory).environment
    now = environment.stat().st_mtime if environment.exists() else 0.0
    tokens, seconds = 0, []
    for row in rows:
        speed = row["tokens_per_second"]
        now += (row["tokens"] - tokens) / speed if speed else 0.0
        tokens = row["tokens"]
        seconds.append(now)
    return seconds
