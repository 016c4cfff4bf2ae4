"""Relations between two arrays of one place, for sides that cannot be changed.

Each relation maps the first array to what the second one would be; the one that leaves least is
the nearest. Channels that lie in another order are found by their own values.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

SAME_CHANNEL = 1e-3
"""Channels whose values differ by no more than this, relative to their size, are taken as one."""


class Relation(NamedTuple):
    """What the second array may be of the first.

    Attributes:
        words: In a sentence that begins so: "with channels in halves interleaved".
        left: The first array, related.
        right: What of the second array it is compared with.
    """

    words: str
    left: np.ndarray
    right: np.ndarray


def relations(a: np.ndarray, b: np.ndarray) -> Iterator[Relation]:
    """Yields the relations that the shapes of two arrays allow.

    Args:
        a: The values of one side.
        b: Those of the other side; the shape may be another one.
    """
    a, b = a.astype(np.float64), b.astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()) or not a.size or not b.size:
        return
    yield from _axes(a, b)
    if a.shape != b.shape:
        return
    yield from _factors(a, b)
    yield from _shifts(a, b)
    yield from _orders(a, b)
    for name in ("bfloat16", "float16"):
        with np.errstate(over="ignore"):
            yield Relation(f"rounded to {name}", a.astype(jnp.dtype(name)).astype(np.float64), b)


def _axes(a: np.ndarray, b: np.ndarray) -> Iterator[Relation]:
    """Yields the orders of axes that give one array the shape of the other."""
    if a.ndim == b.ndim:
        for axes in itertools.permutations(range(a.ndim)):
            if axes != (*range(a.ndim),) and tuple(a.shape[i] for i in axes) == b.shape:
                yield Relation(f"with the axes in the order {axes}", a.transpose(axes), b)
    if a.shape != b.shape and a.size == b.size:
        yield Relation(f"reshaped to {list(b.shape)}", a.reshape(b.shape), b)


def _factors(a: np.ndarray, b: np.ndarray) -> Iterator[Relation]:
    square = float(np.sum(a * a))
    if square:
        factor = float(np.sum(a * b)) / square
        yield Relation(f"times {factor:.6g}", a * factor, b)
    gap = float(np.mean(b - a))
    yield Relation(f"plus {gap:.6g}", a + gap, b)
    if a.ndim < 2 or a.size // a.shape[-1] < 3:
        return
    # One number for each channel, fitted over all other axes, of which there must be several.
    rest = (*range(a.ndim - 1),)
    squares = np.sum(a * a, axis=rest)
    factors = np.sum(a * b, axis=rest) / np.where(squares, squares, 1)
    yield Relation("times one factor for each channel", a * factors, b)
    yield Relation("plus one number for each channel", a + np.mean(b - a, axis=rest), b)


def _shifts(a: np.ndarray, b: np.ndarray) -> Iterator[Relation]:
    """Yields places of tokens that are some further on; the axis of tokens is the second."""
    if a.ndim < 2:
        return
    for by in (1, 2):
        if a.shape[1] > by + 1:
            word = f"{by} token{'s' if by > 1 else ''}"
            yield Relation(f"with values {word} later", a[:, :-by], b[:, by:])
            yield Relation(f"with values {word} earlier", a[:, by:], b[:, :-by])


def _orders(a: np.ndarray, b: np.ndarray) -> Iterator[Relation]:
    """Yields other orders of channels and of heads."""
    width = a.shape[-1] if a.ndim else 0
    if width > 1 and width % 2 == 0:
        half = np.arange(width).reshape(2, -1)
        orders = {
            "with the halves of the channels swapped": half[::-1].ravel(),
            "with the halves of the channels interleaved": half.T.ravel(),
            "with even channels before odd ones": np.arange(width).reshape(-1, 2).T.ravel(),
        }
        for words, order in orders.items():
            yield Relation(words, a[..., order], b)
    names = {a.ndim - 1: "channels"} | ({2: "heads"} if a.ndim == 4 else {})
    for axis, name in names.items():
        if a.ndim > 1 and a.shape[axis] > 1:
            order = _matched(np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0))
            if order is not None:
                shown = ", ".join(map(str, order[:8])) + (" …" if len(order) > 8 else "")
                yield Relation(f"with {name} in the order {shown}", np.take(a, order, axis), b)


def _matched(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Finds which row of one array each row of the other is; None if it is no permutation."""
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    squares = (a * a).sum(1)[None] + (b * b).sum(1)[:, None] - 2 * b @ a.T
    order = squares.argmin(1)
    left = np.linalg.norm(b - a[order], axis=1)
    if len({*order.tolist()}) < len(order) or (order == np.arange(len(order))).all():
        return None
    return order if (left <= SAME_CHANNEL * (np.linalg.norm(b, axis=1) + 1e-300)).all() else None
