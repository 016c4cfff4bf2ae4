"""When a run ends, and what is then said of it: functions of its rows of metrics alone.

A run that was killed and resumed has the same rows, and so the same end.

Source: Prechelt 1998 (early stopping by patience), sec. 2, https://doi.org/10.1007/3-540-49430-8_3;
here evaluations without a new best are counted, whatever the height of the loss.
"""

import math
from collections.abc import Sequence
from typing import Any

from jtransformer.spec import NoEarlyStopping, Patience, TrainingSpec

Row = dict[str, Any]


def is_evaluated(training: TrainingSpec, step: int) -> bool:
    """Whether the validation loss is measured behind an update."""
    return step == training.steps or step % training.evaluate_every == 0


def is_logged(training: TrainingSpec, step: int) -> bool:
    """Whether an update is followed by a row of metrics."""
    return is_evaluated(training, step) or step % training.log_every == 0


def has_ended(training: TrainingSpec, rows: Sequence[Row]) -> bool:
    """Whether a run with these rows makes no further update.

    Args:
        training: Says how long it may be, and whether it may end before.
        rows: Its rows of metrics, in order.
    """
    if not rows:
        return False
    losses = [row["validation_nll"] for row in rows if is_evaluated(training, row["step"])]
    return rows[-1]["step"] >= training.steps or has_stalled(training.early_stopping, losses)


def has_stalled(rule: NoEarlyStopping | Patience, losses: Sequence[float | None]) -> bool:
    """Whether the validation loss has not fallen for as long as the rule allows.

    Args:
        rule: Patience, or none.
        losses: All of the run, in order; one that is not finite is never a best.
    """
    if isinstance(rule, NoEarlyStopping):
        return False
    best, waited = math.inf, 0
    for loss in losses:
        if loss is not None and loss < best - rule.least_gain:
            best, waited = loss, 0
        else:
            waited += 1
    return waited >= rule.evaluations


def has_diverged(row: Row, *, last: bool, bound: float) -> bool:
    """Whether a run has failed: not finite, or in the end no better than untrained.

    Args:
        row: Its newest row.
        last: Whether no other will follow.
        bound: The loss that a trained model is below.
    """
    if not (math.isfinite(row["train_loss"]) and math.isfinite(row["gradient_norm"])):
        return True
    return last and not row["validation_nll"] < bound


def result(
    training: TrainingSpec,
    rows: Sequence[Row],
    *,
    diverged_at: int | None,
    test_nll: float | None,
    parameters: int,
) -> dict[str, Any]:
    """Returns what a status records of a run.

    The figure of a run is the loss behind its last update; the best one stands beside it.

    Args:
        training: How long it was to be.
        rows: Its rows of metrics.
        diverged_at: The update at which it failed, if it did.
        test_nll: Its test loss; None where it diverged.
        parameters: How many numbers its model has.
    """
    evaluated = [row for row in rows if row["validation_nll"] is not None]
    best = min(evaluated, key=lambda row: row["validation_nll"], default=None)
    last, done = rows[-1], diverged_at is None
    return {
        "steps": last["step"],
        "tokens": last["tokens"],
        "scored_tokens": last["scored_tokens"],
        "train_nll": last["train_nll"],
        "train_loss": last["train_loss"],
        "validation_nll": last["validation_nll"] if done else None,
        "best_validation_nll": best["validation_nll"] if best else None,
        "best_step": best["step"] if best else None,
        "test_nll": test_nll,
        "parameters": parameters,
        "diverged_at": diverged_at,
        "stopped_early_at": last["step"] if done and last["step"] < training.steps else None,
    }
