"""How many threads share the work of a CPU: the last bits of a run depend on it.

XLA divides products and sums among them, so that partial sums are added in another order. Its CPU
client makes as many as the process may use cores, or as an environment variable says: PJRT_NPROC,
or else NPROC; 0 and less are 1, and what is no number is passed over.
"""

import os
import re
import sys
from collections.abc import MutableMapping

_NAMES = ("PJRT_NPROC", "NPROC")
"""The first one that holds a number counts."""


def cpu_threads(environment: "MutableMapping[str, str]" = os.environ) -> int:
    """Returns how many threads XLA gives a CPU in this process, if it has not started yet."""
    named = _named(environment)
    if named is not None:
        return named
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def use_cpu_threads(
    number: int | None, environment: "MutableMapping[str, str]" = os.environ
) -> None:
    """Sets how many threads XLA gives a CPU in this process and in what it starts.

    For commands, before JAX starts its backend. A number of the user's stays.

    Args:
        number: That of the records which are continued; None leaves it.
        environment: Where it is set; what is not this process's is for one that it starts.
    """
    if number is not None and _named(environment) is None:
        environment[_NAMES[-1]] = str(number)


def _named(environment: "MutableMapping[str, str]") -> int | None:
    for name in _NAMES:
        text = environment.get(name, "").strip()
        if re.fullmatch("[+-]?[0-9]+", text):
            return max(1, int(text))
    return None
