"""What is trained: sizes in the shape alphabet, and the rows that every peer is given."""

from typing import NamedTuple

import numpy as np


class Size(NamedTuple):
    """A GPT-2 and its batch: layers, width, heads, hidden width, length, rows, vocabulary."""

    L: int
    D: int
    N: int
    F: int
    T: int
    B: int
    V: int

    @property
    def tokens(self) -> int:
        """Tokens of one update."""
        return self.B * self.T


SIZES = {
    "S": Size(L=2, D=64, N=4, F=256, T=64, B=16, V=128),
    "M": Size(L=4, D=256, N=8, F=1024, T=256, B=8, V=256),
    "L": Size(L=6, D=512, N=8, F=2048, T=256, B=4, V=8192),
}
TINY = Size(L=2, D=16, N=2, F=64, T=8, B=2, V=32)
"""Shows in seconds that all runs; it says nothing about speed."""

LEARNING_RATE, WEIGHT_DECAY, GRADIENT_CLIP = 1e-3, 0.1, 1.0
BETA1, BETA2, EPSILON = 0.9, 0.95, 1e-8
"""Of AdamW, everywhere."""


def rows(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Draws the tokens that are read and the ones that are asked, int32 "B T" each."""
    drawn = np.random.default_rng(0).integers(size.V, size=(size.B, size.T + 1))
    return drawn[:, :-1].astype(np.int32), drawn[:, 1:].astype(np.int32)
