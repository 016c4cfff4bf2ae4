"""Trains runs, compiling once for all that share a program."""

import contextlib
import functools
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import jax

from jtransformer import data, records
from jtransformer.data.vocabularies import check_vocabularies
from jtransformer.spec import (
    DIVIDING_MODES,
    DataSpec,
    Layout,
    ModelSpec,
    RunSpec,
    SpecError,
    fingerprint,
)
from jtransformer.spec.objectives import Objective
from jtransformer.training import hosts
from jtransformer.training.choice import (
    SEVERAL_STEPS,
    ExecutionChoice,
    TimedRun,
    Wish,
    Workload,
    choose,
    choose_over_devices,
)
from jtransformer.training.directory import open_directory
from jtransformer.training.execution import LOOP, Execution
from jtransformer.training.fitting import check_rows
from jtransformer.training.group import Ended, Group, RunAndDirectory
from jtransformer.training.hooks import NO_HOOKS, Hooks
from jtransformer.training.journal import RunContext
from jtransformer.training.lanes import LanePrograms, Lanes, lane_programs, numbers_of
from jtransformer.training.machine import usable_memory
from jtransformer.training.mesh import arrange
from jtransformer.training.origins import Given, read_start
from jtransformer.training.program import Program, parameter_key, program_key
from jtransformer.training.starting import shapes_of, taken_over


