"""Arrays of rows of different lengths."""

import dataclasses
from collections.abc import Iterable

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths, one behind another in one array.

    Attributes:
        flat: All rows, int32.
        offsets: Where each row begins, and where the last one ends, int64.
    """

    flat: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, rows: Iterable[np.ndarray]) -> "Ragged":
        """Joins rows."""
        listed = [np.asarray(row, np.int32) for row in rows]
        offsets = np.zeros(len(listed) + 1, np.int64)
        np.cumsum([len(row) for row in listed], out=offsets[1:])
        return cls(np.concatenate([np.zeros(0, np.int32), *listed]), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        """Returns row i, counted from 0, as a view."""
        if not 0 <= i < len(self):
            raise IndexError(f"row {i} of {len(self)} rows does not exist.")
        return self.flat[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """The length of every row, int64."""
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray) -> "Ragged":
        """Returns the named rows, in the order in which they are named."""
        return Ragged.of(self[int(i)] for i in rows)
