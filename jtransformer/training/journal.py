"""One run in progress, apart from its updates: what it restores, records, saves and concludes.

It knows neither how updates are computed nor which other runs are trained beside it, so that a
run's directory is the same in every mode of execution.

Where several processes train a run, each has a journal and they keep step: the first one reads and
writes the records and tells the others, and all come to every evaluation, probe and checkpoint.
"""

import itertools
import logging
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from jtransformer import data, records
from jtransformer.spec import RunSpec
from jtransformer.training import hosts
from jtransformer.training.checkpoints import Checkpoints
from jtransformer.training.clock import Clock, TrainingTime
from jtransformer.training.directory import complete, record_environment
from jtransformer.training.hooks import Hooks, Row
from jtransformer.training.origins import Given
from jtransformer.training.outcome import has_diverged, has_ended, is_evaluated, is_logged, result
from jtransformer.training.pairing import pairing_hashes
from jtransformer.training.probing import probe, probe_batch
from jtransformer.training.program import Program, mean_nll, parameter_key
from jtransformer.training.schedules import hyperparameters
from jtransformer.training.starting import started
from jtransformer.training.state import TrainState, empty_tally


class RunContext(NamedTuple):
    """What a run is and what it is trained with.

    Attributes:
        spec: The run.
        identity: Its fingerprint.
        files: Its directory, already its own.
        corpus: What it reads.
        program: The compiled functions of its key.
        hooks: What the caller wants to know and to decide.
        mode: How its updates are computed.
        given: What it starts from; None where it starts anew.
    """

    spec: RunSpec
    identity: str
    files: records.RunFiles
    corpus: data.Corpus
    program: Program
    hooks: Hooks
    mode: str
    given: Given | None = None


