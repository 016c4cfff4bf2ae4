"""What the caller of a training run wants to know and to decide."""

from collections.abc import Callable
from typing import NamedTuple

from jtransformer.spec import RunSpec
from jtransformer.training.outcome import Row


class Interrupted(BaseException):
    """The process was asked to stop; the run's state is saved and it can be continued.

    No error, so nothing that handles errors must catch it.
    """


class Hooks(NamedTuple):
    """What the caller wants to know and to decide while runs are trained.

    Attributes:
        on_row: Called with every new row of metrics.
        should_stop: Asked before every update; when true the run is saved and `Interrupted`.
        guard: Called before every update and before anything is written; raises where the run is
            no longer this process's to write.
        accept_environment: Whether a run begun in another environment may be continued.
    """

    on_row: Callable[[RunSpec, Row], None] = lambda spec, row: None
    should_stop: Callable[[], bool] = lambda: False
    guard: Callable[[RunSpec], None] = lambda spec: None
    accept_environment: bool = False


NO_HOOKS = Hooks()
