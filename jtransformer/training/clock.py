"""Wall time of a run: in all, and of training alone between two rows of metrics."""

import contextlib
import time
from collections.abc import Iterator


class TrainingTime:
    """Seconds that stand still while something else is done; runs trained together share them."""

    def __init__(self):
        self._paused = 0.0
        self._paused_at: float | None = None

    def seconds(self) -> float:
        """Returns the time so far, counted from anywhere."""
        now = time.perf_counter() if self._paused_at is None else self._paused_at
        return now - self._paused

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves out what is done inside; a pause may be inside another."""
        if self._paused_at is not None:
            yield
            return
        self._paused_at = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - self._paused_at
            self._paused_at = None


class Clock:
    """Wall time in all, and training time since the last lap."""

    def __init__(self, training: TrainingTime):
        self._training = training
        self._begin, self._mark = time.perf_counter(), training.seconds()

    def lap(self) -> float:
        """Returns the seconds of training since the last lap."""
        now = self._training.seconds()
        seconds, self._mark = now - self._mark, now
        return seconds

    def total(self) -> float:
        """Returns the seconds since the clock was made."""
        return time.perf_counter() - self._begin
