"""Two functions, neither of which can be changed: relations between their arrays are found."""

import numpy as np
import pytest

from jtransformer import diff

B, T, N, H = 2, 5, 3, 6
INPUTS = diff.Inputs(np.zeros((B, T), np.int32))
X = np.random.default_rng(0).standard_normal((B, T, N, H)).astype(np.float32)
ORDER = np.array([3, 0, 5, 1, 2, 4])
PLANTED = {
    "channels": (X[..., ORDER], "with channels in the order 3, 0, 5, 1, 2, 4"),
    "interleaved": (
        np.stack([X[..., :3], X[..., 3:]], -1).reshape(X.shape),
        "with the halves of the channels interleaved",
    ),
    "heads": (X[:, :, [2, 0, 1]], "with heads in the order 2, 0, 1"),
    "factor": (X * np.float32(0.25), "times 0.25"),
    "sign": (-X, "times -1"),
    "transposed": (X.transpose(0, 2, 1, 3), "with the axes in the order (0, 2, 1, 3)"),
    "shift": (np.concatenate([X[:, :1] * 0 + 7, X[:, :-1]], 1), "with values 1 token later"),
    "channel factors": (X * np.arange(1, 7, dtype=np.float32), "times one factor for each channel"),
    "rounded": (X.astype(np.float16).astype(np.float32), "rounded to float16"),
    "reshaped": (X.reshape(B, T, N * H), "reshaped to [2, 5, 18]"),
}


def called(value, name="layer_0/attention/query"):
    return diff.Called("function", lambda tokens: {name: value})


@pytest.mark.parametrize(("other", "words"), PLANTED.values(), ids=PLANTED)
def test_a_relation_is_found(other, words):
    found = diff.difference(called(X), called(other), INPUTS)
    assert found.side is None
    assert words in {trial.words for trial in found.rounds[0].best}


def test_unrelated_arrays_have_no_relation():
    other = np.random.default_rng(1).standard_normal(X.shape).astype(np.float32)
    (round,) = diff.difference(called(X), called(other), INPUTS).rounds
    assert round.best == round.others == round.nearer == ()


def test_equal_arrays_are_equal():
    found = diff.difference(called(X), called(X.copy()), INPUTS)
    assert found.equal and found.rounds == ()


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (3.0, "returned float; return a mapping"),
        ({}, "returned no values"),
        ({"logits": np.array(["a"])}, "returned 'logits' of type <U1; return arrays of numbers"),
    ],
)
def test_a_function_that_returns_something_else_is_told_so(returned, said):
    with pytest.raises(ValueError, match=said):
        diff.Called("module:f", lambda tokens: returned).trace(INPUTS)


def test_a_function_that_fails_is_named():
    with pytest.raises(ValueError, match=r"module:f fails \(ZeroDivisionError: division by zero\)"):
        diff.Called("module:f", lambda tokens: {"logits": 1 / 0}).trace(INPUTS)


def test_gradients_must_be_returned_where_they_are_asked_for():
    with pytest.raises(ValueError, match="returned no gradients"):
        called(X).trace(INPUTS, gradients=True)
    both = diff.Called("f", lambda tokens: {"logits": X, "gradient/logits": X})
    assert set(both.trace(INPUTS, gradients=True).gradients) == {"logits"}
    assert not both.trace(INPUTS).gradients and set(both.trace(INPUTS).values) == {"logits"}
