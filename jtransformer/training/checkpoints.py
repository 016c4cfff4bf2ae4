"""Checkpoints of one run: asynchronous, checked on reading, never the wrong run's.

orbax writes and retains them. On top of it: a checksum of every array (a flipped byte would
otherwise be restored without a word), a fall back to the step before a damaged one, and the
refusal of another run's fingerprint.

What lies over a mesh is saved and restored by all processes of a run, each its own part, on
whatever mesh: each function of `Checkpoints` is then a meeting as those of `training.hosts` are.
"""

import hashlib
import json
import logging
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import orbax.checkpoint as ocp

from jtransformer import records
from jtransformer.spec import SpecError
from jtransformer.training import hosts
from jtransformer.training.digests import Leaves, describe, digest
from jtransformer.training.storage import METRIC, copied, options, reader, target

Read = TypeVar("Read")
REASON_LENGTH = 200
"""Characters that are kept of what orbax says of a damaged step; it says kilobytes."""

SHA256_DIGITS = 64
"""What a digest of an array has that an earlier version wrote; a checksum is shorter."""


class Checkpoints:
    """The checkpoints of one run; close it (or leave its `with`) before the process ends."""

    def __init__(self, files: records.RunFiles, fingerprint: str):
        self._files, self._fingerprint = files, fingerprint
        if hosts.is_first():
            # Before orbax does: where it cannot, its threads keep the process alive for ten
            # minutes.
            files.checkpoints.mkdir(parents=True, exist_ok=True)
            self._set_aside_unreadable_metrics()
        hosts.meet()
        self._manager = ocp.CheckpointManager(files.checkpoints.absolute(), options=options())
        self._reader = reader()

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
        arrays = jax.tree.map(copied, state)
        about = description(describe(arrays), self._fingerprint)
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
            like: Tree of the shapes and dtypes to expect, and of where the arrays are to lie.

        Returns:
            The step and the state; see `restore`. None where there is no checkpoint.

        Raises:
            SpecError: If a checkpoint belongs to another run.
        """
        for step in reversed(self.steps()):
            try:
                return step, self.restore(step, like)
            except SpecError:
                raise
            except ValueError as error:
                if hosts.is_first():
                    self._set_aside(step, str(error))
                self._look_again()
        return None

    def discard(self) -> None:
        """Sets every checkpoint aside, for a run that has to start again."""
        for step in self.steps() if hosts.is_first() else []:
            self._move_away(step)
        self._look_again()

    def restore(self, step: int, like: Any) -> Any:
        """Restores one step.

        Args:
            step: One of `steps()`.
            like: Tree of the shapes and dtypes to expect, and of where the arrays are to lie.

        Returns:
            The state. What lies over a mesh in `like` does so, each device's part read alone;
            other arrays are in host memory.

        Raises:
            FileNotFoundError: If there is no such step; the existing ones are named.
            SpecError: If it belongs to another run, or holds another tree.
            ValueError: If it is damaged.
        """
        steps = self.steps()
        if step not in steps:
            where = self._files.checkpoints
            raise FileNotFoundError(f"{where} holds no step {step}; it has {steps}.")
        self._manager.wait_until_finished()
        about = _together(lambda: self._about(step, like))
        state = _together(lambda: self._arrays(step, like))
        return _together(lambda: _checked(state, about["leaves"]))

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

    def _about(self, step: int, like: Any) -> dict[str, Any]:
        """Reads what a step says of itself, and refuses that of another run or tree."""
        about = self._read(step, about=ocp.args.JsonRestore())
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
        self._refuse_another_tree(step, about["leaves"], like)
        return about

    def _arrays(self, step: int, like: Any) -> Any:
        return self._read(step, state=ocp.args.StandardRestore(jax.tree.map(target, like)))

    def _read(self, step: int, **part: Any) -> Any:
        where = self._files.checkpoints.absolute() / str(step)
        (found,) = self._reader.restore(where, args=ocp.args.Composite(**part)).values()
        return found

    def _refuse_another_tree(self, step: int, saved: Leaves, like: Any) -> None:
        """Refuses other names, shapes or dtypes; orbax would cast, or return what it has."""
        wanted = {
            jax.tree_util.keystr(path): {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
            for path, leaf in jax.tree_util.tree_leaves_with_path(like)
        }
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

    def _look_again(self) -> None:
        """Takes note of what the first process has moved away."""
        hosts.meet()
        self._manager.reload()

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


def description(leaves: Leaves, fingerprint: str) -> dict[str, Any]:
    """Returns what a checkpoint says of itself.

    Args:
        leaves: What each of its arrays is; see `describe`.
        fingerprint: Identity of the run.
    """
    about: dict[str, Any] = {"fingerprint": fingerprint, "leaves": leaves}
    about["digest"] = _digest_of_text(about)
    return about


def _together(read: Callable[[], Read]) -> Read:
    """Reads something in every process; where one cannot, none does.

    Raises:
        SpecError: If there is one somewhere.
        ValueError: If anything else goes wrong somewhere.
    """
    error: Exception | None = None
    found: Any = None
    try:
        found = read()
    except SpecError as mistake:
        error = mistake
    # orbax raises many types, bare Exception among them, for a damaged step.
    except Exception as damage:
        error = ValueError(f"{type(damage).__name__}: {damage}"[:REASON_LENGTH])
        error.__cause__ = damage
    own = error and (type(error) is SpecError, str(error))
    said = [each for each in hosts.said_by_all(own) if each]
    if error is None and said:
        is_mistake, sentence = said[0]
        error = SpecError("", sentence) if is_mistake else ValueError(sentence)
    if error is not None:
        raise error
    return found


def _checked(state: Any, saved: Leaves) -> Any:
    """Returns a state, if its arrays are those that were saved."""
    found = describe(state)
    leaves = {jax.tree_util.keystr(p): x for p, x in jax.tree_util.tree_leaves_with_path(state)}
    for name, leaf in saved.items():
        if len(leaf["digest"]) == SHA256_DIGITS:
            found[name]["digest"] = digest(hosts.whole(leaves[name]))
    wrong = [name for name in saved if found[name] != saved[name]]
    if wrong:
        raise ValueError(f"the digest of {', '.join(wrong)} differs from the one saved")
    return state


def _digest_of_text(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _form(leaf: dict[str, Any] | None) -> str:
    return "nothing" if leaf is None else f"{leaf['dtype']}{leaf['shape']}"
