"""In which settings an arm differs from the baseline."""

from typing import Any, NamedTuple

ABSENT = "absent"
"""Stands for a setting that an arm does not have."""


class Change(NamedTuple):
    """A setting in which an arm differs from the baseline.

    Attributes:
        path: Dotted path.
        own: The arm's value.
        baseline: The baseline's; `ABSENT` of what was solved for.
        part: Whether it comes with another change: it belongs to a chosen kind, or pays for one.
    """

    path: str
    own: Any
    baseline: Any
    part: bool


def changes(own: dict[str, Any], baseline: dict[str, Any]) -> list[Change]:
    """Lists the settings in which an arm of the manifest differs from the baseline.

    A setting of a kind that was changed comes with that change, and so does a size that was solved
    for so that the arms are equal.
    """
    asked, reference = own["factors"], baseline["factors"]
    values = {
        path: (asked.get(path, ABSENT), reference.get(path, ABSENT))
        for path in {**reference, **asked}
        if path not in own["matched"]
    }
    differing = {path: pair for path, pair in values.items() if pair[0] != pair[1]}
    kinds = [path.removesuffix("kind") for path in differing if path.endswith(".kind")]
    found = [
        Change(path, *pair, part=any(path.startswith(k) and path != f"{k}kind" for k in kinds))
        for path, pair in differing.items()
    ]
    solved = own["matched"].items()
    return found + [Change(path, value, ABSENT, part=True) for path, value in solved]
