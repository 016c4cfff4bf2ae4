"""Whether two runs have the same figures, to the bit."""

from typing import Any, NamedTuple

from jtransformer.records.layout import RunRecord

CLOCK = ("tokens_per_second",)
"""Figures of a row that say how fast a run was and not what it computed."""
NOTHING = "nothing"
"""Stands for a figure or a row that one of two runs does not have."""


class Difference(NamedTuple):
    """The first figure in which two runs differ.

    Attributes:
        step: Of its row; None for a figure of the result.
        figure: Its name.
        recorded: Its value in the first run.
        found: Its value in the second run.
    """

    step: int | None
    figure: str
    recorded: Any
    found: Any

    def __str__(self) -> str:
        where = "the result" if self.step is None else f"step {self.step}"
        return f"{self.figure} of {where} was {self.recorded} and is {self.found}"


def first_difference(recorded: RunRecord, found: RunRecord) -> Difference | None:
    """Compares every row of metrics and then the result of two complete runs.

    Numbers are equal if they have the same bits: JSON keeps all digits of a float.

    Args:
        recorded: A complete run.
        found: Another.

    Returns:
        The first figure that differs, the clock's left out; None where none does.
    """
    rows = [{row["step"]: row for row in run.metrics} for run in (recorded, found)]
    for step in sorted(rows[0].keys() | rows[1].keys()):
        present = [step in by_step for by_step in rows]
        if not all(present):
            words = ["there" if there else NOTHING for there in present]
            return Difference(step, "the row", *words)
        pair = [by_step[step] for by_step in rows]
        for figure, one, other in _differing(*pair):
            if figure not in CLOCK:
                return Difference(step, figure, one, other)
    ends = [_end(run) for run in (recorded, found)]
    return next((Difference(None, *differing) for differing in _differing(*ends)), None)


def _end(run: RunRecord) -> dict[str, Any]:
    result = run.status["result"] if run.status else {}
    return {"state": run.state, **result}


def _differing(one: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    pairs = [(name, one.get(name, NOTHING), other.get(name, NOTHING)) for name in {**one, **other}]
    # Equality would take 1 for 1.0, and -0.0 for 0.0.
    return [(name, a, b) for name, a, b in pairs if repr(a) != repr(b)]
