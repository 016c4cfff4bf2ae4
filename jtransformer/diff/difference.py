"""The whole of a comparison: two sides, one input, where they part, and what explains it."""

from typing import NamedTuple

from jtransformer.diff.backward import explain_gradients, relate_gradients
from jtransformer.diff.comparing import Comparison, compare
from jtransformer.diff.explaining import Round, explain, relate
from jtransformer.diff.foreign import Foreign
from jtransformer.diff.inputs import Inputs
from jtransformer.diff.ours import Ours
from jtransformer.diff.traces import Subject, Trace


class Difference(NamedTuple):
    """What was found.

    Attributes:
        a: Name of one side.
        b: Name of the other side.
        comparison: Where they differ.
        side: Name of the side whose conventions were changed; None if neither is ours.
        rounds: What explains the differences, one after the other.
        stored: The types that the sides are stored in.
        computed: The types that they are computed in.
    """

    a: str
    b: str
    comparison: Comparison
    side: str | None
    rounds: tuple[Round, ...]
    stored: tuple[str, str]
    computed: tuple[str, str]

    @property
    def equal(self) -> bool:
        """Whether nothing differs by more than rounding."""
        return self.comparison.equal


def difference(a: Subject, b: Subject, inputs: Inputs, *, gradients: bool = False) -> Difference:
    """Compares two sides and looks for what explains their differences.

    Args:
        a: One side.
        b: The other side. Hypotheses are tried on a model of ours: on `a`, if both are; where
            neither is, on a stand-in of one of them, if that does what it stands for.
        inputs: What both are given.
        gradients: Whether gradients of the loss are compared too.

    Raises:
        ValueError: If a side cannot answer such a call, or the two have no place in common.
    """
    traces = a.trace(inputs, gradients=gradients), b.trace(inputs, gradients=gradients)
    comparison = compare(traces[0], traces[1], inputs)
    changeable, rounds = None, ()
    if not comparison.equal:
        backward = comparison.first is None
        changeable = _changeable((a, b), traces, inputs, gradients=backward)
        explained = _explained_backward if backward else _explained
        rounds = explained(changeable, traces, comparison, inputs)
    return Difference(
        a=a.name,
        b=b.name,
        comparison=comparison,
        side=None if changeable is None else changeable.side.name,
        rounds=rounds,
        stored=(traces[0].stored, traces[1].stored),
        computed=(traces[0].computed, traces[1].computed),
    )


class _Changeable(NamedTuple):
    """A model of ours, and what the other side did."""

    side: Ours
    other: Trace


def _changeable(
    sides: tuple[Subject, Subject],
    traces: tuple[Trace, Trace],
    inputs: Inputs,
    *,
    gradients: bool,
) -> _Changeable | None:
    """Returns the side on which hypotheses are tried; None if there is none.

    Args:
        sides: Both.
        traces: What they did.
        inputs: What they were given.
        gradients: Whether a stand-in must have the gradients of what it stands for.
    """
    for index, side in enumerate(sides):
        if isinstance(side, Ours):
            return _Changeable(side, traces[1 - index])
    for index, side in enumerate(sides):
        if isinstance(side, Foreign):
            own = side.stand_in.trace(inputs, gradients=gradients)
            if compare(own, traces[index], inputs).equal:
                return _Changeable(side.stand_in, traces[1 - index])
    return None


def _explained(
    changeable: _Changeable | None,
    traces: tuple[Trace, Trace],
    comparison: Comparison,
    inputs: Inputs,
) -> tuple[Round, ...]:
    rounds: tuple[Round, ...] = ()
    if changeable is not None:
        side, other = changeable
        rounds = explain(side, other, compare(side.trace(inputs), other, inputs), inputs)
        if rounds and rounds[0].best:
            return rounds
    related = relate(traces[0], traces[1], comparison)
    if related is not None and (related.best or not rounds):
        # What no convention explains may still be one array in another order.
        return (related,)
    return rounds


def _explained_backward(
    changeable: _Changeable | None,
    traces: tuple[Trace, Trace],
    comparison: Comparison,
    inputs: Inputs,
) -> tuple[Round, ...]:
    """Explains gradients where all values agree."""
    found = None
    if changeable is not None:
        side, other = changeable
        own = compare(side.trace(inputs, gradients=True), other, inputs)
        found = explain_gradients(side, other, own, inputs)
    if found is None or not found.best:
        related = relate_gradients(traces[0], traces[1], comparison)
        found = related if found is None or (related and related.best) else found
    return () if found is None else (found,)
