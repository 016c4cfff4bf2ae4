"""Checkpoints of one run: asynchronous, checked on reading, never the wrong run's.

orbax writes and retains them. On top of it: a digest of every array (a flipped byte would
otherwise be restored without a word), a fall back to the step before a damaged one, and the
refusal of another run's fingerprint.
"""

import hashlib
import json
import logging
import math
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy as policy

from jtransformer import records
from jtransformer.spec import SpecError

NEWEST_KEPT = 2
METRIC = "validation_nll"
REASON_LENGTH = 200
"""Characters that are kept of what orbax says of a damaged step; it says kilobytes."""

Leaves = dict[str, dict[str, Any]]
"""Shape, dtype and digest of every array, by path."""


class Checkpoints:
    """The checkpoints of one run; close it (or leave its `with`) before the process ends."""

    def __init__(self, files: records.RunFiles, fingerprint: str):
        self._files, self._fingerprint = files, fingerprint
        # Before orbax does: where it cannot, its threads keep the process alive for ten minutes.
        files.checkpoints.mkdir(parents=True, exist_ok=True)
        self._set_aside_unreadable_metrics()
        self._manager = ocp.CheckpointManager(files.checkpoints.absolute(), options=_options())

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def save(self, step: int, state: Any, validation_nll: float | None) -> None:
        """Starts to save a state; the arrays are copied before this returns.

        Args:
            step: Updates made.
            state: Tree of arrays.
            validation_nll: What selects the best checkpoint, where it was measured.
        """
        # A copy, because the next update reuses the device's buffers while orbax still writes.
        arrays = jax.tree.map(lambda leaf: np.array(jax.device_get(leaf)), state)
        about = {"fingerprint": self._fingerprint, "leaves": describe(arrays)}
        about["digest"] = _digest_of_text(about)
        metrics = None
        if validation_nll is not None:
            # NaN would sort as the best of all.
            metrics = {METRIC: math.inf if math.isnan(validation_nll) else validation_nll}
        args = ocp.args.Composite(
            state=ocp.args.StandardSave(arrays), about=ocp.args.JsonSave(about)
        )
        if not self._manager.save(step, args=args, metrics=metrics, force=True):
            raise RuntimeError(f"orbax refused to save step {step} in {self._files.checkpoints}.")

    def restore_newest(self, like: Any) -> tuple[int, Any] | None:
        """Restores the newest checkpoint that is whole; damaged ones are set aside and recorded.

        Args:
            like: Tree of the shapes and dtypes to expect.

        Returns:
            The step and the state, arrays in host memory; None where there is no checkpoint.

        Raises:
            SpecError: If a checkpoint belongs to another run.
        """
        for step in reversed(self.steps()):
            try:
                return step, self.restore(step, like)
            except SpecError:
                raise
            except ValueError as error:
                self._set_aside(step, str(error))
                self._manager.reload()
        return None

    def discard(self) -> None:
        """Sets every checkpoint aside, for a run that has to start again."""
        for step in self.steps():
            self._move_away(step)
        self._manager.reload()

    def restore(self, step: int, like: Any) -> Any:
        """Restores one step.

        Args:
            step: One of `steps()`.
            like: Tree of the shapes and dtypes to expect.

        Returns:
            The state, arrays in host memory.

        Raises:
            FileNotFoundError: If there is no such step; the existing ones are named.
            SpecError: If it belongs to another run, or holds another tree.
            ValueError: If it is damaged.
        """
        steps = self.steps()
        if step not in steps:
            where = self._files.checkpoints
            raise FileNotFoundError(f"{where} holds no step {step}; it has {steps}.")
        try:
            return self._restore(step, like)
        except SpecError:
            raise
        # orbax raises many types, bare Exception among them, for a damaged step.
        except Exception as error:
            raise ValueError(f"{type(error).__name__}: {error}"[:REASON_LENGTH]) from error

    def steps(self) -> list[int]:
        """Returns the steps on disk, oldest first."""
        return sorted(self._manager.all_steps())

    def best_step(self) -> int | None:
        """Returns the step of lowest validation loss."""
        return self._manager.best_step()

    def close(self) -> None:
        """Waits until everything is on disk; raises what failed meanwhile."""
        try:
            self._manager.wait_until_finished()
        finally:
            self._manager.close()

    def _restore(self, step: int, like: Any) -> Any:
        args = ocp.args.Composite(about=ocp.args.JsonRestore())
        about = self._manager.restore(step, args=args)["about"]
        # First of all, so that a flipped bit in a fingerprint is damage and no other run.
        if about.pop("digest") != _digest_of_text(about):
            raise ValueError("the digest of its description differs from the one saved")
        found = about["fingerprint"]
        if found != self._fingerprint:
            raise SpecError(
                "",
                f"The checkpoint {self._files.checkpoints / str(step)} belongs to another run "
                f"(fingerprint {found[:8]}, this run is {self._fingerprint[:8]}); "
                "use another work directory.",
            )
        arrays = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
        saved = about["leaves"]
        self._refuse_another_tree(step, saved, describe(arrays))
        args = ocp.args.Composite(state=ocp.args.StandardRestore(arrays))
        state = self._manager.restore(step, args=args)["state"]
        found = describe(state)
        wrong = [name for name in saved if found[name] != saved[name]]
        if wrong:
            raise ValueError(f"the digest of {', '.join(wrong)} differs from the one saved")
        return state

    def _refuse_another_tree(self, step: int, saved: Leaves, wanted: Leaves) -> None:
        """Refuses other names, shapes or dtypes; orbax would cast, or return what it has."""
        differing = [
            f"{name}: {_form(saved.get(name))} saved, {_form(wanted.get(name))} expected"
            for name in dict.fromkeys([*wanted, *saved])
            if _form(saved.get(name)) != _form(wanted.get(name))
        ]
        if differing:
            raise SpecError(
                "",
                f"The checkpoint {self._files.checkpoints / str(step)} holds another tree "
                f"({'; '.join(differing)}); it was made by other code, use another work directory.",
            )

    def _set_aside_unreadable_metrics(self) -> None:
        """Moves steps away whose metrics would keep the manager from opening at all."""
        for path in sorted(self._files.checkpoints.glob("*/metrics/metrics")):
            try:
                float(json.loads(path.read_text())[METRIC])
            except (ValueError, KeyError, TypeError, OSError) as error:
                self._set_aside(int(path.parts[-3]), f"unreadable metrics ({error})")

    def _set_aside(self, step: int, reason: str) -> None:
        """Moves a damaged step away, and says so."""
        target = self._move_away(step)
        event = {"event": "damaged checkpoint", "step": step, "reason": reason}
        records.append_row(self._files.events, event)
        logging.getLogger(__name__).warning(
            "Checkpoint %s is damaged (%s); it was moved to %s, the one before it is used.",
            self._files.checkpoints / str(step),
            reason,
            target,
        )

    def _move_away(self, step: int) -> Path:
        """Moves a step to where orbax does not find it, and returns where that is."""
        target = self._files.directory / "damaged_checkpoints" / str(step)
        target.parent.mkdir(exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        (self._files.checkpoints / str(step)).rename(target)
        return target


def describe(arrays: Any) -> Leaves:
    """Returns every array's shape, dtype and digest, by path."""
    return {
        jax.tree_util.keystr(path): {
            "shape": list(leaf.shape),
            "dtype": str(leaf.dtype),
            "digest": digest(leaf),
        }
        for path, leaf in jax.tree_util.tree_leaves_with_path(arrays)
    }


def digest(array: Any) -> str:
    """Returns the hash of one array's dtype, shape and bytes."""
    array = np.asarray(array)
    text = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(text + array.tobytes()).hexdigest()


def _digest_of_text(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _form(leaf: dict[str, Any] | None) -> str:
    return "nothing" if leaf is None else f"{leaf['dtype']}{leaf['shape']}"


def _options() -> ocp.CheckpointManagerOptions:
    keep_best = policy.BestN(
        get_metric_fn=lambda metrics: metrics[METRIC],
        reverse=True,
        n=1,
        keep_checkpoints_without_metrics=False,
    )
    return ocp.CheckpointManagerOptions(
        # Newest and best, since the best alone would delete what a resumed run needs.
        preservation_policy=policy.AnyPreservationPolicy([policy.LatestN(NEWEST_KEPT), keep_best]),
        best_fn=lambda metrics: metrics[METRIC],
        best_mode="min",
        enable_async_checkpointing=True,
    )
