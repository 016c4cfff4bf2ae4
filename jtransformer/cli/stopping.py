"""SIGTERM, SIGHUP and Ctrl-C: a run in training saves itself first, all else stops at once."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Stopped(BaseException):
    """The process was asked to stop where there is nothing to save; no error."""


@contextlib.contextmanager
def stops_at_once() -> Iterator[None]:
    """Makes a request to stop raise `Stopped`; training replaces this while it lasts."""

    def stop(number: int, frame: Any) -> None:
        raise Stopped

    with _handled_by(stop):
        yield


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether a stop was asked for; a second Ctrl-C stops at once."""
    asked = False

    def note(number: int, frame: Any) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise Stopped
        asked = True

    with _handled_by(note):
        yield lambda: asked


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, Any], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
