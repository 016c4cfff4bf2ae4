"""What is held equal across arms, and how an arm is made so."""

import dataclasses
from typing import Any

from jtransformer import accounting
from jtransformer.spec import ModelSpec, RunSpec, SpecError
from jtransformer.sweep.parts import read_integer, read_parts


@dataclasses.dataclass(frozen=True)
class Matching:
    """What is held equal across arms, and the field that pays for it.

    Attributes:
        equal: "parameters".
        by: Dotted path of an integer field of the model.
        multiple_of: The solved value is a multiple of this.
        tolerance: Largest mismatch against the baseline that is accepted, as a fraction.
    """

    equal: str
    by: str
    multiple_of: int = 1
    tolerance: float = 0.01


def read_matching(value: Any) -> Matching:
    """Reads the "match" part of a declaration.

    Raises:
        SpecError: For an unknown key, a missing one, or a wrong value.
    """
    given = read_parts("match", value, Matching)
    missing = [name for name in ("equal", "by") if name not in given]
    if missing:
        raise SpecError(f"match.{missing[0]}", "is missing; for example equal='parameters', "
                        "by='model.ffn_width'.")  # fmt: skip
    match = Matching(**given)
    for name in ("equal", "by"):
        if not isinstance(given[name], str):
            raise SpecError(f"match.{name}", f"must be a string, got {given[name]!r}.")
    if not match.by.startswith("model."):
        raise SpecError("match.by", f"must be a field of the model, got {match.by!r}; "
                        "for example 'model.ffn_width'.")  # fmt: skip
    read_integer("match.multiple_of", match.multiple_of, minimum=1)
    tolerance = match.tolerance
    if type(tolerance) not in (int, float) or not 0 <= tolerance < 1:
        raise SpecError("match.tolerance", "must be a fraction, at least 0 and less than 1, such "
                        f"as 0.01 for 1 %, got {tolerance!r}.")  # fmt: skip
    return match


def match_arm(
    name: str, spec: RunSpec, reference: ModelSpec, rule: Matching
) -> tuple[RunSpec, dict[str, Any]]:
    """Returns an arm made equal to the baseline, and the settings that were solved for.

    Args:
        name: Of the arm, for the message.
        spec: The arm.
        reference: Model of the baseline.
        rule: What is equal.

    Raises:
        SpecError: If nothing reaches the tolerance; the best is named.
    """
    by = rule.by.removeprefix("model.")
    try:
        solved = accounting.match(
            reference,
            spec.model,
            equal=rule.equal,  # pyright: ignore[reportArgumentType]
            by=by,  # pyright: ignore[reportArgumentType]
            multiple_of=rule.multiple_of,
            tolerance=rule.tolerance,
        )
    except SpecError as error:
        raise SpecError(error.path, f"for the arm {name!r} {error.problem}") from None
    return dataclasses.replace(spec, model=solved.spec), {rule.by: solved.value}
