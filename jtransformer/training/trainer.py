"""Trains runs one after another, compiling once for all that share a program."""

import itertools
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jtransformer import data, records
from jtransformer.spec import DataSpec, RunSpec, fingerprint
from jtransformer.training.checkpoints import Checkpoints
from jtransformer.training.clock import Clock
from jtransformer.training.directory import claim, record_environment
from jtransformer.training.optimizer import hyperparameters, learning_rate
from jtransformer.training.pairing import pairing_hashes
from jtransformer.training.program import Program, TrainState, empty_tally, mean_nll, program_key

Row = dict[str, Any]


class Interrupted(BaseException):
    """The process was asked to stop; the run's state is saved and it can be continued.

    No error, so nothing that handles errors must catch it.
    """


class Hooks(NamedTuple):
    """What the caller wants to know and to decide while runs are trained.

    Attributes:
        on_row: Called with every new row of metrics.
        should_stop: Asked before every update; when true the run is saved and `Interrupted`.
        accept_environment: Whether a run begun in another environment may be continued.
    """

    on_row: Callable[[RunSpec, Row], None] = lambda spec, row: None
    should_stop: Callable[[], bool] = lambda: False
    accept_environment: bool = False


NO_HOOKS = Hooks()


class Trainer:
    """Holds what runs share: texts and compiled programs."""

    def __init__(self, hooks: Hooks = NO_HOOKS):
        self._hooks = hooks
        self._corpora: dict[DataSpec, data.Corpus] = {}
        self._programs: dict[RunSpec, Program] = {}

    def identify(self, spec: RunSpec) -> str:
        """Returns a run's fingerprint.

        Raises:
            SpecError: If its text cannot be read or is too short.
        """
        if spec.data not in self._corpora:
            self._corpora[spec.data] = data.load(spec.data)
        corpus = self._corpora[spec.data]
        data.check_batch(corpus, spec.data, spec.training.batch_size)
        return fingerprint(spec, corpus.sha256, records.SCHEMA)

    def train(self, spec: RunSpec, directory: Path) -> dict[str, Any]:
        """Trains a run to its end, from its newest checkpoint where there is one.

        Args:
            spec: The run.
            directory: Its own directory; made if missing.

        Returns:
            The content of its status.json; a complete run is not touched again.

        Raises:
            SpecError: If the text is too short, or the directory belongs to another run.
            Interrupted: If `should_stop` became true; the state is saved.
        """
        identity = self.identify(spec)
        corpus = self._corpora[spec.data]
        files = records.RunFiles(directory)
        claim(files, spec, corpus.sha256, identity)
        if files.status.exists():
            return records.read_json(files.status)
        key = program_key(spec)
        if key not in self._programs:
            self._programs[key] = Program(spec)
        return _Run(spec, files, corpus, self._programs[key], self._hooks).train(identity)


