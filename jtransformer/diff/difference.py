"""The whole of a comparison: two sides, one input, where they part, and what explains it."""

from typing import NamedTuple

from jtransformer.diff.comparing import Comparison, compare
from jtransformer.diff.explaining import Round, explain, relate
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
        b: The other side. Hypotheses are tried on a model of ours: on `a`, if both are.
        inputs: What both are given.
        gradients: Whether gradients of the loss are compared too.

    Raises:
        ValueError: If a side cannot answer such a call, or the two have no place in common.
    """
    traces = a.trace(inputs, gradients=gradients), b.trace(inputs, gradients=gradients)
    comparison = compare(traces[0], traces[1], inputs)
    side = next((one for one in (a, b) if isinstance(one, Ours)), None)
    return Difference(
        a=a.name,
        b=b.name,
        comparison=comparison,
        side=None if side is None else side.name,
        rounds=_explained(side, (a, b), traces, comparison, inputs),
        stored=(traces[0].stored, traces[1].stored),
        computed=(traces[0].computed, traces[1].computed),
    )


def _explained(
    side: Ours | None,
    sides: tuple[Subject, Subject],
    traces: tuple[Trace, Trace],
    comparison: Comparison,
    inputs: Inputs,
) -> tuple[Round, ...]:
    if comparison.first is None:
        return ()
    rounds: tuple[Round, ...] = ()
    if side is not None:
        own = sides.index(side)
        rounds = explain(side, traces[1 - own], comparison, inputs)
        if rounds and rounds[0].best:
            return rounds
    related = relate(traces[0], traces[1], comparison)
    if related is not None and (related.best or not rounds):
        # What no convention explains may still be one array in another order.
        return (related,)
    return rounds
