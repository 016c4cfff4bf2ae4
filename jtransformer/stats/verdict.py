"""The words, chosen by rule.

Whoever wrote the config does not get to choose them; neither does whoever wrote this module,
once the rule stands.
"""

from jtransformer.stats.additive import LEVEL
from jtransformer.stats.estimates import Choice, Comparison, Count, Edge, Verdict


def judge(
    *,
    is_baseline: bool,
    runs: Count,
    baseline_runs: Count,
    choice: Choice | None,
    comparison: Comparison | None,
    seeds: int,
) -> Verdict:
    """Gives an arm its word.

    The first rule that applies decides: unfinished, diverged at the choice, baseline, nothing to
    compare with, one seed, no noise to judge by, and then the adjusted p.

    Args:
        is_baseline: Whether this arm is the baseline.
        runs: All runs of the arm.
        baseline_runs: All runs of the baseline arm.
        choice: The arm's chosen setting.
        comparison: Its difference to the baseline, where there is one.
        seeds: How many seeds the sweep has.
    """
    if not runs.complete:
        return Verdict(word="incomplete", text=f"incomplete: {_progress(runs)}")
    if choice is None:
        text = f"incomplete: the {runs.planned} runs so far choose what is run for all steps"
        return Verdict(word="incomplete", text=text)
    edge = _edge_text(choice.edges)
    if choice.runs.diverged:
        k, n = choice.runs.diverged, choice.runs.planned
        return Verdict(word="diverges", text=f"diverges in {k} of {n} runs at its best setting")
    if is_baseline:
        return Verdict(word="baseline", text=f"baseline{edge}")
    if not baseline_runs.complete:
        text = f"incomplete: the baseline has {_progress(baseline_runs)}"
        return Verdict(word="incomplete", text=text)
    if comparison is None:
        return Verdict(word="not compared", text=f"not compared: the baseline diverges{edge}")
    if seeds == 1:
        return Verdict(word="no interval", text=f"no interval from one seed{edge}")
    if comparison.p_holm is None:
        text = f"no interval: the runs leave no noise to judge by{edge}"
        return Verdict(word="no interval", text=text)
    return _by_p(comparison, comparison.p_holm, edge)


def _by_p(comparison: Comparison, p_holm: float, edge: str) -> Verdict:
    if p_holm <= LEVEL:
        word = "better" if comparison.model.value < 0 else "worse"
        return Verdict(word=word, text=word + edge)
    word = "no difference can be told"
    text = f"{word} (smallest resolvable: {comparison.resolvable:.4f})"
    return Verdict(word=word, text=text + edge)


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
