"""Thins what is asked of every change; the slow tests have the other cases."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], name: Callable[[Any], str], *, one_of: int) -> list[Any]:
    """Returns the cases as parameters, all but the first of every `one_of` marked as slow.

    Args:
        cases: Arguments of a test, each a single one.
        name: Gives the identity of a case.
        one_of: How many cases stand for each that is asked of every change.
    """
    return [
        pytest.param(case, id=name(case), marks=[pytest.mark.slow] if place % one_of else [])
        for place, case in enumerate(cases)
    ]
