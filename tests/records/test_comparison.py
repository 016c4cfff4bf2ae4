"""Tests that runs are compared to the bit, and that the first difference is the one named."""

import copy

import pytest

from jtransformer.records import Difference, RunRecord, first_difference

ROWS = [
    {"step": 2, "train_nll": 3.5, "validation_nll": None, "tokens_per_second": 10.0},
    {"step": 4, "train_nll": 3.25, "validation_nll": 3.0, "tokens_per_second": 11.0},
]
RESULT = {"steps": 4, "validation_nll": 3.0, "test_nll": 3.125}


def run(rows=ROWS, state="done", **result):
    status = {"result": RESULT | result}
    return RunRecord({}, state, status, copy.deepcopy(rows), {}, None)


def changed(step, **figures):
    return [row | (figures if row["step"] == step else {}) for row in ROWS]


def test_null_equal_runs_have_no_difference_and_the_clock_is_none():
    assert first_difference(run(), run()) is None
    assert first_difference(run(), run(changed(2, tokens_per_second=99.0))) is None


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (run(changed(4, train_nll=3.2500000000000004)), (4, "train_nll", 3.25, 3.2500000000000004)),
        (run(changed(2, validation_nll=1.0)), (2, "validation_nll", None, 1.0)),
        (run(changed(4, validation_nll=3)), (4, "validation_nll", 3.0, 3)),
        (run(changed(4, extra=1)), (4, "extra", "nothing", 1)),
        (run(ROWS[:1]), (4, "the row", "there", "nothing")),
        (run(state="diverged"), (None, "state", "done", "diverged")),
        (run(test_nll=3.126), (None, "test_nll", 3.125, 3.126)),
    ],
)
def test_live_every_figure_is_compared(other, expected):
    assert first_difference(run(), other) == Difference(*expected)


def test_the_first_row_that_differs_is_named_and_zero_has_a_sign():
    left, right = changed(2, train_nll=0.0), changed(2, train_nll=-0.0)
    right[1]["train_nll"] = 9.0
    assert first_difference(run(left), run(right)) == Difference(2, "train_nll", 0.0, -0.0)
    found = first_difference(run(left), run(right, test_nll=0.0))
    assert str(found) == "train_nll of step 2 was 0.0 and is -0.0"
    assert str(Difference(None, "state", "done", "diverged")).startswith("state of the result was")