class Trainer:
    """Holds what runs share: texts and compiled programs."""

    def __init__(self, hooks: Hooks = NO_HOOKS):
        self._hooks = hooks
        self._corpora: dict[tuple[DataSpec, Objective], data.Corpus] = {}
        self._programs: dict[tuple[RunSpec, Layout | None], Program] = {}
        self._compiled: dict[tuple[RunSpec, Execution], LanePrograms] = {}
        self._given: dict[str, Given] = {}
        self._taken: dict[tuple[str, ModelSpec, str], dict[str, Any]] = {}

    def identify(self, spec: RunSpec) -> str:
        """Returns a run's fingerprint.

        Raises:
            SpecError: If its text cannot be read, is too short, or does not fit its model; or if
                it starts from what cannot be read.
        """
        given = self._start(spec)
        sha256 = None if given is None else given.origin.sha256
        return fingerprint(spec, self._corpus(spec).sha256, records.SCHEMA, sha256)

    def taken_over(self, spec: RunSpec) -> dict[str, Any] | None:
        """Returns what a run starts with from elsewhere; None where it starts anew.

        Raises:
            SpecError: If nothing there fits, or its ids stand for something else.
        """
        given = self._start(spec)
        if given is None:
            return None
        tokenizer = self._corpus(spec).tokenizer.sha256
        key = given.origin.directory, spec.model, tokenizer
        if key not in self._taken:
            start = jax.eval_shape(self._program(spec).start, parameter_key(spec.seed))
            shapes = shapes_of(start.parameters)
            self._taken[key] = taken_over(given.origin, spec.model, shapes, tokenizer)
        return self._taken[key]

    def check(self, spec: RunSpec, execution: Execution) -> None:
        """Refuses what cannot be trained so on these devices; makes and compiles nothing.

        Raises:
            SpecError: If there are fewer devices than the execution wants, or one of them would
                have nothing to do.
        """
        if execution.mode == "pmap":
            check_rows(spec, execution.devices, "data")
        self._compiled_for(spec, execution)

    def train(self, spec: RunSpec, directory: Path, execution: Execution = LOOP) -> dict[str, Any]:
        """Trains a run to its end, from its newest checkpoint where there is one.

        Args:
            spec: The run.
            directory: Its own directory; made if missing.
            execution: How it is computed.

        Returns:
            The content of its status.json; a complete run is not touched again.

        Raises:
            SpecError: If the text is too short, or the directory belongs to another run.
            Interrupted: If `should_stop` became true; the state is saved.
        """
        with contextlib.closing(self.train_group([(spec, directory)], execution)) as ended:
            found = next(ended)
        if found.error is not None:
            raise found.error
        assert found.status is not None
        return found.status

    def train_group(
        self, cells: Iterable[RunAndDirectory], execution: Execution
    ) -> Generator[Ended, None, None]:
        """Trains runs that share a program, each in its own directory as if it were alone.

        Each run has its own rows, checkpoints and end, and goes on alone from wherever it stood;
        in one mode of execution it ends at the same bits whatever is trained beside it.

        Args:
            cells: The runs and their directories; another is asked for when one is to begin.
            execution: How they are computed.

        Yields:
            What has become of each, as it ends. A run that fails does not take others with it.

        Raises:
            SpecError: If there are fewer devices than the execution wants.
            Interrupted: If `should_stop` became true; the states of all runs are saved.
        """
        hooks = self._hooks._replace(should_stop=hosts.Agreed(self._hooks.should_stop))
        if not hosts.is_first():
            hooks = hooks._replace(on_row=NO_HOOKS.on_row, guard=NO_HOOKS.guard)
        open_run = functools.partial(self._open, hooks=hooks, execution=execution)

        def lanes_of(context: RunContext) -> Lanes:
            return Lanes(self._compiled_for(context.spec, execution), execution)

        return Group(open_run, lanes_of, execution, hooks).train(cells)

    def choose(self, spec: RunSpec, wish: Wish, *, runs: int, updates: int) -> ExecutionChoice:
        """Chooses how the runs of a group are to be computed here; see `choice.choose`.

        Args:
            spec: Any run of the group; it is neither begun nor changed.
            wish: What is asked for.
            runs: How many of the group this process trains.
            updates: Those of all of them together.

        Raises:
            SpecError: If what is asked for has no meaning, or the text cannot be used.
        """
        if wish.mode in DIVIDING_MODES:
            choice = choose_over_devices(wish, jax.device_count())
            self.check(spec, choice.execution)
            return choice
        most = wish.steps_per_dispatch or min(SEVERAL_STEPS, spec.training.log_every)
        batches = data.TrainingBatches(self._corpus(spec), spec)
        sample = TimedRun(
            programs=functools.partial(self._compiled_for, spec),
            state=self._program(spec).start(parameter_key(spec.seed)),
            numbers=numbers_of(spec),
            batches=[batches[t] for t in range(most)],
        )
        return choose(
            sample, wish, Workload(runs, updates, jax.local_device_count(), usable_memory())
        )

    def _open(
        self, spec: RunSpec, directory: Path, *, hooks: Hooks, execution: Execution
    ) -> RunContext | dict[str, Any]:
        """Makes a directory the run's; returns its status where it is complete."""
        identity, corpus = self.identify(spec), self._corpus(spec)
        files, taken = records.RunFiles(directory), self.taken_over(spec)

        def begun() -> tuple[str, dict[str, Any] | None]:
            open_directory(files, spec, corpus, identity, taken)
            return identity, records.read_json(files.status) if files.status.exists() else None

        first, status = hosts.told(begun)
        if first != identity:
            raise SpecError(
                "",
                f"Process {jax.process_index()} of {jax.process_count()} has another run than the "
                f"first ({identity[:8]}, the first has {first[:8]}); give all processes the same "
                "config and the same data.",
            )
        if status is not None:
            return status
        program = self._program(spec, execution.layout)
        given = self._start(spec)
        return RunContext(spec, identity, files, corpus, program, hooks, execution.label, given)

    def _program(self, spec: RunSpec, layout: Layout | None = None) -> Program:
        key = program_key(spec), layout
        if key not in self._programs:
            arrangement = None if layout is None else arrange(layout)
            self._programs[key] = Program(spec, arrangement=arrangement)
        return self._programs[key]

    def _compiled_for(self, spec: RunSpec, execution: Execution) -> LanePrograms:
        key = program_key(spec), execution
        if key not in self._compiled:
            self._compiled[key] = lane_programs(self._program(spec, execution.layout), execution)
        return self._compiled[key]

    def _start(self, spec: RunSpec) -> Given | None:
        """Returns what a run starts from, read once."""
        directory = spec.start_from
        if directory is None:
            return None
        if directory not in self._given:
            self._given[directory] = read_start(directory)
        return self._given[directory]

    def _corpus(self, spec: RunSpec) -> data.Corpus:
        """Returns what a run reads, once it is known to fit."""
        key = spec.data, spec.objective
        if key not in self._corpora:
            self._corpora[key] = data.load(*key)
        data.check_batch(self._corpora[key], spec)
        check_vocabularies(self._corpora[key], spec)
        return self._corpora[key]


def run(
    run_specs: list[RunSpec], workdir: Path, *, hooks: Hooks = NO_HOOKS
) -> list[dict[str, Any]]:
    """Trains runs, each in its own directory of `workdir`; running it again continues.

    Args:
        run_specs: The runs; those that share a program are compiled once.
        workdir: Holds one directory a run, named by seed and fingerprint.
        hooks: What to report and when to stop.

    Returns:
        The status of each run, in order.

    Raises:
        SpecError: If the text of a run cannot be used, before any is trained.
        Interrupted: If `should_stop` became true; the state is saved.
    """
    trainer = Trainer(hooks)
    identities = [trainer.identify(spec) for spec in run_specs]
    return [
        trainer.train(spec, Path(workdir) / f"seed{spec.seed}-{identity[:8]}")
        for spec, identity in zip(run_specs, identities, strict=True)
    ]
