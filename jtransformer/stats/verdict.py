"""The words, chosen by rule.

Whoever wrote the config does not get to choose them; neither does whoever wrote this module,
once the rule stands.
"""

import dataclasses

from jtransformer.stats.additive import LEVEL
from jtransformer.stats.divergence import exact_rate, p_of_rates
from jtransformer.stats.estimates import Choice, Comparison, Count, Edge, SeedsNeeded, Verdict
from jtransformer.stats.power import MOST_SEEDS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """What an arm is judged by.

    Attributes:
        is_baseline: Whether this arm is the baseline.
        runs: All runs of the arm.
        baseline_runs: All runs of the baseline.
        choice: The arm's chosen setting.
        baseline_choice: That of the baseline.
        objections: Why the comparison with the baseline is unfair.
        comparison: Its difference to the baseline, where there is one.
        seeds: How many seeds the sweep has.
        margin: A difference that is smaller does not matter; None where none is declared.
    """

    is_baseline: bool
    runs: Count
    baseline_runs: Count
    choice: Choice | None
    baseline_choice: Choice | None
    objections: tuple[str, ...]
    comparison: Comparison | None
    seeds: int
    margin: float | None


def judge(case: Case) -> Verdict:
    """Gives an arm its word.

    The first rule that applies decides: unfinished, baseline, unfair, diverged at its choice,
    nothing to compare with, one seed, no noise to judge by, and then the adjusted p values.
    """
    if not case.runs.complete:
        return Verdict(word="incomplete", text=f"incomplete: {_progress(case.runs)}")
    if case.choice is None:
        text = f"incomplete: the {case.runs.planned} runs so far choose what is run for all steps"
        return Verdict(word="incomplete", text=text)
    edge = _edge_text(case.choice.edges)
    if case.is_baseline:
        if case.choice.runs.diverged:
            return Verdict(word="baseline", text=f"baseline, {_diverges(case.choice.runs)}")
        return Verdict(word="baseline", text=f"baseline{edge}")
    if not case.baseline_runs.complete or case.baseline_choice is None:
        text = f"incomplete: the baseline has {_progress(case.baseline_runs)}"
        return Verdict(word="incomplete", text=text)
    if case.objections:
        text = f"unfair comparison ({'; '.join(case.objections)})"
        return Verdict(word="unfair comparison", text=text + edge)
    if case.choice.runs.diverged:
        return _by_rates(case.choice.runs, case.baseline_choice.runs)
    return _by_loss(case, case.baseline_choice.runs, edge)


def _by_loss(case: Case, baseline: Count, edge: str) -> Verdict:
    if case.comparison is None:
        why = f"the baseline {_diverges(baseline)}"
        if not baseline.diverged:
            why = "it has no seed in common with the baseline"
        return Verdict(word="not compared", text=f"not compared: {why}{edge}")
    if case.seeds == 1:
        return Verdict(word="no interval", text=f"no interval from one seed{edge}")
    if case.comparison.p_adjusted is None:
        text = f"no interval: the runs leave no noise to judge by{edge}"
        return Verdict(word="no interval", text=text)
    return _by_p(case.comparison, case.margin, edge)


def written(value: float) -> str:
    """Writes a figure to four decimals, or to three digits where these would hide or drown it."""
    return f"{value:.4f}" if value == 0 or 5e-5 <= abs(value) < 1e7 else f"{value:.3g}"


def is_told(comparison: Comparison) -> bool:
    """Whether a difference is told: its adjusted p is at most 0.05."""
    return comparison.p_adjusted is not None and comparison.p_adjusted <= LEVEL


def is_equivalent(comparison: Comparison) -> bool:
    """Whether a difference is told to lie within the margin: the adjusted p of that is as small."""
    return comparison.p_equivalent is not None and comparison.p_equivalent <= LEVEL


def _by_p(comparison: Comparison, margin: float | None, edge: str) -> Verdict:
    """Decides by the adjusted p of a difference and that of two one-sided tests.

    Both can be small: a difference that is there and too small to matter. Then "equivalent within
    margin" is the word and "better" or "worse" stands behind it. The margin was declared to say
    what matters, and with enough seeds every difference is told, so that whoever could not read on
    would take for a gain what was declared to be none.
    """
    direction = "better" if comparison.model.value < 0 else "worse"
    told = is_told(comparison)
    if is_equivalent(comparison):
        within = f"{direction}, but by less than {margin:g}" if told else f"±{margin:g}"
        text = f"equivalent within margin ({within}){edge}"
        return Verdict(word="equivalent within margin", text=text)
    if told:
        return Verdict(word=direction, text=direction + edge)
    needed = f"{_needed(comparison.need)}; " if comparison.need else ""
    resolvable = written(comparison.resolvable or 0.0)
    text = f"cannot tell ({needed}smallest resolvable: {resolvable}){edge}"
    return Verdict(word="cannot tell", text=text)


def _by_rates(own: Count, baseline: Count) -> Verdict:
    reference = f"{baseline.diverged} of {baseline.planned} ({_range(baseline)})"
    text = f"{_diverges(own)}, the baseline in {reference}"
    if own.diverged * baseline.planned > baseline.diverged * own.planned:
        rates = (exact_rate(one.diverged, one.planned) for one in (own, baseline))
        chance = "" if p_of_rates(*rates) <= LEVEL else ", which may be chance"
        return Verdict(word="diverges more often", text=text + chance)
    return Verdict(word="not compared", text=f"not compared: {text}")


def _needed(need: SeedsNeeded) -> str:
    number = f"more than {MOST_SEEDS:,}" if need.seeds is None else f"about {need.seeds}"
    what = f"the {need.of}"
    if need.of == "margin":
        what = f"a difference as large as the margin of {need.difference:g}"
    return f"needs {number} seeds for {what}"


def _diverges(runs: Count) -> str:
    rate = f"{runs.diverged} of {runs.planned} runs"
    return f"diverges in {rate} at its best setting (95 %: {_range(runs)})"


def _range(runs: Count) -> str:
    rate = exact_rate(runs.diverged, runs.planned)
    return f"{100 * rate.low:.0f} to {100 * rate.high:.0f} %"


def _progress(runs: Count) -> str:
    failed = f" ({runs.failed} failed)" if runs.failed else ""
    return f"{runs.finished} of {runs.planned} runs{failed}"


def _edge_text(edges: tuple[Edge, ...]) -> str:
    parts = []
    for edge in edges:
        name = edge.factor.rsplit(".", 1)[-1].replace("_", "-")
        parts.append(
            f" — at the edge of the {name} {edge.among} ({edge.side} value tried, {edge.value:g})"
        )
    return "".join(parts)
