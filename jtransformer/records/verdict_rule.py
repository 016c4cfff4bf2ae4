"""By which rule a sweep is judged, as its manifest has it.

The rule changes no run, so a finished sweep may be judged by another one. That cannot be undone
from the records: what was declared before, and how many runs had finished by then, stays.
"""

import dataclasses
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class VerdictRule:
    """What a sweep declares of its verdict.

    Attributes:
        margin: A difference that is smaller does not matter, in the unit of the loss; None where
            none is declared, and then no arm is called equivalent.
        correction: What holds for all comparisons together: "holm", the chance of any false
            finding; "fdr", the expected share of false ones among the findings.
        intervals: Which interval of a difference is shown: its own ("unadjusted"), or one of
            which all hold at once ("simultaneous").
    """

    margin: float | None = None
    correction: Literal["holm", "fdr"] = "holm"
    intervals: Literal["unadjusted", "simultaneous"] = "unadjusted"


@dataclasses.dataclass(frozen=True)
class EarlierRule:
    """A rule that has been replaced.

    Attributes:
        rule: What was declared.
        finished: How many runs had finished when it was replaced.
    """

    rule: VerdictRule
    finished: int


def verdict_rule(manifest: dict[str, Any]) -> VerdictRule:
    """Returns the rule of a sweep; a sweep of an earlier version has the default one."""
    return VerdictRule(**manifest.get("verdict", {}))


def earlier_rules(manifest: dict[str, Any]) -> tuple[EarlierRule, ...]:
    """Returns the rules that were replaced when runs had finished, the oldest first."""
    return tuple(
        EarlierRule(VerdictRule(**entry["rule"]), entry["finished"])
        for entry in manifest.get("verdict_before", ())
    )


def rules_before(old: dict[str, Any], rule: VerdictRule, finished: int) -> list[dict[str, Any]]:
    """Returns what the manifest of a continued sweep keeps as "verdict_before".

    Args:
        old: The manifest that is continued.
        rule: What is declared now.
        finished: How many of its runs have finished; without any, nothing was known to whoever
            changed the rule, and the change is not kept.
    """
    kept, replaced = list(old.get("verdict_before", ())), verdict_rule(old)
    if finished and replaced != rule:
        kept.append({"rule": dataclasses.asdict(replaced), "finished": finished})
    return kept
