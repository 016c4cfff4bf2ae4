"""Field checks that every spec shares: type, allowed values, bounds.

The type hint is the only statement of what a field may hold; bounds stand beside it as
metadata. An int is accepted where a float is expected; a bool is never a number.
"""

import dataclasses
import math
import numbers
import operator
import struct
import types
import typing
from typing import Any

from jtransformer.spec.errors import SpecError

LARGEST = 2**63 - 1
"""No integer beyond this is accepted; Python's own have no bound, a float and a file do."""
SMALLEST = 2.0**-126
"""No number nearer to 0 is accepted: float32 has some, and XLA computes with 0 in their place."""
RULES = (
    ("above", "greater than", operator.gt),
    ("minimum", "at least", operator.ge),
    ("below", "less than", operator.lt),
    ("maximum", "at most", operator.le),
)
"""Names of bounds, the words for them, and when they hold."""


class Checked:
    """A spec whose fields are checked when it is made.

    Attributes:
        HINTS: The resolved type hint of each field; here, since to resolve them for every value
            would cost most of the time that a large sweep is planned in.
    """

    HINTS: typing.ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        found = typing.get_type_hints(cls)
        cls.HINTS = {
            name: hint
            for name, hint in found.items()
            if typing.get_origin(hint) is not typing.ClassVar
        }

    def __post_init__(self) -> None:
        check(self)


def number(
    default: Any = dataclasses.MISSING,
    *,
    above: float | None = None,
    minimum: float | None = None,
    below: float | None = None,
    maximum: float | None = None,
) -> Any:
    """Declares a numeric field with bounds: `above` and `below` exclude the bound itself."""
    bounds = {"above": above, "minimum": minimum, "below": below, "maximum": maximum}
    return dataclasses.field(default=default, metadata={"bounds": bounds})


def hints(cls: type) -> dict[str, Any]:
    """Returns the resolved type hint of each field of a spec class."""
    assert issubclass(cls, Checked)
    return cls.HINTS


def members(hint: Any) -> tuple[Any, ...]:
    """Returns the alternatives of a union, or the hint alone."""
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def kinds(hint: Any) -> dict[str, type]:
    """Returns the spec classes of a choice with settings, by kind; empty for other hints."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else ()
    return {option.kind: option for option in options if is_spec(option)}


def is_spec(hint: Any) -> bool:
    """Returns whether a hint is one spec class: a part, not a choice among kinds."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def check(spec: Any) -> None:
    """Checks every field of a spec against its hint and bounds; ints become floats.

    Raises:
        SpecError: For the first field that does not hold what it should.
    """
    known = hints(type(spec))
    for field in dataclasses.fields(spec):
        value = conform(field.name, getattr(spec, field.name), known[field.name])
        _check_bounds(field.name, value, field.metadata.get("bounds", {}))
        object.__setattr__(spec, field.name, value)


def conform(name: str, value: Any, hint: Any) -> Any:
    """Returns `value` as the type of `hint`.

    Raises:
        SpecError: If it is of another type, or not among the allowed values.
    """
    options = members(hint)
    if isinstance(value, int) and abs(value) > LARGEST:
        # Its digits are not shown: there may be thousands.
        raise SpecError(name, f"must not exceed {LARGEST} in size.")
    if typing.get_origin(hint) is tuple:
        return _conform_each(name, value, typing.get_args(hint)[0])
    if typing.get_origin(hint) is typing.Literal:
        allowed = typing.get_args(hint)
        if not isinstance(value, str) or value not in allowed:
            raise SpecError(name, f"must be one of {', '.join(allowed)}, got {value!r}.")
        return value
    if value is None and types.NoneType in options:
        return None
    if float in options and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if isinstance(value, float) and float in options and not math.isfinite(value):
        raise SpecError(name, f"must be finite, got {value!r}.")
    if isinstance(value, float) and float in options and _lost_in_float32(value):
        raise SpecError(name, f"= {value!r} is 0 or infinite in float32, in which it is used.")
    if type(value) not in options:
        wanted = " or ".join(_word(option) for option in options)
        foreign = isinstance(value, numbers.Number) and type(value).__module__ != "builtins"
        remedy = "; use a plain Python number" if foreign else ""
        raise SpecError(name, f"must be {wanted}, got {value!r}{remedy}.")
    # -0.0 becomes 0.0: specs that are equal have one fingerprint.
    return value + 0.0 if isinstance(value, float) else value


def _conform_each(name: str, value: Any, hint: Any) -> tuple[Any, ...]:
    """Returns several values of one type; a file has a list where a spec has a tuple."""
    if type(value) not in (list, tuple):
        raise SpecError(name, f"must be a list such as [0, 100], got {value!r}.")
    return tuple(conform(f"{name}[{place}]", item, hint) for place, item in enumerate(value))


def _lost_in_float32(value: float) -> bool:
    """Whether single precision, in which models are trained, has no such number."""
    return math.isinf(_in_float32(value)) or 0 < abs(value) < SMALLEST


def _in_float32(value: float) -> float:
    """Rounds to single precision; infinite beyond its greatest number."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf


def _check_bounds(name: str, value: Any, bounds: dict[str, float | None]) -> None:
    if value is None:
        return
    for rule, words, holds in RULES:
        bound = bounds.get(rule)
        if bound is None:
            continue
        if not holds(value, bound):
            raise SpecError(name, f"must be {words} {bound}, got {value!r}.")
        if isinstance(value, float) and rule in ("above", "below") and _in_float32(value) == bound:
            raise SpecError(
                name, f"must be {words} {bound} in float32 too, got {value!r}, which is not."
            )


def _word(option: Any) -> str:
    names = {int: "an integer", float: "a number", bool: "True or False", str: "a string"}
    return names.get(option, "None" if option is types.NoneType else option.__name__)