class Journal:
    """One run in progress; close it before the process ends.

    Attributes:
        spec: The run.
        batches: What it reads, by number.
        step: Updates made.
        is_over: Whether it makes no further update.
    """

    def __init__(self, context: RunContext, time: TrainingTime):
        self.spec, self._program, self._hooks = context.spec, context.program, context.hooks
        self._context, self._files, self._time = context, context.files, time
        self._training = context.spec.training
        self._hyper = hyperparameters(self.spec)
        self._clock = Clock(time)
        self._scored_tokens = 0
        self._diverged_at: int | None = None
        self._rows: list[Row] = []
        arrangement, microbatches = self._program.arrangement, self._training.microbatches
        self._share = hosts.share_of(arrangement, microbatches=microbatches)
        self._evaluated_share = hosts.share_of(arrangement)
        self.batches = data.TrainingBatches(context.corpus, self.spec, self._share)
        # By what a batch holds: the rows of span corruption are no `data.length` long.
        self._tokens = self._training.batch_size * self.batches[0].tokens.shape[1]
        self.step, self.is_over = 0, False

    def begin(self) -> TrainState:
        """Returns the state to go on from, that of the newest checkpoint on disk or the first.

        Raises:
            SpecError: If it was begun in another environment, or a checkpoint is another run's.
        """
        drawn, given = self._program.start(parameter_key(self.spec.seed)), self._context.given
        start, origins = started(drawn, given, self.spec.model)
        accept, mode = self._hooks.accept_environment, self._context.mode
        record_environment(self._files, mode, self.spec.optimizer, start.parameters, accept)
        self._pairing = pairing_hashes(self.spec, self._whole_batch, start.parameters, origins)
        self._checkpoints = Checkpoints(self._files, self._context.identity)
        try:
            self._bound = self._untrained_nll(start.parameters)
            state = self._restored(start)
            self._probe_where_due(state)
        except BaseException:
            self._checkpoints.close()
            raise
        self.is_over = self._has_ended()
        self._clock.lap()
        return state

    @property
    def last(self) -> int:
        """The step behind which it is over, unless it stops early."""
        return self._training.steps

    def close(self) -> None:
        """Waits until everything is on disk; raises what failed meanwhile."""
        self._checkpoints.close()

    def updates_to(self, most: int) -> int:
        """Returns how many updates, `most` at most, may be made before `note` has to be called."""
        ahead = range(1, most)
        return next((n for n in ahead if self._is_noted(self.step + n)), most)

    def advance(self, updates: int) -> bool:
        """Counts updates that were made; returns whether `note` has to be called now."""
        self.step += updates
        return self._is_noted(self.step)

    def note(self, state: TrainState) -> TrainState:
        """Writes what is due, probe, row and checkpoint; returns the state to go on with."""
        self._probe_where_due(state)
        if not self._is_logged():
            self._save_where_due(state)
            return state
        row = self._row(state)
        state = state._replace(tally=self._program.place_whole(empty_tally()))
        self.is_over = is_evaluated(self._training, self.step) and self._has_ended()
        if has_diverged(row, last=self.is_over, bound=self._bound):
            self.is_over, self._diverged_at = True, self.step
        else:
            self._save_where_due(state, row["validation_nll"])
        return state

    def interrupt(self, state: TrainState) -> None:
        """Saves a run that will be continued later."""
        self._hooks.guard(self.spec)
        if self.step not in self._checkpoints.steps():
            self._checkpoints.save(self.step, state, None)

    def conclude(self, state: TrainState) -> dict[str, Any]:
        """Returns the status of a run that is over and closed, written."""
        rows, done = self._rows, self._diverged_at is None
        test_nll = self._mean_nll(state.evaluated, "test") if done else None
        found = result(
            self._training,
            rows,
            diverged_at=self._diverged_at,
            test_nll=test_nll,
            parameters=sum(leaf.size for leaf in jax.tree.leaves(state.parameters)),
        )
        speeds = [row["tokens_per_second"] for row in rows]
        status = {
            "schema": records.SCHEMA,
            "fingerprint": self._context.identity,
            "state": "done" if done else "diverged",
            "result": found,
            "pairing": self._pairing,
            "timing": {
                "wall_seconds": self._clock.total(),
                "tokens_per_second": float(np.median(speeds)),
            },
        }
        return hosts.told(lambda: self._complete(status))

    def _complete(self, status: dict[str, Any]) -> dict[str, Any]:
        self._hooks.guard(self.spec)
        self._files.failure.unlink(missing_ok=True)
        return complete(self._files, status)

    def _is_logged(self) -> bool:
        return is_logged(self._training, self.step)

    def _is_noted(self, step: int) -> bool:
        training = self._training
        is_saved = step % training.checkpoint_every == 0
        return is_logged(training, step) or is_saved or step in training.probe_steps

    def _restored(self, start: TrainState) -> TrainState:
        """Returns the newest state on disk, the rows behind it cut off."""
        self._hooks.guard(self.spec)
        step, state = self._checkpoints.restore_newest(start) or (0, start)
        if not hosts.told(lambda: self._has_rows(step)):
            step, state = 0, start
            self._checkpoints.discard()
        self._rows = hosts.told(lambda: self._rows_to(step))
        self._scored_tokens = self._rows[-1]["scored_tokens"] if self._rows else 0
        self.step = step
        return self._program.place(state)

    def _rows_to(self, step: int) -> list[Row]:
        records.truncate_rows(self._files.metrics, step)
        return records.read_rows(self._files.metrics)

    def _has_rows(self, step: int) -> bool:
        """Whether every row up to a restored step is on disk; without them results would differ."""
        rows = records.read_rows(self._files.metrics)
        found = [row.get("step") for row in rows if row.get("step", step + 1) <= step]
        if found == [t for t in range(1, step + 1) if is_logged(self._training, t)]:
            return True
        event = {"event": "rows of metrics are missing", "step": step}
        records.append_row(self._files.events, event)
        logging.getLogger(__name__).warning(
            "%s lacks rows before step %d; the run starts again.", self._files.metrics, step
        )
        return False

    def _has_ended(self) -> bool:
        return has_ended(self._training, self._rows)

    def _save_where_due(self, state: TrainState, validation_nll: float | None = None) -> None:
        evaluated = is_evaluated(self._training, self.step)
        if evaluated or self.step % self._training.checkpoint_every == 0:
            self._hooks.guard(self.spec)
            with self._time.paused():
                self._checkpoints.save(self.step, state, validation_nll)

    def _probe_where_due(self, state: TrainState) -> None:
        """Measures the model, unless that was done at this step before a kill.

        The record reaches the disk before the checkpoint does, so a resumed run lacks none.
        """
        path = self._files.probe(self.step)
        if self.step not in self._training.probe_steps or hosts.told(path.exists):
            return
        with self._time.paused():
            batch = probe_batch(self._context.corpus, self.spec)
            found = probe(self._program, state, batch, self._hyper)
        if hosts.is_first():
            self._hooks.guard(self.spec)
            path.parent.mkdir(exist_ok=True)
            records.write_json(path, found)

    def _row(self, state: TrainState) -> Row:
        """Measures, and writes a row.

        "tokens" counts all tokens of the batches so far, padding too, of the target alone where
        there is a source; "tokens_per_second" the same since the row before, of this run alone
        where others are trained at the same time. "scored_tokens" counts those that the losses
        are means over. "train_loss" is what was minimised.
        """
        tally = jax.device_get(state.tally)
        seconds = self._clock.lap()
        scored = np.maximum(tally.weight_sum, 1.0, dtype=np.float32)
        self._scored_tokens += round(float(tally.weight_sum))
        evaluated = is_evaluated(self._training, self.step)
        row = {
            "step": self.step,
            "tokens": self.step * self._tokens,
            "scored_tokens": self._scored_tokens,
            "train_nll": float(tally.nll_sum / scored),
            "train_loss": float(tally.loss_sum / scored),
            "validation_nll": self._mean_nll(state.evaluated, "validation") if evaluated else None,
            "gradient_norm": float(tally.gradient_norm_sum / tally.updates),
            "learning_rate": float(self._program.rate(state.step, self._hyper)),
            "tokens_per_second": int(tally.updates) * self._tokens / seconds,
        }
        self._rows.append(row)
        if hosts.is_first():
            self._hooks.guard(self.spec)
            # Rows reach the disk before the checkpoint does, so a resumed run lacks none.
            records.append_row(self._files.metrics, row)
            self._hooks.on_row(self.spec, row)
        return row

    def _untrained_nll(self, parameters: Any) -> float:
        """Returns the loss that a trained model is below.

        It is that of a uniform guess, or of the untrained model on the first evaluation batch.
        """
        batches = self._evaluation_batches("validation")
        first = mean_nll(self._program, parameters, itertools.islice(batches, 1))
        return max(math.log(self.spec.model.vocabulary), first)

    def _mean_nll(self, parameters: Any, part: Any) -> float:
        batches = self._evaluation_batches(part)
        with self._time.paused():
            return mean_nll(self._program, parameters, batches)

    def _evaluation_batches(self, part: Any) -> Iterator[data.Batch]:
        share = self._evaluated_share
        return data.evaluation_batches(self._context.corpus, part, self.spec, share)

    def _whole_batch(self, t: int) -> data.Batch:
        """Returns a training batch with the rows that other processes have read."""
        if self._share.is_whole:
            return self.batches[t]
        placed = self._program.place_batch(self.batches[t])
        size = self._training.batch_size
        return jax.tree.map(lambda array: hosts.whole(array)[:size], placed)
