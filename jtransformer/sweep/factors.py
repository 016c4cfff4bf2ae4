"""Factors: settings that vary, alone or together, by listed values or within a range."""

import dataclasses
import itertools
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from jtransformer.spec import SpecError, Tree, get, prune
from jtransformer.sweep.parts import read_parts

Setting = dict[str, Any]
"""Values by dotted path."""
PLAIN = (str, int, float, bool, type(None))
"""What a value may be: it names arms and directories, and is written to sweep.json."""
SCALES = ("linear", "log")


@dataclasses.dataclass(frozen=True)
class Range:
    """Where values are drawn from, both ends included.

    Attributes:
        low: The least value; integers alone are drawn if this and `high` are integers.
        high: The greatest.
        scale: "log" draws evenly in the logarithm.
    """

    low: float
    high: float
    scale: str = "linear"


@dataclasses.dataclass(frozen=True)
class Factor:
    """Settings that change together, and what they may be.

    Attributes:
        paths: The settings; several are a zip.
        values: What is tried, each one value per setting; empty where there is a range.
        between: What is drawn from; None for listed values.
        when: Values of other settings under which an arm has this factor; empty for every arm.
    """

    paths: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...] = ()
    between: Range | None = None
    when: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return ", ".join(self.paths)

    def holds(self, tree: Tree) -> bool:
        """Says whether an arm with these settings has the factor."""
        read = prune(tree)
        return all(
            is_read(read, path) and get(read, path) in values for path, values in self.when.items()
        )

    def plain(self) -> Any:
        """Returns what is declared as plain data, for sweep.json."""
        if self.between is not None:
            tried: Any = dataclasses.asdict(self.between)
        else:
            tried = [value[0] if len(self.paths) == 1 else list(value) for value in self.values]
        if not self.when:
            return tried
        parts = tried if isinstance(tried, dict) else {"values": tried}
        return parts | {"when": {path: list(values) for path, values in self.when.items()}}


@dataclasses.dataclass(frozen=True)
class _Tuned:
    """The parts that a tuned factor may be written with."""

    values: Any
    low: Any
    high: Any
    scale: Any
    when: Any


def read_factors(role: str, value: Any) -> tuple[Factor, ...]:
    """Reads settings with their values.

    Raises:
        SpecError: For what is no setting, or has no values that a file can hold.
    """
    if not isinstance(value, Mapping):
        raise SpecError(role, f"must map settings to their values, got {value!r}.")
    factors = []
    for key, given in value.items():
        paths = read_paths(role, key)
        tuned = role == "nuisance" and isinstance(given, Mapping)
        factors.append(_tuned(paths, given) if tuned else Factor(paths, _levels(paths, given)))
    return tuple(factors)


def grid(factors: Sequence[Factor]) -> list[Setting]:
    """Returns every combination of the values of factors."""
    return [
        {
            path: value
            for factor, values in zip(factors, combination, strict=True)
            for path, value in zip(factor.paths, values, strict=True)
        }
        for combination in itertools.product(*(factor.values for factor in factors))
    ]


def read_setting(role: str, value: Any) -> Setting:
    """Reads settings with one value each, such as those that a named arm replaces.

    Raises:
        SpecError: For what is no mapping, or a value that a file cannot hold.
    """
    if not isinstance(value, Mapping):
        raise SpecError(role, f"must map settings to their values, got {value!r}.")
    for path, one in value.items():
        _check_plain(str(path), one)
    return {str(path): one for path, one in value.items()}


def read_values(path: str, values: Any) -> tuple[Any, ...]:
    """Reads a tuple of distinct plain values.

    Raises:
        SpecError: If it is none.
    """
    if not isinstance(values, (tuple, list)) or not values:
        raise SpecError(path, f"must have a tuple of values, such as (1, 2), got {values!r}.")
    for value in values:
        _check_plain(path, value)
    _check_distinct(path, values, [_single(value) for value in values])
    return tuple(values)


def read_paths(role: str, key: Any) -> tuple[str, ...]:
    """Reads one setting, or several that change together."""
    if not isinstance(key, tuple):
        return (str(key),)
    if len(key) < 2 or len(set(key)) < len(key) or not all(isinstance(path, str) for path in key):
        raise SpecError(
            role,
            f"has {key!r}; settings that change together are a tuple of two or more paths, such as "
            "('model.heads', 'model.key_value_heads').",
        )
    return key


