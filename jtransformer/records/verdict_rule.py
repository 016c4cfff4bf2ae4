"""By which rule a sweep is judged, as its manifest has it.

The rule changes no run, so a finished sweep may be judged by another one. That cannot be undone
from the records: what was declared before, and how many runs had finished by then, stays.
"""

import dataclasses
import math
from typing import Any, Literal, get_args, get_type_hints

from jtransformer.records.files import DamagedRecord


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
    """Returns the rule of a sweep; a sweep of an earlier version has the default one.

    Raises:
        DamagedRecord: If what stands there is no rule.
    """
    return _rule(manifest.get("verdict", {}))


def earlier_rules(manifest: dict[str, Any]) -> tuple[EarlierRule, ...]:
    """Returns the rules that were replaced when runs had finished, the oldest first.

    Raises:
        DamagedRecord: If one of them is no rule.
    """
    entries = manifest.get("verdict_before", [])
    if not isinstance(entries, list) or not all(map(_is_entry, entries)):
        raise DamagedRecord(f"sweep.json is damaged (its verdict_before is {entries!r}); restore "
                            "it from a copy.")  # fmt: skip
    return tuple(EarlierRule(_rule(entry["rule"]), entry["finished"]) for entry in entries)


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


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and "rule" in value and isinstance(value.get("finished"), int)


def _rule(found: Any) -> VerdictRule:
    choices = get_type_hints(VerdictRule)
    if isinstance(found, dict) and found.keys() <= choices.keys():
        rule, named = VerdictRule(**found), ("correction", "intervals")
        if _is_margin(rule.margin) and all(
            getattr(rule, name) in get_args(choices[name]) for name in named
        ):
            return rule
    raise DamagedRecord(
        f"sweep.json is damaged (a rule of the verdict is {found!r}); restore it from a copy, or "
        "use the version that wrote it."
    )


def _is_margin(margin: Any) -> bool:
    is_number = isinstance(margin, int | float) and not isinstance(margin, bool)
    return margin is None or (is_number and 0 < margin < math.inf)
