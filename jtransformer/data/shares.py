"""Which rows of every batch a process reads, where several train one run."""

import dataclasses

import numpy as np

from jtransformer.data.rows import NO_ROW


@dataclasses.dataclass(frozen=True)
class Share:
    """Some of the equal blocks into which rows are cut; they keep their order.

    Rows are cut where devices will have them, so that a row is at the same place of the whole
    batch whatever the number of processes.

    Attributes:
        blocks: Numbers of the blocks, from 0.
        of: How many there are.
        multiple: Of how many the rows of a batch are made a multiple, by rows that hold nothing.
    """

    blocks: tuple[int, ...] = (0,)
    of: int = 1
    multiple: int = 1

    def __post_init__(self):
        if not set(self.blocks) <= set(range(self.of)) or not self.blocks:
            raise ValueError(
                f"blocks must be some of 0 to {self.of - 1}, got blocks={self.blocks}, "
                f"of={self.of}."
            )
        if self.multiple % self.of:
            raise ValueError(
                f"multiple must be a multiple of the blocks, got multiple={self.multiple}, "
                f"of={self.of}; use {-(-self.multiple // self.of) * self.of}."
            )

    @property
    def is_whole(self) -> bool:
        """Whether it is all rows."""
        return len(self.blocks) == self.of

    def rows(self, count: int) -> np.ndarray:
        """Returns the numbers of its rows, " B", in a batch of `count`; `NO_ROW` is none."""
        size = -(-count // self.multiple) * self.multiple // self.of
        own = np.concatenate([np.arange(size) + block * size for block in self.blocks])
        return np.where(own < count, own, NO_ROW)


WHOLE = Share()
"""All rows of every batch: the share of a process by itself."""
