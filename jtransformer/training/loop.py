"""One run in progress: from its newest checkpoint to its end."""

import itertools
import logging
import math
from typing import Any

import jax
import numpy as np

from jtransformer import data, records
from jtransformer.spec import RunSpec
from jtransformer.training.checkpoints import Checkpoints
from jtransformer.training.clock import Clock
from jtransformer.training.directory import record_environment
from jtransformer.training.hooks import Hooks, Interrupted, Row
from jtransformer.training.outcome import has_diverged, has_ended, is_evaluated, is_logged, result
from jtransformer.training.pairing import pairing_hashes
from jtransformer.training.program import (
    Program,
    TrainState,
    dropout_key,
    empty_tally,
    mean_nll,
    parameter_key,
)
from jtransformer.training.schedules import hyperparameters


class Loop:
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
        self._plan = spec.training
        self._hyper, self._key = hyperparameters(spec), dropout_key(spec)
        self._batches = data.TrainingBatches(corpus, spec)
        self._clock = Clock()
        self._scored_tokens = 0

    def train(self, identity: str) -> dict[str, Any]:
        """Makes the updates that are missing and returns the run's status, written."""
        start = self._program.start(parameter_key(self._spec.seed))
        self._record_environment(start.parameters)
        pairing = pairing_hashes(self._spec, self._batches, start.parameters)
        self._bound = self._untrained_nll(start.parameters)
        with Checkpoints(self._files, identity) as checkpoints:
            state, diverged_at = self._update_to_the_end(start, checkpoints)
        return self._complete(identity, state, diverged_at, pairing)

    def _record_environment(self, parameters: Any) -> None:
        optimizer, accept = self._spec.optimizer, self._hooks.accept_environment
        record_environment(self._files, optimizer, parameters, accept)

    def _update_to_the_end(
        self, start: TrainState, checkpoints: Checkpoints
    ) -> tuple[TrainState, int | None]:
        """Returns the last state, and the step if the run diverged."""
        step, state = self._restored(start, checkpoints)
        last = step if self._has_ended() else self._plan.steps
        self._clock.lap()
        with data.prefetch(self._batches, step, last) as upcoming:
            for batch in upcoming:
                if self._hooks.should_stop():
                    if step not in checkpoints.steps():
                        checkpoints.save(step, state, None)
                    raise Interrupted(f"stopped at step {step}; run again to continue")
                state = self._program.update(state, batch, self._hyper, self._key)
                step += 1
                if not is_logged(self._plan, step):
                    self._save_where_due(step, state, checkpoints)
                    continue
                row = self._row(step, state)
                state = state._replace(tally=empty_tally())
                ended = is_evaluated(self._plan, step) and self._has_ended()
                if has_diverged(row, last=ended, bound=self._bound):
                    return state, step
                self._save_where_due(step, state, checkpoints, row["validation_nll"])
                if ended:
                    break
        return state, None

    def _restored(self, start: TrainState, checkpoints: Checkpoints) -> tuple[int, TrainState]:
        """Returns the newest state on disk, the rows behind it cut off."""
        step, state = checkpoints.restore_newest(start) or (0, start)
        if not self._has_rows(step):
            step, state = 0, start
            checkpoints.discard()
        records.truncate_rows(self._files.metrics, step)
        rows = records.read_rows(self._files.metrics)
        self._scored_tokens = rows[-1]["scored_tokens"] if rows else 0
        return step, jax.device_put(state)

    def _has_rows(self, step: int) -> bool:
        """Whether every row up to a restored step is on disk; without them results would differ."""
        rows = records.read_rows(self._files.metrics)
        found = [row.get("step") for row in rows if row.get("step", step + 1) <= step]
        if found == [t for t in range(1, step + 1) if is_logged(self._plan, t)]:
            return True
        event = {"event": "rows of metrics are missing", "step": step}
        records.append_row(self._files.events, event)
        logging.getLogger(__name__).warning(
            "%s lacks rows before step %d; the run starts again.", self._files.metrics, step
        )
        return False

    def _has_ended(self) -> bool:
        return has_ended(self._plan, records.read_rows(self._files.metrics))

    def _save_where_due(
        self,
        step: int,
        state: TrainState,
        checkpoints: Checkpoints,
        validation_nll: float | None = None,
    ) -> None:
        if is_evaluated(self._plan, step) or step % self._plan.checkpoint_every == 0:
            with self._clock.paused():
                checkpoints.save(step, state, validation_nll)

    def _row(self, step: int, state: TrainState) -> Row:
        """Measures, and writes a row.

        "tokens" counts all tokens of the batches so far, padding too, of the target alone where
        there is a source; "tokens_per_second" the same since the row before. "scored_tokens"
        counts those that the losses are means over. "train_loss" is what was minimised.
        """
        tally = jax.device_get(state.tally)
        tokens = self._plan.batch_size * self._spec.data.length
        seconds = self._clock.lap()
        scored = np.maximum(tally.weight_sum, 1.0, dtype=np.float32)
        self._scored_tokens += round(float(tally.weight_sum))
        evaluated = is_evaluated(self._plan, step)
        row = {
            "step": step,
            "tokens": step * tokens,
            "scored_tokens": self._scored_tokens,
            "train_nll": float(tally.nll_sum / scored),
            "train_loss": float(tally.loss_sum / scored),
            "validation_nll": self._mean_nll(state.evaluated, "validation") if evaluated else None,
            "gradient_norm": float(tally.gradient_norm_sum / tally.updates),
            "learning_rate": float(self._program.rate(state.step, self._hyper)),
            "tokens_per_second": int(tally.updates) * tokens / seconds,
        }
        # Rows reach the disk before the checkpoint does, so a resumed run lacks none.
        records.append_row(self._files.metrics, row)
        self._hooks.on_row(self._spec, row)
        return row

    def _untrained_nll(self, parameters: Any) -> float:
        """Returns the loss that a trained model is below.

        It is that of a uniform guess, or of the untrained model on the first evaluation batch.
        """
        batches = data.evaluation_batches(self._corpus, "validation", self._spec)
        first = mean_nll(self._program, parameters, itertools.islice(batches, 1))
        return max(math.log(self._spec.model.vocabulary), first)

    def _mean_nll(self, parameters: Any, part: Any) -> float:
        batches = data.evaluation_batches(self._corpus, part, self._spec)
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
        done = diverged_at is None
        test_nll = self._mean_nll(state.evaluated, "test") if done else None
        size = sum(leaf.size for leaf in jax.tree.leaves(state.parameters))
        found = result(
            self._plan, rows, diverged_at=diverged_at, test_nll=test_nll, parameters=size
        )
        speeds = [row["tokens_per_second"] for row in rows]
        status = {
            "schema": records.SCHEMA,
            "fingerprint": identity,
            "state": "done" if done else "diverged",
            "result": found,
            "pairing": pairing,
            "timing": {
                "wall_seconds": self._clock.total(),
                "tokens_per_second": float(np.median(speeds)),
            },
        }
        self._files.failure.unlink(missing_ok=True)
        records.write_json(self._files.status, status)
        return status
