"""A law: what it is about, what it needs to be told, and how it is judged."""

from collections.abc import Callable
from typing import NamedTuple

from jtransformer.checks.report import Finding, NotApplicable
from jtransformer.checks.subject import Subject


class Law(NamedTuple):
    """One law.

    Attributes:
        group: What it is about.
        name: Its name, by which a row is found.
        needs: Fields of a subject without which there is nothing to judge.
        check: Judges a subject.
    """

    group: str
    name: str
    needs: tuple[str, ...]
    check: Callable[[Subject], Finding | NotApplicable]
