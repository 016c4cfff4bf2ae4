"""Wall time of a run: in all, and of training alone between two rows of metrics."""

import time
from typing import Any


class Clock:
    """Wall time in all, and of training alone between rows."""

    def __init__(self):
        self._begin = self._mark = time.perf_counter()

    def lap(self) -> float:
        """Returns the seconds since the last lap, pauses left out."""
        now = time.perf_counter()
        seconds, self._mark = now - self._mark, now
        return seconds

    def paused(self) -> "_Pause":
        return _Pause(self)

    def skip(self, seconds: float) -> None:
        self._mark += seconds

    def total(self) -> float:
        return time.perf_counter() - self._begin


class _Pause:
    def __init__(self, clock: Clock):
        self._clock = clock

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *_: Any) -> None:
        self._clock.skip(time.perf_counter() - self._begin)
