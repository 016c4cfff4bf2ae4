"""Tests for jtransformer.training.outcome: when a run ends, from its rows alone."""

import dataclasses
import math

import pytest

from jtransformer.spec import NoEarlyStopping, Patience, TrainingSpec
from jtransformer.training import has_ended, has_stalled
from jtransformer.training.outcome import has_diverged, result

PLAN = TrainingSpec(steps=12, log_every=1, evaluate_every=2, early_stopping=Patience(evaluations=2))


def rows_of(losses):
    """Rows of every update; every second one is evaluated."""
    return [
        {
            "step": step,
            "tokens": 10 * step,
            "scored_tokens": 9 * step,
            "train_nll": 1.0,
            "train_loss": 1.5,
            "gradient_norm": 1.0,
            "validation_nll": losses[step // 2 - 1] if step % 2 == 0 else None,
        }
        for step in range(1, 2 * len(losses) + 1)
    ]


CASES = [
    ([], 1, 0.0, False),
    ([3.0], 1, 0.0, False),
    ([3.0, 3.0], 1, 0.0, True),
    ([3.0, 2.0], 1, 0.0, False),
    ([3.0, 3.1, 2.9, 3.0], 2, 0.0, False),
    ([3.0, 3.1, 2.9, 3.0, 2.95], 2, 0.0, True),
    # A fall of less than the gain is none, and the next is measured from the last best.
    ([3.0, 2.95, 2.91], 2, 0.1, True),
    ([3.0, 2.95, 2.89], 2, 0.1, False),
    # What is not finite is None on disk, and never a best.
    ([None, 3.0], 2, 0.0, False),
    ([3.0, None, None], 2, 0.0, True),
    ([None, None], 2, 0.0, True),
]


@pytest.mark.parametrize(("losses", "evaluations", "least_gain", "expected"), CASES, ids=str)
def test_value_evaluations_without_a_new_best_are_counted(
    losses, evaluations, least_gain, expected
):
    rule = Patience(evaluations=evaluations, least_gain=least_gain)
    assert has_stalled(rule, losses) == expected
    assert not has_stalled(NoEarlyStopping(), losses)


def test_live_each_number_of_patience_changes_the_end():
    losses, base = [3.0, 3.0, 2.95], Patience(evaluations=2)
    changes = {"evaluations": 1, "least_gain": 0.1}
    assert set(changes) == {field.name for field in dataclasses.fields(Patience)}
    assert not has_stalled(base, losses[:2]) and not has_stalled(base, losses)
    assert has_stalled(dataclasses.replace(base, evaluations=1), losses[:2])
    assert has_stalled(dataclasses.replace(base, least_gain=0.1), losses)


def test_rows_between_evaluations_do_not_count():
    assert not has_ended(PLAN, rows_of([3.0, 2.0, 2.5]))
    assert has_ended(PLAN, rows_of([3.0, 2.0, 2.5, 2.1]))
    never = dataclasses.replace(PLAN, early_stopping=NoEarlyStopping())
    assert not has_ended(never, rows_of([3.0] * 5)) and has_ended(never, rows_of([3.0] * 6))
    assert not has_ended(never, [])


def test_result_is_the_last_row_and_says_that_it_came_early():
    stopped = result(PLAN, rows_of([3.0, 2.0, 2.5, 2.1]), diverged_at=None, test_nll=2.2,
                     parameters=5)  # fmt: skip
    assert stopped["stopped_early_at"] == stopped["steps"] == 8
    assert stopped["validation_nll"] == 2.1 and stopped["best_validation_nll"] == 2.0
    assert stopped["best_step"] == 4 and stopped["diverged_at"] is None
    assert (stopped["tokens"], stopped["scored_tokens"]) == (80, 72)
    assert (stopped["train_nll"], stopped["train_loss"]) == (1.0, 1.5)
    whole = result(PLAN, rows_of([3.0] * 6), diverged_at=None, test_nll=2.2, parameters=5)
    assert whole["stopped_early_at"] is None and whole["steps"] == 12
    failed = result(PLAN, rows_of([3.0] * 2), diverged_at=4, test_nll=None, parameters=5)
    assert failed["stopped_early_at"] is None and failed["validation_nll"] is None


@pytest.mark.parametrize(
    ("change", "last", "expected"),
    [
        ({}, True, False),
        ({"validation_nll": 5.0}, False, False),
        ({"validation_nll": 5.0}, True, True),
        ({"validation_nll": math.nan}, True, True),
        ({"train_loss": math.nan}, False, True),
        ({"gradient_norm": math.inf}, False, True),
    ],
    ids=str,
)
def test_a_run_has_diverged_if_not_finite_or_in_the_end_no_better_than_untrained(
    change, last, expected
):
    row = rows_of([3.0])[-1] | change
    assert has_diverged(row, last=last, bound=4.0) == expected
