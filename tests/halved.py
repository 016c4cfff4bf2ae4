"""Halves what is asked of every change; the slow tests have the other half of the cases."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def halved(cases: Iterable[Any], name: Callable[[Any], str]) -> list[Any]:
    """Returns the cases as parameters, every second one marked as slow.

    Args:
        cases: Arguments of a test, each a single one.
        name: Gives the identity of a case.
    """
    return [
        pytest.param(case, id=name(case), marks=[pytest.mark.slow] if place % 2 else [])
        for place, case in enumerate(cases)
    ]