class _Run:
    """One run in progress."""

    def __init__(
        self,
        spec: RunSpec,
        files: records.RunFiles,
        corpus: data.Corpus,
        program: Program,
        hooks: Hooks,
    ):
        self._spec, self._files, self._corpus = spec, files, corpus
        self._program, self._hooks = program, hooks
        self._hyper = hyperparameters(spec)
        self._batches = data.TrainingBatches(corpus, spec.data, spec.training.batch_size, spec.seed)
        self._clock = Clock()

    def train(self, identity: str) -> dict[str, Any]:
        start = self._program.start(parameter_key(self._spec.seed))
        record_environment(self._files, start.parameters, self._hooks.accept_environment)
        pairing = pairing_hashes(self._spec, self._batches, start.parameters)
        self._untrained_nll = self._first_nll(start.parameters)
        with Checkpoints(self._files, identity) as checkpoints:
            step, state = checkpoints.restore_newest(start) or (0, start)
            if not self._has_rows(step):
                step, state = 0, start
                checkpoints.discard()
            records.truncate_rows(self._files.metrics, step)
            state = jax.device_put(state)
            diverged_at = None
            self._clock.lap()
            while step < self._spec.training.steps and diverged_at is None:
                if self._hooks.should_stop():
                    if step not in checkpoints.steps():
                        checkpoints.save(step, state, None)
                    raise Interrupted(f"stopped at step {step}; run again to continue")
                state = self._program.update(state, self._batches[step], self._hyper)
                step += 1
                state, diverged_at = self._after_update(step, state, checkpoints)
        return self._complete(identity, state, diverged_at, pairing)

    def _has_rows(self, step: int) -> bool:
        """Whether every row up to a restored step is on disk; without them results would differ."""
        rows = records.read_rows(self._files.metrics)
        found = [row.get("step") for row in rows if row.get("step", step + 1) <= step]
        if found == [t for t in range(1, step + 1) if self._is_logged(t)]:
            return True
        event = {"event": "rows of metrics are missing", "step": step}
        records.append_row(self._files.events, event)
        logging.getLogger(__name__).warning(
            "%s lacks rows before step %d; the run starts again.", self._files.metrics, step
        )
        return False

    def _is_evaluated(self, step: int) -> bool:
        plan = self._spec.training
        return step == plan.steps or step % plan.evaluate_every == 0

    def _is_logged(self, step: int) -> bool:
        return self._is_evaluated(step) or step % self._spec.training.log_every == 0

    def _after_update(
        self, step: int, state: TrainState, checkpoints: Checkpoints
    ) -> tuple[TrainState, int | None]:
        """Measures, logs and saves where it is due; returns the step if the run diverged."""
        plan, evaluated = self._spec.training, self._is_evaluated(step)
        validation_nll = None
        if self._is_logged(step):
            row = self._row(step, state)
            if evaluated:
                validation_nll = row["validation_nll"] = self._mean_nll(
                    state.parameters, self._corpus.validation
                )
            state = state._replace(tally=empty_tally())
            # Rows reach the disk before the checkpoint does, so a resumed run lacks none.
            records.append_row(self._files.metrics, row)
            self._hooks.on_row(self._spec, row)
            if self._diverged(row, step == plan.steps):
                return state, step
        if evaluated or step % plan.checkpoint_every == 0:
            with self._clock.paused():
                checkpoints.save(step, state, validation_nll)
        return state, None

    def _diverged(self, row: Row, last: bool) -> bool:
        """Whether a run has failed: not finite, or in the end no better than untrained."""
        if not (math.isfinite(row["train_nll"]) and math.isfinite(row["gradient_norm"])):
            return True
        uniform = math.log(self._spec.model.vocabulary)
        return last and not row["validation_nll"] < max(uniform, self._untrained_nll)

    def _row(self, step: int, state: TrainState) -> Row:
        tally = jax.device_get(state.tally)
        spec, tokens = self._spec, step * self._spec.training.batch_size * self._spec.data.length
        rate = learning_rate(state.step, self._hyper, cosine=spec.schedule.kind == "warmup_cosine")
        seconds = self._clock.lap()
        return {
            "step": step,
            "tokens": tokens,
            "train_nll": float(tally.nll_sum / tally.weight_sum),
            "validation_nll": None,
            "gradient_norm": float(tally.gradient_norm_sum / tally.updates),
            "learning_rate": float(rate),
            "tokens_per_second": float(tally.weight_sum) / seconds,
        }

    def _first_nll(self, parameters: Any) -> float:
        """Returns the loss on the first evaluation batch of the validation text."""
        size = self._spec.training.evaluation_batch_size
        part, length = self._corpus.validation, self._spec.data.length
        first = itertools.islice(data.evaluation_batches(part, length, size), 1)
        return mean_nll(self._program, parameters, first)

    def _mean_nll(self, parameters: Any, part: np.ndarray) -> float:
        size = self._spec.training.evaluation_batch_size
        batches = data.evaluation_batches(part, self._spec.data.length, size)
        with self._clock.paused():
            return mean_nll(self._program, parameters, batches)

    def _complete(
        self,
        identity: str,
        state: TrainState,
        diverged_at: int | None,
        pairing: dict[str, Any],
    ) -> dict[str, Any]:
        rows = records.read_rows(self._files.metrics)
        evaluated = [row for row in rows if row["validation_nll"] is not None]
        best = min(evaluated, key=lambda row: row["validation_nll"], default=None)
        done = diverged_at is None
        result = {
            "steps": rows[-1]["step"],
            "tokens": rows[-1]["tokens"],
            "train_nll": rows[-1]["train_nll"],
            "validation_nll": rows[-1]["validation_nll"] if done else None,
            "best_validation_nll": best["validation_nll"] if best else None,
            "best_step": best["step"] if best else None,
            "test_nll": self._mean_nll(state.parameters, self._corpus.test) if done else None,
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(state.parameters)),
            "diverged_at": diverged_at,
        }
        speeds = [row["tokens_per_second"] for row in rows]
        status = {
            "schema": records.SCHEMA,
            "fingerprint": identity,
            "state": "done" if done else "diverged",
            "result": result,
            "pairing": pairing,
            "timing": {
                "wall_seconds": self._clock.total(),
                "tokens_per_second": float(np.median(speeds)),
            },
        }
        self._files.failure.unlink(missing_ok=True)
        records.write_json(self._files.status, status)
        return status


def parameter_key(seed: int) -> jax.Array:
    """Returns the key that initial values derive from."""
    return jax.random.fold_in(jax.random.key(seed), 0)


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
