"""Solves for the one size that makes two models equal, and says how equal.

Every quantity is a sum of products of the sizes without a negative term, and no knob makes
another size smaller. So a larger value never costs less, the values that a spec refuses lie below
those that it takes, and bisection over the multiples finds the exact answer. The tests hold it
against a search over all values.
"""

import bisect
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from jtransformer.accounting.knobs import KNOBS, LARGEST, Knob, resized, step
from jtransformer.accounting.quantities import Quantity, quantity
from jtransformer.spec import ModelSpec, SpecError, nearest


@dataclasses.dataclass(frozen=True)
class Match:
    """A solved model.

    Attributes:
        spec: The candidate with the solved value, and with what follows it.
        by: The knob that pays.
        value: Its value.
        residual: (candidate - reference) / reference, what is left of the difference.
    """

    spec: ModelSpec
    by: Knob
    value: int
    residual: float


def match(
    reference: ModelSpec,
    candidate: ModelSpec,
    *,
    equal: Quantity,
    by: Knob | Sequence[Knob],
    multiple_of: int | Sequence[int] = 1,
    tolerance: float,
    length: int | None = None,
    source_length: int | None = None,
) -> Match:
    """Finds the value of a knob at which the candidate is nearest to the reference.

    Exact: counts are integers, biases included, and both neighbours of the crossing are compared;
    the smaller value wins a tie.

    Args:
        reference: The model whose size counts; left as it is.
        candidate: The model to adapt.
        equal: What is to be equal; see `quantity`.
        by: The size of the candidate that pays for it, see `resized`; of several, each is tried
            alone and the first that reaches the tolerance is taken.
        multiple_of: The value is a multiple of this; for several knobs, one number for all or
            one for each.
        tolerance: Largest |residual| that is accepted, as a fraction.
        length: Tokens of a sequence [T]; for operations and kv_bytes alone.
        source_length: Tokens of the source [S], if one of the models has one; None is `length`.

    Raises:
        SpecError: If no value reaches the tolerance, and the best of every knob is named; or if
            a knob has no effect on what is to be equal.
    """
    knobs = _knobs(by)
    multiples = _multiples(multiple_of, len(knobs))
    if source_length is not None and not (reference.has_encoder or candidate.has_encoder):
        raise SpecError(
            "match.source_length",
            f"= {source_length} would do nothing: neither model has a source.",
        )

    def figure(model: ModelSpec) -> float:
        source = source_length if model.has_encoder else None
        try:
            return quantity(model, equal, length=length, source_length=source)
        except SpecError as error:
            raise error.inside("match") from None

    def cost(model: ModelSpec) -> int:
        # What is no whole number per token is one per sequence.
        return round(figure(model) * (length or 1))

    target = cost(reference)
    if target == 0:
        raise SpecError("match.equal", f"= {equal!r} cannot be reached, because the reference has "
                        "none; match in another quantity.")  # fmt: skip
    found = []
    for knob, multiple in zip(knobs, multiples, strict=True):
        spec, value = _nearest(candidate, knob, multiple, cost, target)
        if spec is None:
            raise SpecError(
                "match.by",
                f"= {knob!r} has no effect on the {equal} of this model; leave it out, use one of "
                f"{', '.join(one for one in KNOBS if one not in knobs)}, or match in another "
                "quantity.",
            )
        found.append(Match(spec, knob, value, (cost(spec) - target) / target))
    for solution in found:
        if abs(solution.residual) <= tolerance:
            return solution
    best = ", ".join(
        f"the best {f'multiple of {multiple} of ' if multiple > 1 else ''}{one.by} is {one.value}, "
        "which misses by "
        f"{one.residual:+.3%}"
        for one, multiple in zip(found, multiples, strict=True)
    )
    raise SpecError(
        "match.by",
        f"= {', '.join(knobs)!r} cannot make {figure(candidate):.15g} {equal} equal to "
        f"{figure(reference):.15g} within {tolerance:.3%}: {best}; allow a finer multiple_of, "
        "a larger tolerance or another knob.",
    )


def _nearest(
    model: ModelSpec, knob: Knob, multiple_of: int, cost: Callable[[ModelSpec], int], target: int
) -> tuple[ModelSpec | None, int]:
    """Returns the model nearest to the target and the value; no model if the knob does nothing."""
    unit = math.lcm(multiple_of, step(model, knob))
    values = range(unit, LARGEST[knob] + 1, unit)

    def is_model(value: int) -> bool:
        return resized(model, knob, value) is not None

    def cost_at(value: int) -> int:
        sized = resized(model, knob, value)
        assert sized is not None
        return cost(sized)

    first = bisect.bisect_left(values, True, key=is_model)
    if first == len(values):
        raise SpecError(
            "match.multiple_of",
            f"= {multiple_of} leaves no {knob}: it would be a multiple of {unit}, and none beyond "
            f"{LARGEST[knob]} is tried.",
        )
    if len({cost_at(value) for value in values[first : first + 2]}) < len(
        values[first : first + 2]
    ):
        return None, values[first]
    above = bisect.bisect_left(values, True, lo=first, key=lambda value: cost_at(value) > target)
    neighbours = values[max(first, above - 1) : above + 1]
    value = min(neighbours, key=lambda tried: abs(cost_at(tried) - target))
    return resized(model, knob, value), value


def _knobs(by: Any) -> tuple[Any, ...]:
    """Returns the knobs, each of which there is, none twice."""
    knobs = tuple(by) if isinstance(by, tuple | list) else (by,)
    for knob in knobs:
        if knob not in KNOBS:
            raise SpecError("match.by", f"= {knob!r} is unknown; {nearest(str(knob), KNOBS)}.")
    if not knobs or len(set(knobs)) < len(knobs):
        raise SpecError("match.by", f"= {by!r} must name at least one knob, and none twice.")
    return knobs


def _multiples(multiple_of: Any, knobs: int) -> tuple[int, ...]:
    """Returns what the values of each knob are multiples of."""
    given = tuple(multiple_of) if isinstance(multiple_of, tuple | list) else (multiple_of,) * knobs
    if len(given) != knobs:
        raise SpecError(
            "match.multiple_of",
            f"= {multiple_of!r} has {len(given)} numbers for {knobs} knobs; give one for all or "
            "one for each.",
        )
    for one in given:
        if isinstance(one, bool) or not isinstance(one, int) or one < 1:
            raise SpecError("match.multiple_of", f"must be an integer of at least 1, got {one!r}.")
    return given
