"""What is equal across arms, and what is not: sentences and a table, by rule from the analysis."""

from typing import Any

from jtransformer.report import numbers
from jtransformer.report.summary import Column
from jtransformer.stats import Analysis, ArmAnalysis

WORDS = {
    "parameters": "parameters",
    "non_embedding_parameters": "parameters between embeddings and head",
    "training_flops": "training FLOPs/token",
    "inference_flops": "inference FLOPs/token",
    "kv_bytes": "KV bytes/token",
}
SAID = ("parameters", "training_flops", "kv_bytes")
"""What a sentence names of an arm; the table has the rest."""
SHOWN = 5e-5
"""A smaller mismatch is written as 0 %."""


def matched_quantity(analysis: Analysis) -> str | None:
    """Returns what is held equal, None if nothing is."""
    equal = analysis.match["equal"] if analysis.match else "nothing"
    return None if equal == "nothing" else equal


def is_unequal(analysis: Analysis, mismatch: float | None) -> bool:
    """Whether a mismatch is beyond the tolerance; without one, whether there is a mismatch."""
    allowed = analysis.match["tolerance"] if analysis.match and matched_quantity(analysis) else 0
    return mismatch is not None and abs(mismatch) > max(allowed, SHOWN)


def rule(analysis: Analysis) -> str:
    """Says what is held equal, and by what."""
    equal = matched_quantity(analysis)
    if equal is None or analysis.match is None:
        return "Nothing is held equal across arms."
    by, multiples = (_listed(analysis.match[part]) for part in ("by", "multiple_of"))
    knobs = ", else by ".join(map(str, by))
    return (
        f"Arms are matched in {WORDS[equal]} by {knobs} in multiples of "
        f"{numbers.names(list(map(str, multiples)))}, within "
        f"{100 * analysis.match['tolerance']:g} %."
    )


def inequality(analysis: Analysis) -> str | None:
    """Says by how much the arms differ where nothing is held equal; None if they do not."""
    if matched_quantity(analysis) is not None:
        return None
    clauses = [
        f"{arm.name} has {numbers.names([*_said(arm)])}"
        for arm in analysis.arms
        if any(is_unequal(analysis, arm.mismatches.get(name)) for name in SAID)
    ]
    if not clauses:
        return None
    return f"Nothing is held equal. Against the baseline, {'; '.join(clauses)}."


def mismatch_table(analysis: Analysis) -> list[Column]:
    """Tabulates how far each arm is from the baseline in every quantity."""
    return [
        Column("arm", [arm.name for arm in analysis.arms]),
        *(
            Column(words, [_percent(arm.mismatches.get(name)) for arm in analysis.arms])
            for name, words in WORDS.items()
        ),
    ]


def marks(analysis: Analysis) -> list[list[bool]]:
    """Returns which cells of `mismatch_table` are unequal, row by row."""
    return [
        [False, *(is_unequal(analysis, arm.mismatches.get(name)) for name in WORDS)]
        for arm in analysis.arms
    ]


def caption(analysis: Analysis) -> str:
    """Says what the table shows, and what its red cells are."""
    text = "Mismatch to the baseline in everything that can be held equal"
    if not any(map(any, marks(analysis))):
        return f"{text}."
    beyond = "not equal" if matched_quantity(analysis) is None else "beyond the tolerance"
    return f"{text}; what is {beyond} is red."


def _said(arm: ArmAnalysis) -> list[str]:
    figures = {name: arm.mismatches.get(name) for name in SAID}
    return [f"{_percent(x)} {WORDS[name]}" for name, x in figures.items() if x is not None]


def _percent(mismatch: float | None) -> str:
    return numbers.NOTHING if mismatch is None else numbers.percent(mismatch)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
