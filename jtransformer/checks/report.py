"""What a judgement says: one row for each law, with its figure, its limit and its time."""

import dataclasses
import math
from typing import Any, Literal, NamedTuple

Verdict = Literal["pass", "fail", "not applicable"]


class Finding(NamedTuple):
    """What a law measured.

    Attributes:
        figure: The number that is judged.
        unit: What it counts or measures.
        limit: Its bound.
        at_least: Whether the bound is a lower one: something must be felt.
        detail: What else there is to say: where it is worst, and why it may be.
    """

    figure: float
    unit: str
    limit: float
    at_least: bool = False
    detail: str = ""

    @property
    def holds(self) -> bool:
        """Whether the law is kept; a figure that is no number keeps none."""
        if not math.isfinite(self.figure):
            return False
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit


class NotApplicable(NamedTuple):
    """Why a law has nothing to judge here."""

    reason: str


@dataclasses.dataclass(frozen=True)
class Row:
    """A law and how it was judged.

    Attributes:
        group: What the law is about.
        name: The law.
        verdict: Whether it holds.
        figure: What was measured; None where nothing was.
        unit: Of the figure.
        limit: Its bound; None where nothing was measured.
        at_least: Whether the bound is a lower one.
        detail: What else there is to say, or why the law does not apply.
        seconds: How long it took.
    """

    group: str
    name: str
    verdict: Verdict
    figure: float | None
    unit: str
    limit: float | None
    at_least: bool
    detail: str
    seconds: float


def row(group: str, name: str, found: Finding | NotApplicable, seconds: float) -> Row:
    """Makes the row of a law from what it found."""
    if isinstance(found, NotApplicable):
        reason = found.reason
        return Row(group, name, "not applicable", None, "", None, False, reason, seconds)
    return Row(
        group,
        name,
        "pass" if found.holds else "fail",
        float(found.figure),
        found.unit,
        float(found.limit),
        found.at_least,
        found.detail,
        seconds,
    )


@dataclasses.dataclass(frozen=True)
class Report:
    """Every law, in order.

    Attributes:
        rows: One for each law.
    """

    rows: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        """Whether no law is broken."""
        return not self.failures

    @property
    def failures(self) -> tuple[Row, ...]:
        """The laws that are broken."""
        return tuple(row for row in self.rows if row.verdict == "fail")

    def __getitem__(self, name: str) -> Row:
        """Returns the row of a law."""
        return {row.name: row for row in self.rows}[name]

    def to_json(self) -> dict[str, Any]:
        """Returns the report as JSON has it; a figure that is no number is null."""
        rows = []
        for one in map(dataclasses.asdict, self.rows):
            if one["figure"] is not None and not math.isfinite(one["figure"]):
                one |= {"figure": None, "detail": f"the figure is {one['figure']}; {one['detail']}"}
            rows.append(one)
        counts = [row.verdict for row in self.rows]
        return {
            "passed": self.passed,
            "counts": {verdict: counts.count(verdict) for verdict in ("pass", "fail")}
            | {"not applicable": counts.count("not applicable")},
            "seconds": sum(row.seconds for row in self.rows),
            "rows": rows,
        }
