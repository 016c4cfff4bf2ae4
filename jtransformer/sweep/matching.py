"""What is held equal across arms, how an arm is made so, and what is unequal then."""

import dataclasses
from typing import Any

from jtransformer import accounting
from jtransformer.spec import RowLengths, RunSpec, SpecError, nearest
from jtransformer.sweep.parts import read_integer, read_parts

NOTHING = "nothing"
"""Value of `equal` that leaves the arms as they are, and says so."""


@dataclasses.dataclass(frozen=True)
class Matching:
    """What is held equal across arms, and the settings that pay for it.

    Attributes:
        equal: A quantity of `accounting.quantity`, or "nothing".
        by: Dotted path of a size of the model, or several in the order in which they are tried:
            the first that reaches the tolerance pays, alone.
        multiple_of: The solved value is a multiple of this; one number for all, or one for each.
        tolerance: Largest mismatch against the baseline that is accepted, as a fraction.
    """

    equal: str
    by: str | tuple[str, ...] = ()
    multiple_of: int | tuple[int, ...] = 1
    tolerance: float = 0.01

    @property
    def paths(self) -> tuple[str, ...]:
        """The settings that may pay."""
        return (self.by,) if isinstance(self.by, str) else self.by

    @property
    def solved(self) -> tuple[str, ...]:
        """The settings that may be solved for: those that pay, and heads that follow a width."""
        follows = "model.width" in self.paths and "model.heads" not in self.paths
        return (*self.paths, *(("model.heads",) if follows else ()))

    def record(self) -> dict[str, Any]:
        """Returns what the manifest says of it."""
        if self.equal == NOTHING:
            return {"equal": NOTHING}
        parts = dataclasses.asdict(self)
        return {name: list(x) if isinstance(x, tuple) else x for name, x in parts.items()}


def read_matching(value: Any) -> Matching:
    """Reads the "match" part of a declaration.

    Raises:
        SpecError: For an unknown key, a missing one, or a wrong value.
    """
    given = read_parts("match", value, Matching)
    equal = given.get("equal")
    missing = [name for name in ("equal", "by") if name not in given]
    if missing and equal != NOTHING:
        raise SpecError(f"match.{missing[0]}", "is missing; for example equal='parameters', "
                        "by='model.ffn_width'.")  # fmt: skip
    if not isinstance(equal, str):
        raise SpecError("match.equal", f"must be a string, got {equal!r}.")
    if equal not in (allowed := (*accounting.QUANTITIES, NOTHING)):
        raise SpecError("match.equal", f"= {equal!r} is unknown; {nearest(equal, allowed)}.")
    if equal == NOTHING:
        for name in given.keys() - {"equal"}:
            raise SpecError(f"match.{name}", "would do nothing, because match.equal is 'nothing'; "
                            "leave it out.")  # fmt: skip
        return Matching(equal)
    match = Matching(**given | {"by": _several(given["by"])})
    match = dataclasses.replace(match, multiple_of=_several(match.multiple_of))
    _check_paths(match)
    multiples = match.multiple_of if isinstance(match.multiple_of, tuple) else (match.multiple_of,)
    for multiple in multiples:
        read_integer("match.multiple_of", multiple, minimum=1)
    if isinstance(match.multiple_of, tuple) and len(multiples) != len(match.paths):
        raise SpecError("match.multiple_of", f"= {multiples} must be one number, or one for each "
                        f"of {', '.join(match.paths)}.")  # fmt: skip
    tolerance = match.tolerance
    if type(tolerance) not in (int, float) or not 0 <= tolerance < 1:
        raise SpecError("match.tolerance", "must be a fraction, at least 0 and less than 1, such "
                        f"as 0.01 for 1 %, got {tolerance!r}.")  # fmt: skip
    return match


