"""Solves for the one number that makes two models equally large, and says how equal."""

import dataclasses
from typing import Literal

from jtransformer.accounting.parameters import parameters
from jtransformer.spec import ModelSpec, SpecError, nearest

LARGEST = 2**24
"""No width beyond this is tried."""


@dataclasses.dataclass(frozen=True)
class Match:
    """A solved model.

    Attributes:
        spec: The candidate with the solved value.
        value: The value.
        residual: (candidate - reference) / reference, what is left of the difference.
    """

    spec: ModelSpec
    value: int
    residual: float


def match(
    reference: ModelSpec,
    candidate: ModelSpec,
    *,
    equal: Literal["parameters"],
    by: Literal["ffn_width"],
    multiple_of: int = 1,
    tolerance: float,
) -> Match:
    """Finds the value of `by` at which the candidate is nearest to the reference.

    Exact: parameters are counted as integers, biases included, and both neighbours of the
    crossing are compared; the smaller value wins a tie.

    Args:
        reference: The model whose size counts; left as it is.
        candidate: The model to adapt.
        equal: What is to be equal.
        by: The field of the candidate that pays for it.
        multiple_of: The value is a multiple of this.
        tolerance: Largest |residual| that is accepted, as a fraction.

    Raises:
        SpecError: If no value reaches the tolerance; the best one is named.
    """
    if equal != "parameters":
        offer = nearest(str(equal), ["parameters"])
        raise SpecError("match.equal", f"= {equal!r} is unknown; {offer}.")
    if by != "ffn_width":
        raise SpecError("match.by", f"= {by!r} is unknown; {nearest(str(by), ['ffn_width'])}.")
    target = parameters(reference).total

    def sized(units: int) -> ModelSpec:
        return dataclasses.replace(candidate, **{by: units * multiple_of})

    def residual(units: int) -> float:
        return (parameters(sized(units)).total - target) / target

    low, high = 1, max(1, LARGEST // multiple_of)
    # The count grows with the value: `low` ends as the largest value that is not above the target.
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if residual(middle) <= 0 else (low, middle - 1)
    units = min((low, low + 1), key=lambda tried: (abs(residual(tried)), tried))
    found = Match(spec=sized(units), value=units * multiple_of, residual=residual(units))
    if abs(found.residual) > tolerance:
        raise SpecError(
            f"match.{by}",
            f"cannot make {parameters(candidate).total} parameters equal to {target} within "
            f"{tolerance:.3%}: the best multiple of {multiple_of} is {found.value}, which misses "
            f"by {found.residual:+.3%}; allow a finer multiple_of or a larger tolerance.",
        )
    return found
