"""What trains the runs of a sweep: `training.Trainer`, with executions as plain data."""

import hashlib
import json
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from jtransformer.spec import RunSpec, to_tree
from jtransformer.sweep import Launch
from jtransformer.training import Ended, Execution, Hooks, Trainer, Wish, program_key

SETTINGS = ("mode", "runs_at_once", "steps_per_dispatch", "devices")
DIGITS = 16


class GroupTrainer:
    """Trains the runs of a sweep as its launch wishes; see `sweep.Trains`."""

    def __init__(self, hooks: Hooks, launch: Launch):
        self._trainer, self._launch = Trainer(hooks), launch

    def identify(self, spec: RunSpec) -> str:
        """Returns a run's fingerprint."""
        return self._trainer.identify(spec)

    def group_of(self, spec: RunSpec) -> str:
        """Returns a hash of all that runs of one program have in common."""
        text = json.dumps(to_tree(program_key(spec)), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]

    def choose(self, spec: RunSpec, *, runs: int, updates: int) -> dict[str, Any]:
        """Returns the execution of a group, with the figures that speak for it."""
        return self._trainer.choose(spec, wish_of(self._launch), runs=runs, updates=updates).record

    def train_group(
        self, cells: Iterable[tuple[RunSpec, Path]], execution: dict[str, Any]
    ) -> Generator[Ended, None, None]:
        """Trains runs; see `training.Trainer.train_group`."""
        settings = {name: execution[name] for name in SETTINGS}
        return self._trainer.train_group(cells, Execution(**settings))


def wish_of(launch: Launch) -> Wish:
    """Returns what a launch wishes of every execution."""
    mode: Any = launch.mode
    return Wish(
        mode=mode,
        runs_at_once=launch.runs_at_once,
        steps_per_dispatch=launch.steps_per_dispatch,
    )
