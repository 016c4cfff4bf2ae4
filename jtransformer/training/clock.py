"""Wall time of a run: in all, and of training alone between two rows of metrics."""

import contextlib
import time
from collections.abc import Iterator


class Clock:
    """Wall time in all, and since the last lap with pauses left out."""

    def __init__(self):
        self._begin = self._mark = time.perf_counter()

    def lap(self) -> float:
        """Returns the seconds since the last lap, pauses left out."""
        now = time.perf_counter()
        seconds, self._mark = now - self._mark, now
        return seconds

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves what is done inside out of the lap."""
        begin = time.perf_counter()
        yield
        self._mark += time.perf_counter() - begin

    def total(self) -> float:
        """Returns the seconds since the clock was made."""
        return time.perf_counter() - self._begin
