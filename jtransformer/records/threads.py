"""How many threads share the work of a CPU: the last bits of a run depend on it.

XLA divides products and sums among them, so that partial sums are added in another order. Its CPU
client makes as many as the process may use cores, or as the environment variable NPROC says.
"""

import os
import sys
from collections.abc import MutableMapping

_NAME = "NPROC"


def cpu_threads(environment: "MutableMapping[str, str]" = os.environ) -> int:
    """Returns how many threads XLA gives a CPU in this process, if it has not started yet."""
    named = environment.get(_NAME, "")
    if named.isdecimal() and int(named) > 0:
        return int(named)
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def use_cpu_threads(number: int | None) -> None:
    """Sets how many threads XLA gives a CPU in this process and in what it starts.

    For commands, before JAX starts its backend. A number of the user's, in NPROC, stays.

    Args:
        number: That of the records which are continued; None leaves it.
    """
    if number is not None:
        os.environ.setdefault(_NAME, str(number))
