"""How one stored tensor lies in another code, and how it lies here.

A layout is a pair of inverse functions: `read` takes one of their tensors apart into ours, `write`
joins ours to theirs. Their matrices are stored as torch's `Linear` has them, [outputs, inputs], or
as GPT-2's `Conv1D`, [inputs, outputs]. Ours stand inputs first and keep heads apart: queries are
`D N H`, the output of attention `N H D`. A square matrix that is read in the wrong of the two
raises no error, so every rule of a family says which it is.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

Shape = tuple[int, ...]


class Layout(Protocol):
    """How one of their tensors holds one or several of ours."""

    @property
    def axis(self) -> int:
        """Axis of their tensor along which outputs lie, where several of ours are joined."""
        ...

    def theirs(self, ours: Sequence[Shape]) -> Shape:
        """Returns the shape that their tensor has."""
        ...

    def read(self, array: np.ndarray, ours: Sequence[Shape]) -> list[np.ndarray]:
        """Returns ours, in the shapes given."""
        ...

    def write(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Returns theirs."""
        ...


@dataclasses.dataclass(frozen=True)
class Same:
    """Both are the same: tables."""

    axis: int = 0

    def theirs(self, ours: Sequence[Shape]) -> Shape:
        (shape,) = ours
        return shape

    def read(self, array: np.ndarray, ours: Sequence[Shape]) -> list[np.ndarray]:
        del ours
        return [array]

    def write(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        (array,) = arrays
        return array


@dataclasses.dataclass(frozen=True)
class Flat:
    """Theirs is a vector, ours may keep heads apart: biases, scales of norms.

    Attributes:
        leading: Axes of length 1 before the vector, such as the one of a `[1, V]` bias.
    """

    leading: int = 0
    axis: int = 0

    def theirs(self, ours: Sequence[Shape]) -> Shape:
        (shape,) = ours
        return (1,) * self.leading + (math.prod(shape),)

    def read(self, array: np.ndarray, ours: Sequence[Shape]) -> list[np.ndarray]:
        (shape,) = ours
        return [array.reshape(shape)]

    def write(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        (array,) = arrays
        return array.reshape((1,) * self.leading + (-1,))


@dataclasses.dataclass(frozen=True)
class Transposed:
    """Theirs is [outputs, inputs], as torch's `Linear`.

    Attributes:
        inputs: Axes of ours that are inputs, from the first on; 2 for the output of attention.
    """

    inputs: int = 1
    axis: int = 0

    def theirs(self, ours: Sequence[Shape]) -> Shape:
        (shape,) = ours
        return math.prod(shape[self.inputs :]), math.prod(shape[: self.inputs])

    def read(self, array: np.ndarray, ours: Sequence[Shape]) -> list[np.ndarray]:
        (shape,) = ours
        return [array.T.reshape(shape)]

    def write(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        (array,) = arrays
        return array.reshape(math.prod(array.shape[: self.inputs]), -1).T


@dataclasses.dataclass(frozen=True)
class Straight:
    """Theirs is [inputs, outputs], as GPT-2's `Conv1D`.

    Attributes:
        inputs: Axes of ours that are inputs, from the first on; 2 for the output of attention.
    """

    inputs: int = 1
    axis: int = 1

    def theirs(self, ours: Sequence[Shape]) -> Shape:
        (shape,) = ours
        return math.prod(shape[: self.inputs]), math.prod(shape[self.inputs :])

    def read(self, array: np.ndarray, ours: Sequence[Shape]) -> list[np.ndarray]:
        (shape,) = ours
        return [array.reshape(shape)]

    def write(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        (array,) = arrays
        return array.reshape(math.prod(array.shape[: self.inputs]), -1)


@dataclasses.dataclass(frozen=True)
class Concatenated:
    """Theirs holds the outputs of several of ours one behind the other.

    All queries, then all keys, then all values; or the gate and what it multiplies.

    Attributes:
        each: How each of them lies in its part.
    """

    each: Layout

    @property
    def axis(self) -> int:
        return self.each.axis

    def theirs(self, ours: Sequence[Shape]) -> Shape:
        parts = [self.each.theirs([shape]) for shape in ours]
        joined = list(parts[0])
        joined[self.axis] = sum(part[self.axis] for part in parts)
        return tuple(joined)

    def read(self, array: np.ndarray, ours: Sequence[Shape]) -> list[np.ndarray]:
        sizes = [self.each.theirs([shape])[self.axis] for shape in ours]
        parts = np.split(array, np.cumsum(sizes)[:-1], axis=self.axis)
        return [self.each.read(part, [shape])[0] for part, shape in zip(parts, ours, strict=True)]

    def write(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([self.each.write([array]) for array in arrays], axis=self.axis)


@dataclasses.dataclass(frozen=True)
class Grouped:
    """Theirs holds, for each key head in turn, its queries, its key and its value.

    With as many key heads as query heads it is [N, 3, H] (GPT-NeoX, BLOOM), with one it is all
    queries, then the key, then the value (Falcon). Ours are queries, keys and values, whose last
    two axes are heads and the width of a head.

    Attributes:
        each: How each of the three would lie alone.
    """

    each: Layout

    @property
    def axis(self) -> int:
        return self.each.axis

    def theirs(self, ours: Sequence[Shape]) -> Shape:
        return Concatenated(self.each).theirs(ours)

    def read(self, array: np.ndarray, ours: Sequence[Shape]) -> list[np.ndarray]:
        (N, H), (K, _) = ours[0][-2:], ours[1][-2:]
        outputs = np.moveaxis(array, self.axis, 0)
        grouped = outputs.reshape(K, N // K + 2, H, *outputs.shape[1:])
        parts = (grouped[:, :-2], grouped[:, -2:-1], grouped[:, -1:])
        found = []
        for part, shape in zip(parts, ours, strict=True):
            joined = np.moveaxis(part.reshape(-1, *outputs.shape[1:]), 0, self.axis)
            found += self.each.read(joined, [shape])
        return found

    def write(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        (N, H), (K, _) = arrays[0].shape[-2:], arrays[1].shape[-2:]
        parts = []
        for array, heads in zip(arrays, (N // K, 1, 1), strict=True):
            outputs = np.moveaxis(self.each.write([array]), self.axis, 0)
            parts.append(outputs.reshape(K, heads, H, *outputs.shape[1:]))
        joined = np.concatenate(parts, axis=1)
        return np.moveaxis(joined.reshape(-1, *joined.shape[3:]), 0, self.axis)
