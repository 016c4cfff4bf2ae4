"""What the process of a peer does when it is asked: prepare a size, and time updates of it."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ..sizes import Size

Handlers = dict[str, Callable[..., Any]]
"""Functions by name; arguments and results are what JSON can hold."""

FIRST_UPDATES = 4
"""Made before anything is timed, to see the loss fall."""


class Training(NamedTuple):
    """A model in memory with its optimizer and its batch.

    Attributes:
        parameters: Their number, a tied matrix counted once.
        update: Makes one update, and need not wait for it.
        loss: Waits for all updates; returns the mean loss of those since it was last asked, or the
            loss of the last one.
    """

    parameters: int
    update: Callable[[], None]
    loss: Callable[[], float]


class Trainings:
    """The trainings of a process, by the label that the asking side gave them."""

    def __init__(self, make: Callable[..., Training]):
        self._make = make
        self._made: dict[str, Training] = {}

    def prepare(self, label: str, size: list[int], **options: Any) -> dict[str, Any]:
        """Makes a training and its first updates.

        Returns:
            Number of parameters, loss of each update, and seconds of making and the first update,
            which compiles, and of the last.
        """
        began = time.perf_counter()
        training = self._made[label] = self._make(Size(*size), **options)
        seconds, losses = [], []
        for _ in range(FIRST_UPDATES):
            training.update()
            losses.append(training.loss())
            seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
        return {
            "parameters": training.parameters,
            "losses": losses,
            "first_seconds": seconds[0],
            "update_seconds": min(seconds[1:]),
        }

    def time(self, label: str, updates: int) -> float:
        """Returns the seconds of one of so many updates in a row."""
        training = self._made[label]
        began = time.perf_counter()
        for _ in range(updates):
            training.update()
        training.loss()
        return (time.perf_counter() - began) / updates

    def forget(self, label: str) -> None:
        """Frees what a training holds."""
        del self._made[label]


def trained(make: Callable[..., Training]) -> Handlers:
    """Returns the functions of a peer that trains."""
    trainings = Trainings(make)
    return {"prepare": trainings.prepare, "time": trainings.time, "forget": trainings.forget}


def best_flops(product: Callable[[], Any], side: int, repeats: int = 5) -> float:
    """Returns the operations per second of the fastest of several products of square matrices.

    Args:
        product: Makes one product and waits for it.
        side: Of the matrices.
        repeats: How often; once more before, which is not timed.
    """
    product()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        product()
        seconds.append(time.perf_counter() - began)
    return 2 * side**3 / min(seconds)
