"""Compares two traces place by place, in the order of computation; gradients in the other order."""

import re
from typing import NamedTuple

import numpy as np

from jtransformer.diff.inputs import Inputs
from jtransformer.diff.places import ordered, place_of
from jtransformer.diff.tolerance import Tolerance, tolerance
from jtransformer.diff.traces import Trace

MASKED = -1e9
"""A score below it was masked by whoever formed it."""


class Row(NamedTuple):
    """What two sides have at one place.

    Attributes:
        name: The place.
        largest: The largest absolute difference; NaN where it is not defined.
        relative: The largest difference, relative to the entry plus the root mean square.
        rms: Root mean square of the difference, relative to that of the values.
        tolerance: The largest `relative` that rounding explains.
        problem: Why the two cannot be compared, or what is wrong with them; empty is nothing.
    """

    name: str
    largest: float
    relative: float
    rms: float
    tolerance: float
    problem: str = ""

    @property
    def beyond(self) -> bool:
        """Whether the difference is more than rounding."""
        return bool(self.problem) or not self.relative <= self.tolerance


class Comparison(NamedTuple):
    """What two traces have in common, and where they part.

    Attributes:
        rows: Places that both have, in the order of computation.
        gradients: Gradients by place, from the loss backward.
        parameters: Gradients by parameter, from the head backward.
        only_a: Places that the first alone has.
        only_b: Places that the second alone has.
    """

    rows: tuple[Row, ...]
    gradients: tuple[Row, ...]
    parameters: tuple[Row, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def first(self) -> Row | None:
        """The first place beyond tolerance."""
        return first_beyond(self.rows)

    @property
    def first_gradient(self) -> Row | None:
        """The first place beyond tolerance on the way back, then the first parameter."""
        return first_beyond((*self.gradients, *self.parameters))

    @property
    def equal(self) -> bool:
        """Whether nothing differs by more than rounding."""
        return self.first is None and self.first_gradient is None


def first_beyond(rows: tuple[Row, ...]) -> Row | None:
    """Returns the first row beyond tolerance; None where there is none."""
    return next((row for row in rows if row.beyond), None)


def compare(a: Trace, b: Trace, inputs: Inputs) -> Comparison:
    """Compares two traces of the same inputs.

    Args:
        a: One side.
        b: The other side.
        inputs: What both were given; values of padding are not compared.

    Raises:
        ValueError: If they have no place in common.
    """
    names = ordered(name for name in a.values if name in b.values)
    if not names:
        raise ValueError(
            f"The two have no place in common: one has {_shown(a.values)}, the other "
            f"{_shown(b.values)}; return at least 'logits' on both sides."
        )
    allowed = tolerance(a, b)
    rows = tuple(_row(name, a, b, inputs, allowed) for name in names)
    backward = [*reversed(ordered(name for name in a.gradients if name in b.gradients))]
    parameters = [name for name in a.parameter_gradients if name in b.parameter_gradients]
    return Comparison(
        rows=rows,
        gradients=tuple(_gradient_row(name, a, b, inputs, allowed) for name in backward),
        parameters=tuple(
            _parameter_row(name, a, b, allowed)
            for name in sorted(parameters, key=_depth, reverse=True)
        ),
        only_a=tuple(name for name in a.values if name not in b.values),
        only_b=tuple(name for name in b.values if name not in a.values),
    )  # fmt: skip


def _gradient_row(name: str, a: Trace, b: Trace, inputs: Inputs, allowed: Tolerance) -> Row:
    left, right = _shown_to_all(name, a.gradients[name], b.gradients[name], inputs)
    return measured(name, left, right, allowed.backward(name), _least(name, b.gradients))


def _parameter_row(name: str, a: Trace, b: Trace, allowed: Tolerance) -> Row:
    left, right = a.parameter_gradients[name], b.parameter_gradients[name]
    return measured(name, left, right, allowed.backward(name), _least(name, b.parameter_gradients))


def _least(name: str, gradients: dict[str, np.ndarray]) -> float:
    """Returns the least size that the rounding errors of a gradient are relative to.

    What comes back through a softmax is a difference, which vanishes where weights are 0 or 1 and
    for what every score of a query has, such as a bias of keys; it is as wrong as what the values
    get, and a bias as its matrix.
    """
    matrix = f"{name.removesuffix('/bias')}/kernel" if name.endswith("/bias") else name
    value = re.sub(r"attention/(query|key)(?=/kernel$|$)", "attention/value", matrix)
    found = [gradients[one] for one in {matrix, value} - {name} if one in gradients]
    return max((_rms(np.nan_to_num(one.astype(np.float64))) for one in found), default=0.0)


def _shown(names: dict) -> str:
    listed = [*names]
    more = f" and {len(listed) - 6} more" if len(listed) > 6 else ""
    return (", ".join(map(repr, listed[:6])) or "nothing") + more


def _depth(path: str) -> tuple:
    """Returns a key that sorts parameters from the embeddings to the head."""
    place = place_of(path)
    stack = {"encoder": 0, "": 1, "decoder": 1}[place.stack]
    if place.layer is None:
        first = place.local.split("/")[0]
        ends = first.startswith(("head", "final_norm", "pooler"))
        return (stack if place.stack else 1, 2 if ends else -1, 0, first.startswith("head"), path)
    order = ("attention_norm_in", "attention", "cross_attention", "ffn_norm_in", "ffn")
    module = place.local.split("/")[0]
    inner = order.index(module) if module in order else len(order)
    return (stack, 0, place.layer, inner, path)


def _row(name: str, a: Trace, b: Trace, inputs: Inputs, allowed: Tolerance) -> Row:
    left, right = a.values[name], b.values[name]
    left, right = _shown_to_all(name, left, right, inputs)
    if name.endswith("/scores") and left.shape == right.shape:
        seen = _seen(name, left, right, a, b)
        left, right = np.where(seen, left, 0), np.where(seen, right, 0)
    return measured(name, left, right, allowed.at(name))


def _seen(name: str, left: np.ndarray, right: np.ndarray, a: Trace, b: Trace) -> np.ndarray:
    """Returns which scores count: those that a query reads on either side."""
    # Scores of what is hidden are no part of the result, and are not formed by everyone.
    unmasked = (left.astype(np.float64) > MASKED) & (right.astype(np.float64) > MASKED)
    weights = name.removesuffix("scores") + "weights"
    if weights not in a.values or weights not in b.values:
        return unmasked
    read = [np.nan_to_num(side.values[weights].astype(np.float64), nan=1.0) for side in (a, b)]
    if read[0].shape != left.shape or read[1].shape != left.shape:
        return unmasked
    return unmasked & ((read[0] != 0) | (read[1] != 0))


def _shown_to_all(
    name: str, left: np.ndarray, right: np.ndarray, inputs: Inputs
) -> tuple[np.ndarray, np.ndarray]:
    """Sets what belongs to padding to 0 on both sides."""
    if left.shape != right.shape:
        return left, right
    stack = place_of(name).stack
    valid = inputs.source_valid if stack == "encoder" else inputs.valid
    for axis_keys, mask in ((False, valid), (True, _key_valid(name, inputs, valid))):
        shown = _spread(name, left.shape, mask, keys=axis_keys)
        if shown is not None:
            left, right = np.where(shown, left, 0), np.where(shown, right, 0)
    return left, right


def _key_valid(name: str, inputs: Inputs, valid: np.ndarray | None) -> np.ndarray | None:
    return inputs.source_valid if "cross_attention" in name else valid


def _spread(
    name: str, shape: tuple[int, ...], valid: np.ndarray | None, *, keys: bool
) -> np.ndarray | None:
    """Gives a mask of tokens the axes of a place; None where there is nothing to hide."""
    if valid is None:
        return None
    local = name.rpartition("/")[2]
    if local in ("scores", "weights"):
        if len(shape) != 4 or shape[0] != valid.shape[0]:
            return None
        if keys:
            fits = local == "scores" and shape[3] == valid.shape[1]
            return valid[:, None, None, :] if fits else None
        return valid[:, None, :, None] if shape[2] == valid.shape[1] else None
    of_memory = "cross_attention" in name and local in ("key", "value", "key_normed", "key_turned")
    if keys != of_memory or shape[:2] != valid.shape:
        return None
    return valid.reshape(*valid.shape, *(1,) * (len(shape) - 2))


def measured(
    name: str, left: np.ndarray, right: np.ndarray, allowed: float, size: float = 0.0
) -> Row:
    """Measures by how much two arrays differ.

    Args:
        name: The place.
        left: One side.
        right: The other side.
        allowed: The largest relative difference that rounding explains.
        size: The least root mean square that differences are relative to.
    """
    nan = float("nan")
    if left.shape != right.shape:
        problem = f"shapes differ: {list(left.shape)} and {list(right.shape)}"
        return Row(name, nan, nan, nan, allowed, problem)
    a, b = left.astype(np.float64), right.astype(np.float64)
    problem = _not_numbers(a, b)
    same = a == b
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.where(same, 0.0, np.abs(a - b))
    if problem:
        return Row(name, nan, nan, nan, allowed, problem)
    finite = np.where(np.isfinite(a), a, 0), np.where(np.isfinite(b), b, 0)
    size = max(size, _rms(finite[0]), _rms(finite[1]))
    if not gap.any():
        return Row(name, 0.0, 0.0, 0.0, allowed)
    scale = np.maximum(np.abs(finite[0]), np.abs(finite[1])) + size
    return Row(name, float(gap.max()), float((gap / scale).max()), _rms(gap) / size, allowed)


def _rms(x: np.ndarray) -> float:
    # Divided by the largest first: squares of numbers near the ends of a type's range are no
    # numbers of that type.
    largest = float(np.abs(x).max()) if x.size else 0.0
    return largest * float(np.sqrt(np.mean(np.square(x / largest)))) if largest else 0.0


def _not_numbers(a: np.ndarray, b: np.ndarray) -> str:
    """Says which side holds what is no number, where the other has none or both have NaN."""
    found = [int(np.isnan(side).sum()) for side in (a, b)]
    if any(found):
        return f"NaN: {found[0]} and {found[1]} of {a.size} values"
    infinite = (np.isinf(a) | np.isinf(b)) & (a != b)
    if infinite.any():
        return f"infinite on one side: {int(infinite.sum())} of {a.size} values"
    return ""