def _several(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _check_paths(match: Matching) -> None:
    """Refuses what is not the dotted path of a size that can pay."""
    if not isinstance(match.by, str | tuple) or not all(isinstance(x, str) for x in match.paths):
        raise SpecError("match.by", f"must be a string or a tuple of strings, got {match.by!r}.")
    allowed = [f"model.{knob}" for knob in accounting.KNOBS]
    for path in match.paths:
        if not path.startswith("model."):
            raise SpecError("match.by", f"must be a field of the model, got {path!r}; "
                            "for example 'model.ffn_width'.")  # fmt: skip
        if path not in allowed:
            raise SpecError("match.by", f"= {path!r} cannot pay; {nearest(path, allowed)}.")
    if not match.paths or len(set(match.paths)) < len(match.paths):
        raise SpecError("match.by", f"= {match.by!r} must name at least one size, and none twice.")


def match_arm(
    name: str, spec: RunSpec, reference: RunSpec, rule: Matching
) -> tuple[RunSpec, dict[str, Any]]:
    """Returns an arm made equal to the baseline, and the settings that were solved for.

    Args:
        name: Of the arm, for the message.
        spec: The arm.
        reference: The baseline.
        rule: What is equal.

    Raises:
        SpecError: If nothing reaches the tolerance; the best is named.
    """
    if rule.equal == NOTHING:
        return spec, {}
    try:
        solved = accounting.match(
            reference.model,
            spec.model,
            equal=rule.equal,  # pyright: ignore[reportArgumentType]
            by=[path.removeprefix("model.") for path in rule.paths],  # pyright: ignore[reportArgumentType]
            multiple_of=rule.multiple_of,
            tolerance=rule.tolerance,
            **_lengths(spec, reference, rule.equal),
        )
    except SpecError as error:
        raise SpecError("", f"The arm {name!r} cannot be matched: {error}") from None
    changed = {solved.by: solved.value}
    for field in dataclasses.fields(solved.spec):
        value = getattr(solved.spec, field.name)
        if value != getattr(spec.model, field.name):
            changed[field.name] = value
    settings = {f"model.{field}": value for field, value in changed.items()}
    return dataclasses.replace(spec, model=solved.spec), settings


def _lengths(spec: RunSpec, reference: RunSpec, equal: str) -> dict[str, int | None]:
    """Returns the lengths that operations and caches are counted for, none for parameters."""
    if equal in accounting.OF_PARAMETERS:
        return {}
    own, other = _rows(spec), _rows(reference)
    sources = {one.source_length for one in (own, other) if one.source_length is not None}
    if own.length != other.length or len(sources) > 1:
        raise SpecError(
            "match.equal",
            f"= {equal!r} is per token of one length, and rows have {_words(own)} here and "
            f"{_words(other)} in the baseline; match in parameters, or keep the length fixed.",
        )
    return {"length": own.length, "source_length": max(sources, default=None)}


def _words(lengths: RowLengths) -> str:
    source = "" if lengths.source_length is None else f" behind {lengths.source_length}"
    return f"{lengths.length}{source} tokens"


def mismatches(spec: RunSpec, reference: RunSpec) -> dict[str, float | None]:
    """Returns (arm - baseline) / baseline of every quantity, each at its own run's lengths.

    None stands where the baseline has nothing of a quantity: an encoder has no cache.
    """
    own, others = quantities(spec), quantities(reference)
    return {n: (own[n] - other) / other if other else None for n, other in others.items()}


def quantities(run: RunSpec) -> dict[str, float]:
    """Returns every quantity that can be matched, at the lengths of the run's own rows."""
    rows = _rows(run)._asdict()
    names: tuple[Any, ...] = accounting.QUANTITIES
    return {
        name: accounting.quantity(
            run.model, name, **({} if name in accounting.OF_PARAMETERS else rows)
        )
        for name in names
    }


def _rows(run: RunSpec) -> RowLengths:
    """Returns the tokens of a row, those of a source only where the model reads one."""
    rows = run.row_lengths
    return rows if run.model.has_encoder else rows._replace(source_length=None)