def is_read(tree: Tree, path: str) -> bool:
    """Says whether a pruned tree has a setting."""
    node: Any = tree
    for name in path.split("."):
        if not isinstance(node, dict) or name not in node:
            return False
        node = node[name]
    return True


def check_paths(factors: Sequence[Factor], tree: Tree) -> None:
    """Refuses a condition on what is no setting."""
    for factor in factors:
        for path in factor.when:
            get(tree, path)


def _levels(paths: tuple[str, ...], values: Any) -> tuple[tuple[Any, ...], ...]:
    if len(paths) == 1:
        return tuple((value,) for value in read_values(paths[0], values))
    name = ", ".join(paths)
    if not isinstance(values, (tuple, list)) or not values:
        raise SpecError(name, "must have a tuple of tuples, one value for each of the "
                        f"{len(paths)} settings, got {values!r}.")  # fmt: skip
    for value in values:
        if not isinstance(value, (tuple, list)) or len(value) != len(paths):
            raise SpecError(name, f"change together and need {len(paths)} values each time, got "
                            f"{value!r}.")  # fmt: skip
        for path, one in zip(paths, value, strict=True):
            _check_plain(path, one)
    _check_distinct(name, values, [tuple(map(_single, value)) for value in values])
    return tuple(map(tuple, values))


def _tuned(paths: tuple[str, ...], value: Any) -> Factor:
    name = ", ".join(paths)
    given = read_parts(name, value, _Tuned)
    when = given.get("when", {})
    if not isinstance(when, Mapping) or ("when" in given and not when):
        raise SpecError(f"{name}: when", f"must map settings to their values, got {when!r}.")
    conditions = {
        str(path): read_values(str(path), one if isinstance(one, (tuple, list)) else (one,))
        for path, one in when.items()
    }
    if "values" in given:
        if extra := sorted(given.keys() & {"low", "high", "scale"}):
            raise SpecError(name, f"has values and {', '.join(extra)}; give one of them.")
        return Factor(paths, _levels(paths, given["values"]), when=conditions)
    return Factor(paths, between=_range(paths, given), when=conditions)


def _range(paths: tuple[str, ...], given: dict[str, Any]) -> Range:
    name = ", ".join(paths)
    if len(paths) > 1:
        raise SpecError(name, "change together and need listed values, not a range.")
    missing = [part for part in ("low", "high") if part not in given]
    if missing:
        raise SpecError(f"{name}: {missing[0]}", "is missing; give values=(…), or low and high.")
    for part in ("low", "high"):
        if type(given[part]) not in (int, float) or not math.isfinite(given[part]):
            raise SpecError(f"{name}: {part}", f"must be a finite number, got {given[part]!r}.")
    between = Range(**{part: value for part, value in given.items() if part != "when"})
    if between.scale not in SCALES:
        raise SpecError(f"{name}: scale", f"must be one of {', '.join(SCALES)}, got "
                        f"{between.scale!r}.")  # fmt: skip
    if not between.low < between.high:
        raise SpecError(f"{name}: low", "must be less than high, got "
                        f"low={between.low}, high={between.high}.")  # fmt: skip
    if between.scale == "log" and between.low <= 0:
        raise SpecError(f"{name}: low", f"must be greater than 0 for scale 'log', got "
                        f"{between.low}.")  # fmt: skip
    return between


def _check_plain(path: str, value: Any) -> None:
    if type(value) not in PLAIN:
        raise SpecError(path, f"has the value {value!r}; each must be a plain Python number, "
                        "a string, True, False or None.")  # fmt: skip


def _check_distinct(path: str, values: Sequence[Any], seen: list[Any]) -> None:
    for index, value in enumerate(values):
        if seen[index] in seen[:index]:
            raise SpecError(path, f"names {value!r} twice; two arms or runs would be identical.")


def _single(value: Any) -> Any:
    """Returns a number as single precision sees it: two that agree there make one run."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0] if type(value) is float else value
    except OverflowError:  # The spec refuses it with its reason.
        return value
