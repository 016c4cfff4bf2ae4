"""Says what explains gradients that differ where all values agree."""

from jtransformer.diff.callables import GRADIENT, PARAMETER_GRADIENT
from jtransformer.diff.comparing import Comparison, Row, compare, first_beyond
from jtransformer.diff.explaining import Round, Trial, falls, related
from jtransformer.diff.hypotheses import of_gradients
from jtransformer.diff.inputs import Inputs
from jtransformer.diff.ours import Ours
from jtransformer.diff.traces import Trace


def explain_gradients(
    side: Ours, other: Trace, comparison: Comparison, inputs: Inputs
) -> Round | None:
    """Looks for what explains the first gradient that differs from that of a model of ours.

    Args:
        side: The model of ours.
        other: What the other side did.
        comparison: The comparison of the two, whose values agree.
        inputs: What both were given.

    Returns:
        What explains that gradient; None if none differs.
    """
    first = _named(comparison).get(_first(comparison))
    if first is None:
        return None
    trials = []
    for hypothesis in of_gradients(side):
        found = compare(hypothesis.changed.trace(inputs, gradients=True), other, inputs)
        after = _named(found).get(first.name)
        if after is not None and found.first is None:
            following = _first(found) or None
            words, changed = hypothesis.words, hypothesis.changed
            trials.append(Trial(hypothesis.kind, words, first, after, following, changed, found))
    claimed = sorted(
        (trial for trial in trials if falls(trial)),
        key=lambda trial: (trial.next_first is not None, trial.after.rms),
    )
    best = [trial for trial in claimed if trial.next_first == claimed[0].next_first]
    others = claimed[len(best) :]
    return Round(first, tuple(best), tuple(others), (), len(trials))


def relate_gradients(a: Trace, b: Trace, comparison: Comparison) -> Round | None:
    """Looks for a relation between two arrays at the first gradient that differs.

    Args:
        a: One side.
        b: The other side.
        comparison: The comparison of the two.

    Returns:
        What explains that gradient; None if none differs.
    """
    first = _named(comparison).get(_first(comparison))
    if first is None:
        return None
    sides = [
        trace.gradients[first.name.removeprefix(GRADIENT)]
        if first.name.startswith(GRADIENT)
        else trace.parameter_gradients[first.name.removeprefix(PARAMETER_GRADIENT)]
        for trace in (a, b)
    ]
    return related(first, sides[0], sides[1], b.computed)


def _named(comparison: Comparison) -> dict[str, Row]:
    """Returns the rows of gradients, named as a function of someone's own names them."""
    groups = ((GRADIENT, comparison.gradients), (PARAMETER_GRADIENT, comparison.parameters))
    rows = [row._replace(name=prefix + row.name) for prefix, group in groups for row in group]
    return {row.name: row for row in rows}


def _first(comparison: Comparison) -> str:
    first = first_beyond((*_named(comparison).values(),))
    return "" if first is None else first.name
