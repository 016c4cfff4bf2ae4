"""Claims runs of a sweep and trains them, until none is left."""

import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jtransformer import records
from jtransformer.spec import RunSpec, SpecError
from jtransformer.sweep.board import Board, CellRecord, attempts, read_status
from jtransformer.sweep.executions import Executions, Trains
from jtransformer.sweep.launch import Launch
from jtransformer.sweep.ledger import MOST_KILLED, Claim, Found, Ledger
from jtransformer.sweep.manifest import cell_spec

POLL_SECONDS = 0.5
"""How often a worker that waits for the runs of others looks at them."""

OF_ONE_RUN = (FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)
"""What is wrong with the directory of one run; a full disk or a lost server is that of all."""

Taken = tuple[CellRecord, Claim]
"""A run that this worker has claimed."""


class ClaimLost(BaseException):
    """The run belongs to another worker by now; nothing may be written to it.

    No error, so nothing that handles errors must catch it.
    """


class Worker:
    """One of the workers of a sweep; it needs the work directory alone."""

    def __init__(self, name: str, workdir: Path, manifest: dict[str, Any], launch: Launch):
        """Claims nothing yet.

        Args:
            name: Unique among all workers that the work directory ever has.
            workdir: The work directory, its sweep.json written.
            manifest: The content of that.
            launch: What its workers follow.
        """
        self._workdir, self._manifest, self._launch = workdir, manifest, launch
        self._ledger = Ledger(name, launch.identity, launch.lease_seconds)
        self._board = Board(workdir, manifest, launch)
        self._board.update()
        self._executions = Executions(workdir, launch)
        self._groups: dict[str, str] = {}
        self._working: dict[RunSpec, Taken] = {}
        self._arm: str | None = None

    def guard(self, spec: RunSpec) -> None:
        """To be called by what trains a run before it writes.

        Raises:
            ClaimLost: If the run belongs to another worker by now.
        """
        _, claim = self._working[spec]
        if not claim.held():
            raise ClaimLost

    def cell_of(self, spec: RunSpec) -> CellRecord:
        """Returns the cell of a run that this worker is training."""
        return self._working[spec][0]

    def failed(self) -> int:
        """Returns how many runs of the sweep have failed in this launch."""
        return self._board.failed()

    def work(
        self,
        trainer: Trains,
        *,
        on_done: Callable[[CellRecord, str], None],
        should_stop: Callable[[], bool],
    ) -> bool:
        """Trains runs until every run of the sweep has ended, by this worker or by another.

        Args:
            trainer: Its hooks are this worker's `guard` and the same `should_stop`.
            on_done: Called with every run that has ended, and its state.
            should_stop: Asked between runs.

        Returns:
            Whether every run has ended; False if it was asked to stop.

        Raises:
            SpecError: If a run is not the one that was planned.
            PairingError: If two arms are not paired, or a model is not of the planned size.
        """
        while True:
            for cell, state in self._board.update():
                on_done(cell, state)
            if not self._board.open():
                return True
            if should_stop():
                return False
            taken = self._take_next(trainer, on_done)
            if taken is None:
                time.sleep(POLL_SECONDS)
                continue
            self._train_with_others(taken, trainer, on_done, should_stop)

    def _train_with_others(
        self,
        first: Taken,
        trainer: Trains,
        on_done: Callable[[CellRecord, str], None],
        should_stop: Callable[[], bool],
    ) -> None:
        """Trains a run, and beside it others of its program, if that is how they are executed."""
        claims, places = [], []

        def begun() -> Iterator[tuple[RunSpec, Path]]:
            taken: Taken | None = first
            while taken is not None and not should_stop():
                cell, claim = taken
                claims.append(claim)
                if _waited(claim.grace_seconds, should_stop):
                    spec = self._begun(cell, claim, trainer, on_done)
                    if spec is not None:
                        places.append(spec)
                        yield spec, self._workdir / cell["directory"]
                # What has killed workers takes no other run with it.
                is_alone = execution["runs_at_once"] == 1 or first[1].killed
                taken = None if is_alone else self._take_next(trainer, on_done, group)

        try:
            group = self._group_of(trainer, first[0])
            execution = self._executions.of(group, lambda: self._choose(trainer, group))
            with contextlib.closing(trainer.train_group(begun(), execution)) as all_ended:
                for ended in all_ended:
                    cell, claim = self._working[places[ended.place]]
                    if ended.error is not None and self._judge_error(cell, claim, ended.error):
                        on_done(cell, "failed")
                    claim.release()
                    for other, state in self._board.update():
                        on_done(other, state)
        finally:
            for claim in [first[1], *claims]:
                claim.release()

    def _group_of(self, trainer: Trains, cell: CellRecord) -> str:
        identity = cell["fingerprint"]
        if identity not in self._groups:
            self._groups[identity] = trainer.group_of(cell_spec(self._manifest, cell))
        return self._groups[identity]

    def _choose(self, trainer: Trains, group: str) -> dict[str, Any]:
        """Chooses an execution, for one worker's share of a group.

        It follows from the sweep and not from what is left of it, since bits depend on it.
        """
        found = [(self._group_of(trainer, cell), cell) for cell in self._manifest["cells"]]
        specs = [cell_spec(self._manifest, cell) for name, cell in found if name == group]
        sharing = max(1, self._launch.workers // len({name for name, _ in found}))
        updates = sum(spec.training.steps for spec in specs)
        return trainer.choose(
            specs[0], runs=-(-len(specs) // sharing), updates=-(-updates // sharing)
        )

    def _take_next(
        self,
        trainer: Trains,
        on_done: Callable[[CellRecord, str], None],
        group: str | None = None,
    ) -> Taken | None:
        """Claims the run that suits best, of a group if one is given; None where there is none."""
        while True:
            cells = self._board.open()
            if group is not None:
                cells = [cell for cell in cells if self._group_of(trainer, cell) == group]
            found = [(cell, about) for cell in cells if (about := self._find(cell, on_done))]
            busy = {cell["arm"] for cell, about in found if about.standing == "held"}
            free = [
                (cell, about)
                for cell, about in found
                if about.standing != "held" and not (group and about.killed)
            ]
            if not free:
                return None
            cell, about = min(free, key=lambda item: self._cost(*item, busy))
            try:
                claim = self._ledger.take(self._workdir / cell["directory"], about)
            except OF_ONE_RUN as error:
                self._refuse(cell, error, on_done)
                continue
            if claim is not None:
                self._arm = cell["arm"]
                return cell, claim

    def _find(self, cell: CellRecord, on_done: Callable[[CellRecord, str], None]) -> Found | None:
        try:
            return self._ledger.find(self._workdir / cell["directory"])
        except OF_ONE_RUN as error:
            self._refuse(cell, error, on_done)
            return None

    def _refuse(
        self, cell: CellRecord, error: OSError, on_done: Callable[[CellRecord, str], None]
    ) -> None:
        """Lets a run fail that cannot even be claimed; the others go on."""
        sentence = f"It cannot be claimed: {error.strerror}: {error.filename}"
        # A directory does not mend itself while others are trained, so it is tried once a launch.
        self._record_failure(cell, sentence)
        on_done(cell, "failed")

    def _cost(self, cell: CellRecord, about: Found, busy: set[str]) -> tuple[int, bool, bool]:
        """Puts first what kills no worker, then what is compiled here, then what no other does."""
        return about.killed, cell["arm"] != self._arm, cell["arm"] in busy

    def _begun(
        self,
        cell: CellRecord,
        claim: Claim,
        trainer: Trains,
        on_done: Callable[[CellRecord, str], None],
    ) -> RunSpec | None:
        """Returns the run of a claimed cell; None where there is nothing to train."""
        if read_status(self._workdir, cell) is not None:
            return None  # Another completed it between the look at it and the claim.
        if claim.killed >= MOST_KILLED:
            sentence = (
                f"Its worker vanished {claim.killed} times in a row before it wrote a row of "
                "metrics; is the memory enough?"
            )
            if self._record_failure(cell, sentence):
                on_done(cell, "failed")
            return None
        files = records.RunFiles(self._workdir / cell["directory"])
        if files.status.exists():
            records.set_aside_status(files)
        spec = cell_spec(self._manifest, cell)
        self._working[spec] = cell, claim
        self._check_identity(cell, trainer.identify(spec))
        return spec

    def _judge_error(self, cell: CellRecord, claim: Claim, error: BaseException) -> bool:
        """Decides what an error of a run is; returns whether the run has failed for good."""
        if isinstance(error, ClaimLost):
            return False
        # One that fails must not take the others with it; a mistake in the input is that of all.
        if isinstance(error, SpecError) or not isinstance(error, Exception):
            raise error
        if not claim.held():
            return False
        return self._record_failure(cell, f"{type(error).__name__}: {error}", error)

    def _check_identity(self, cell: CellRecord, found: str) -> None:
        expected = cell["fingerprint"]
        if found != expected:
            raise SpecError(
                "",
                f"{cell['directory']} was planned with the fingerprint {expected[:8]} and is "
                f"{found[:8]} here, so the data, what start_from names or the version of "
                "jtransformer are others than those of the plan; bring them back, or use another "
                "work directory.",
            )

    def _record_failure(
        self, cell: CellRecord, sentence: str, error: Exception | None = None
    ) -> bool:
        """Records a failure; returns whether the run is not tried again in this launch."""
        directory = self._workdir / cell["directory"]
        # What has no error has killed workers, and is not given another.
        before = attempts(directory, self._launch) if error else self._launch.retries
        failure = {
            "error": sentence,
            "traceback": "".join(traceback.format_exception(error)) if error else "",
            "attempts": before + 1,
            "launch": self._launch.identity,
        }
        try:
            directory.mkdir(parents=True, exist_ok=True)
            records.write_json(records.RunFiles(directory).failure, failure)
        except OSError:  # A full disk, most likely the failure itself.
            logging.getLogger(__name__).error("%s failed: %s", directory, sentence)
        else:
            if before < self._launch.retries:
                return False
        self._board.end(cell, "failed")
        return True


def _waited(seconds: float, should_stop: Callable[[], bool]) -> bool:
    """Waits, unless it is asked to stop; returns whether the time has passed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if should_stop():
            return False
        time.sleep(min(POLL_SECONDS, seconds))
    return True
