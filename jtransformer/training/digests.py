"""Digests of arrays: what a checkpoint is checked by, and what shows that two arrays are equal.

A checksum is a sum over the numbers of an array, so that it is the same however the array lies
over devices and processes, and none of these needs the whole. The term of a number is its bits and
its place, side by side in one word of 64 bits, mixed. Mixing is a bijection: a number that is
another one always changes the sum, whatever bits of it are flipped. Arrays that differ in many
numbers have one sum by chance, once in 2^64.

Source of the mixing: Steele, Lea & Flood 2014 (SplitMix), sec. 3 and fig. 10,
https://doi.org/10.1145/2714064.2660195; the constants are those of its variant 13.
"""

import hashlib
import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from jtransformer.training import hosts

AT_ONCE = 2**14
"""Numbers that are mixed at a time, so that what stands between two steps stays in the cache."""

Leaves = dict[str, dict[str, Any]]
"""Shape, dtype and checksum of every array, by path."""


def describe(arrays: Any) -> Leaves:
    """Returns every array's shape, dtype and checksum, by path.

    Of several processes all have to ask at the same time.

    Args:
        arrays: Tree of arrays, of JAX or of NumPy. What lies over no mesh is every process's own,
            and that of the first counts.
    """
    leaves = jax.tree_util.tree_leaves_with_path(arrays)
    return {
        jax.tree_util.keystr(path): {
            "shape": list(leaf.shape),
            "dtype": str(leaf.dtype),
            "digest": found,
        }
        for (path, leaf), found in zip(leaves, checksums(arrays), strict=True)
    }


def checksums(arrays: Any) -> list[str]:
    """Returns the checksum of each array of a tree; see `describe`."""
    own = [_sum_of_own_parts(leaf) for leaf in jax.tree.leaves(arrays)]
    parts = hosts.said_by_all(own)
    return [f"{sum(words) % 2**64:016x}" for words in zip(*parts, strict=True)]


def digest(array: Any) -> str:
    """Returns the hash of one array's dtype, shape and bytes, which have to be at hand whole."""
    array = np.asarray(array)
    text = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(text + array.tobytes()).hexdigest()


def is_spread(array: Any) -> bool:
    """Whether an array, or what stands for one, lies over a mesh."""
    known = isinstance(array, jax.Array | jax.ShapeDtypeStruct)
    return known and isinstance(array.sharding, NamedSharding)


def _sum_of_own_parts(array: Any) -> int:
    """Returns the sum over what this process has of an array and no other one counts."""
    if is_spread(array):
        own = [shard for shard in array.addressable_shards if shard.replica_id == 0]
        parts = [(np.asarray(shard.data), shard.index) for shard in own]
    else:
        parts = [(np.asarray(array), (slice(None),) * array.ndim)] if hosts.is_first() else []
    return sum(_sum(part, index, array.shape) for part, index in parts)


def _sum(part: np.ndarray, index: tuple[slice, ...], shape: tuple[int, ...]) -> int:
    """Returns the sum over a part of an array.

    Args:
        part: Its numbers.
        index: Where they lie in the array.
        shape: That of the array.
    """
    words = _words(part)
    first = [each.start or 0 for each in index] or [0]
    # Of 64 bits a number has two words, which lie side by side on the last axis.
    several = words.shape[-1] // max(1, part.shape[-1] if part.ndim else 1)
    first[-1], whole = first[-1] * several, [*(shape or (1,))]
    whole[-1] *= several
    total = 0
    for rows, columns in _pieces(math.prod(words.shape[:-1]), words.shape[-1]):
        # The axis in front is for those that have but one: NumPy numbers nothing without axes.
        _, *row = np.unravel_index(np.arange(rows.start, rows.stop), (1, *words.shape[:-1]))
        before = np.zeros(rows.stop - rows.start, np.uint64)
        for axis, at in enumerate(row):
            before += (at + first[axis]).astype(np.uint64) * np.uint64(math.prod(whole[axis + 1 :]))
        along = np.arange(columns.start, columns.stop, dtype=np.uint64) + np.uint64(first[-1])
        terms = before[:, None] + along
        terms <<= np.uint64(32)
        terms |= words.reshape(-1, words.shape[-1])[rows, columns]
        total += int(np.add.reduce(_mixed(terms), axis=None))
    return total


def _pieces(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Cuts a table into pieces of at most `AT_ONCE` numbers."""
    wide = max(1, min(columns, AT_ONCE))
    high = AT_ONCE // wide
    for row, column in itertools.product(range(0, rows, high), range(0, columns, wide)):
        yield slice(row, min(row + high, rows)), slice(column, min(column + wide, columns))


def _words(part: np.ndarray) -> np.ndarray:
    """Returns the bits of numbers as unsigned ones of at most 32 bits, with one axis or more."""
    part = np.ascontiguousarray(part).reshape(part.shape or (1,))
    return part.view(f"u{min(part.dtype.itemsize, 4)}")


def _mixed(words: np.ndarray) -> np.ndarray:
    """Mixes words of 64 bits, in their place."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    words ^= words >> np.uint64(31)
    return words
