"""Figures of rounds: quartiles, ratios round by round, slopes."""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Spread(NamedTuple):
    """Quartiles of a figure over rounds."""

    low: float
    median: float
    high: float

    def text(self, form: str) -> str:
        """Writes the median with the quartiles in brackets; one value stands alone."""
        if self.low == self.median == self.high:
            return f"{self.median:{form}}"
        return f"{self.median:{form}} ({self.low:{form}}–{self.high:{form}})"


def spread(values: Sequence[float]) -> Spread:
    """Returns the quartiles; they are within the values, however few."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


def ratios(theirs: Mapping[int, float], ours: Mapping[int, float]) -> list[float]:
    """Divides their seconds by ours, in the rounds that both have."""
    return [theirs[r] / ours[r] for r in sorted(theirs.keys() & ours.keys())]


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns the exponent of the power law nearest to points, by least squares of logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
