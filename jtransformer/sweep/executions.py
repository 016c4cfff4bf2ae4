"""How the runs of one program are trained together: chosen once, and kept in the work directory.

A mode of execution may move the last bits of a run. So whoever comes first to a group of runs
measures and chooses, and all who come later, other workers and later launches, do the same.
"""

from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, Protocol

from jtransformer import records
from jtransformer.spec import RunSpec, SpecError
from jtransformer.sweep.launch import Launch

WISHES = ("mode", "runs_at_once", "steps_per_dispatch", "mesh")
"""What a launch may say of an execution."""


class Ended(Protocol):
    """What has become of the run at a place among those that were given."""

    @property
    def place(self) -> int: ...

    @property
    def error(self) -> BaseException | None: ...


class Trains(Protocol):
    """What trains runs; an execution is plain data that this wrote."""

    def identify(self, spec: RunSpec) -> str:
        """Returns a run's fingerprint."""
        ...

    def group_of(self, spec: RunSpec) -> str:
        """Returns the name that runs of one program have in common; a file can have it."""
        ...

    def choose(self, spec: RunSpec, *, runs: int, updates: int) -> dict[str, Any]:
        """Returns the execution of a group, with all that `WISHES` names.

        Args:
            spec: Any run of the group.
            runs: How many of the group one worker trains.
            updates: Those of all of them together.
        """
        ...

    def train_group(
        self, cells: Iterable[tuple[RunSpec, Path]], execution: dict[str, Any]
    ) -> Generator[Ended, None, None]:
        """Trains runs, each in its directory, and tells of each as it ends."""
        ...


class Executions:
    """The executions of the groups of a work directory."""

    def __init__(self, workdir: Path, launch: Launch):
        self._workdir, self._launch = workdir, launch

    def of(self, group: str, choose: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Returns the execution of a group.

        Args:
            group: Its name.
            choose: Chooses, where nobody has.

        Raises:
            SpecError: If the launch asks for another than the one that the runs were begun in.
            DamagedRecord: If its file is damaged.
        """
        path = _path(self._workdir, group)
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            records.create_json(path, choose())
        found = _read(path)
        told = {name: getattr(self._launch, name) for name in WISHES}
        told = {name: value for name, value in told.items() if value not in (None, "auto")}
        if "mode" not in told and found["mode"] == "loop":
            told.pop("runs_at_once", None)  # The fastest mode has no such number.
        other = [name for name, value in told.items() if found.get(name) != value]
        if not other:
            return found
        if self._launch.accept_environment:
            chosen = choose()
            records.write_json(path, chosen)
            return chosen
        name = other[0]
        raise SpecError(
            f"--{name}",
            f"= {told[name]!r}, and runs of the same program were begun with {found.get(name)!r}, "
            "which can move results; leave it out, use a fresh work directory, or pass "
            "--accept_environment to continue anyway.",
        )


def executions(workdir: Path) -> dict[str, Any]:
    """Returns the executions that have been chosen in a work directory, by group."""
    folder = records.SweepFiles(workdir).executions
    paths = sorted(folder.glob("[!.]*.json")) if folder.is_dir() else []
    return {path.stem: _read(path) for path in paths}


def _read(path: Path) -> dict[str, Any]:
    found = records.read_json(path)
    # One of an earlier version says nothing of a mesh.
    if not isinstance(found, dict) or not {*WISHES} - {"mesh"} <= found.keys():
        raise records.DamagedRecord(
            f"{path} is damaged (it must hold {', '.join(WISHES)}); delete it to have it made "
            "again."
        )
    return found


def _path(workdir: Path, group: str) -> Path:
    return records.SweepFiles(workdir).executions / f"{group}.json"
