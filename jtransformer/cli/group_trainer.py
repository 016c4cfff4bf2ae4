"""What trains the runs of a sweep: `training.Trainer`, with executions as plain data."""

import hashlib
import json
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from jtransformer.spec import Layout, RunSpec, identity_tree
from jtransformer.sweep import WISHES, Launch
from jtransformer.training import Ended, Execution, Hooks, Trainer, Wish, program_key

DIGITS = 16


class GroupTrainer:
    """Trains the runs of a sweep as its launch wishes; see `sweep.Trains`."""

    def __init__(self, hooks: Hooks, launch: Launch):
        wishes: dict[str, Any] = {name: getattr(launch, name) for name in WISHES}
        mesh = wishes.pop("mesh")
        layout = None if mesh is None else Layout.parse(mesh)
        self._trainer, self._wish = Trainer(hooks), Wish(layout=layout, **wishes)

    def identify(self, spec: RunSpec) -> str:
        """Returns a run's fingerprint."""
        return self._trainer.identify(spec)

    def group_of(self, spec: RunSpec) -> str:
        """Returns a hash of all that runs of one program have in common."""
        text = json.dumps(identity_tree(program_key(spec)), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]

    def choose(self, spec: RunSpec, *, runs: int, updates: int) -> dict[str, Any]:
        """Returns the execution of a group, with the figures that speak for it."""
        return self._trainer.choose(spec, self._wish, runs=runs, updates=updates).record

    def train_group(
        self, cells: Iterable[tuple[RunSpec, Path]], execution: dict[str, Any]
    ) -> Generator[Ended, None, None]:
        """Trains runs; see `training.Trainer.train_group`."""
        return self._trainer.train_group(cells, Execution.from_record(execution))
