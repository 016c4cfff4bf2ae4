"""Runs of one program, trained together: who is in which lane, and what becomes of each.

A run enters a lane at its own step, leaves it when it is over, and the next takes its place. What
one run's data, directory or hooks raise ends that run alone.
"""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jtransformer import data
from jtransformer.data import Batch
from jtransformer.spec import RunSpec
from jtransformer.training.clock import TrainingTime
from jtransformer.training.execution import Execution
from jtransformer.training.hooks import Hooks, Interrupted
from jtransformer.training.journal import Journal, RunContext
from jtransformer.training.lanes import Lanes, numbers_of

RunAndDirectory = tuple[RunSpec, Path]
"""A run and its directory."""


class Ended(NamedTuple):
    """What has become of a run of a group.

    Attributes:
        place: Its place among the runs that were given.
        status: The content of its status.json; None if it failed.
        error: What it raised, of whatever kind: whoever asked for the run knows what to do with it.
    """

    place: int
    status: dict[str, Any] | None
    error: BaseException | None


class Member(NamedTuple):
    """A run in a lane.

    Attributes:
        place: Its place among the runs that were given.
        journal: What it records.
        upcoming: Its batches from here on.
        resources: What has to be closed behind it.
    """

    place: int
    journal: Journal
    upcoming: Iterator[Batch]
    resources: contextlib.ExitStack


class Group:
    """Runs in progress, as many as there are lanes."""

    def __init__(
        self,
        open_run: Callable[[RunSpec, Path], RunContext | dict[str, Any]],
        lanes_of: Callable[[RunContext], Lanes],
        execution: Execution,
        hooks: Hooks,
    ):
        """Begins with none.

        Args:
            open_run: Makes a run's directory its own; returns the status of one that is complete.
            lanes_of: Returns the lanes for runs with such a program.
            execution: How many lanes there are, and how many updates they make at a time.
            hooks: What the caller wants to decide.
        """
        self._open_run, self._lanes_of = open_run, lanes_of
        self._execution, self._hooks = execution, hooks
        self._time = TrainingTime()
        self._members: dict[int, Member] = {}
        self._ended: list[Ended] = []
        self._lanes: Lanes | None = None
        self._program: Any = None

    def train(self, cells: Iterable[RunAndDirectory]) -> Generator[Ended, None, None]:
        """Trains runs; yields each as it ends.

        Raises:
            Interrupted: If `should_stop` became true; the states of all are saved.
        """
        waiting = enumerate(cells)
        try:
            while True:
                yield from self._enter(waiting)
                if not self._members:
                    return
                if self._hooks.should_stop():
                    steps = self._interrupt()
                    yield from self._news()
                    raise Interrupted(f"stopped at step {steps}; run again to continue")
                self._advance()
                yield from self._news()
        finally:
            with contextlib.ExitStack() as stack:
                for member in self._members.values():
                    stack.callback(member.resources.close)

    def _news(self) -> Iterator[Ended]:
        while self._ended:
            yield self._ended.pop(0)

    def _enter(self, waiting: Iterator[tuple[int, RunAndDirectory]]) -> Iterator[Ended]:
        """Gives free lanes to waiting runs; yields those that end at once."""
        for lane in range(self._execution.runs_at_once):
            while lane not in self._members:
                found = next(waiting, None)
                if found is None:
                    return
                index, cell = found
                with self._time.paused(), self._alone(index), contextlib.ExitStack() as resources:
                    self._open(lane, index, cell, resources)
                yield from self._news()

    def _open(
        self, lane: int, index: int, cell: RunAndDirectory, resources: contextlib.ExitStack
    ) -> None:
        context = self._open_run(*cell)
        if isinstance(context, dict):
            self._ended.append(Ended(index, context, None))
            return
        self._refuse_another_program(context)
        journal = Journal(context, self._time)
        state = journal.begin()
        resources.callback(journal.close)
        if journal.is_over:
            resources.close()
            self._ended.append(Ended(index, journal.conclude(state), None))
            return
        ahead = max(2, 2 * self._execution.steps_per_dispatch)
        upcoming = resources.enter_context(
            data.prefetch(journal.batches, journal.step, journal.last, depth=ahead)
        )
        if self._lanes is None:
            self._lanes = self._lanes_of(context)
        self._lanes.enter(lane, state, numbers_of(journal.spec))
        self._members[lane] = Member(index, journal, upcoming, resources.pop_all())

    def _refuse_another_program(self, context: RunContext) -> None:
        self._program = self._program or context.program
        if context.program is not self._program:
            raise ValueError(
                f"The run in {context.files.directory} has another program than the first of its "
                "group; train runs together only where program_key(spec) is the same."
            )

    def _advance(self) -> None:
        """Makes the next updates of all runs, and ends those that are over."""
        batches: dict[int, list[Batch]] = {}
        for lane, member in list(self._members.items()):
            with self._alone(member.place, lane):
                self._hooks.guard(member.journal.spec)
                count = member.journal.updates_to(self._execution.steps_per_dispatch)
                batches[lane] = list(itertools.islice(member.upcoming, count))
        if not batches:
            return
        assert self._lanes is not None
        try:
            self._lanes.advance(batches)
        # Whose fault it is cannot be told: memory, as a rule.
        except Exception as error:
            for lane, member in list(self._members.items()):
                with self._alone(member.place, lane):
                    raise error
            self._lanes.clear()
            return
        for lane, own in batches.items():
            member = self._members[lane]
            with self._alone(member.place, lane):
                if member.journal.advance(len(own)):
                    self._note(lane, member)

    def _note(self, lane: int, member: Member) -> None:
        assert self._lanes is not None
        state = member.journal.note(self._lanes.take(lane))
        if not member.journal.is_over:
            self._lanes.put(lane, state)
            return
        with self._time.paused():
            member.resources.close()
            status = member.journal.conclude(state)
        del self._members[lane]
        self._ended.append(Ended(member.place, status, None))

    def _interrupt(self) -> str:
        """Saves all runs; returns the steps at which they stand."""
        assert self._lanes is not None
        steps = {member.journal.step for member in self._members.values()}
        for lane, member in list(self._members.items()):
            with self._alone(member.place, lane):
                member.journal.interrupt(self._lanes.take(lane))
                member.resources.close()
        return ", ".join(map(str, sorted(steps)))

    @contextlib.contextmanager
    def _alone(self, index: int, lane: int | None = None) -> Iterator[None]:
        """Makes what a run raises its own end; what its closing raises then counts instead."""
        try:
            try:
                yield
            except BaseException:
                member = None if lane is None else self._members.pop(lane, None)
                if member is not None:
                    member.resources.close()
                raise
        # Not for this module to judge: a failure, a claim that was lost, or a request to stop.
        except BaseException as error:
            self._ended.append(Ended(index, None, error))
