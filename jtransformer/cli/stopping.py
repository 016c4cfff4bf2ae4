"""SIGTERM and Ctrl-C ask a run to save itself and stop; a second Ctrl-C does not wait."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether a stop was asked for."""
    asked = False

    def note(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
