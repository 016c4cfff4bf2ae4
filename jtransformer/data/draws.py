"""Random numbers by key and place: the same ones whatever was drawn before them.

Philox is counter-based (Salmon et al. 2011, https://doi.org/10.1145/2063384.2063405): each step
of its counter gives four numbers of 64 bits, and any step is at hand at once. Only these raw
numbers are NumPy's: those of `numpy.random.Generator` may change with its release.
"""

import enum

import numpy as np

EVALUATION = 2**32
"""Stands for the seed in evaluation; no seed of a run reaches it."""


class Purpose(enum.IntEnum):
    """What is drawn; the second word of a key, so that one purpose never shifts another."""

    PACKING = 1
    QUESTIONS = 2


def uniforms(seed: int, purpose: Purpose, rows: tuple[int, int], width: int) -> np.ndarray:
    """Draws numbers in [0, 1) for neighbouring rows.

    Args:
        seed: The run's, or `EVALUATION`.
        purpose: What they decide.
        rows: Number of the first row, and how many follow it, itself included.
        width: Numbers of each row.

    Returns:
        float64 "B width"; a row's numbers do not depend on which rows are drawn with it.
    """
    first, count = rows
    steps = -(-width // 4)
    philox = _philox(seed, purpose).advance(first * steps)
    # 53 bits, all that a float64 holds below 1.
    return (philox.random_raw((count, 4 * steps))[:, :width] >> 11) * 2.0**-53


def permutation(seed: int, purpose: Purpose, count: int) -> np.ndarray:
    """Draws an order of the numbers below `count`."""
    return np.argsort(_philox(seed, purpose).random_raw(count), kind="stable")


def _philox(seed: int, purpose: Purpose) -> np.random.Philox:
    return np.random.Philox(key=np.array([seed, purpose], np.uint64))
