"""What a config file's `get_sweep()` may say, checked before anything is built."""

import dataclasses
import math
import struct
from collections.abc import Mapping
from typing import Any

from jtransformer.spec import SpecError, nearest

NEUTRAL = tuple(
    f"training.{name}"
    for name in ("log_every", "evaluate_every", "checkpoint_every", "evaluation_batch_size")
)
"""Settings that a run reports or is stored by; they move no final loss."""
METRICS = ("validation/nll",)
PLAIN = (str, int, float, bool, type(None))
"""What a value may be: it names arms and directories, and is written to sweep.json."""


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


@dataclasses.dataclass(frozen=True)
class Declaration:
    """A sweep: factors whose effect is asked about, factors tuned per arm, and seeds.

    Attributes:
        scientific: Values of each setting that makes the arms, a full grid.
        nuisance: Values of each setting that is tuned per arm on validation, a full grid.
        seeds: Seeds that every setting is run with; they pair the arms. Empty takes the one of
            `get_config()`.
        match: How arms are made equal; None leaves them as they are.
        metric: What selects nuisance settings and is compared.
        baseline: Name of the arm to compare with; None takes the one equal to `get_config()`.
    """

    scientific: dict[str, tuple[Any, ...]]
    nuisance: dict[str, tuple[Any, ...]]
    seeds: tuple[int, ...]
    match: Matching | None
    metric: str
    baseline: str | None


def read_declaration(value: Any) -> Declaration:
    """Reads what `get_sweep()` returned.

    Raises:
        SpecError: For an unknown key, a wrong type, or two statements that contradict.
    """
    given = _strict("get_sweep()", value, Declaration)
    seeds = _values("seeds", given["seeds"]) if "seeds" in given else ()
    for seed in seeds:
        _integer("seeds", seed, minimum=0)
    metric = given.get("metric", METRICS[0])
    if metric not in METRICS:
        raise SpecError("metric", f"must be one of {', '.join(METRICS)}, got {metric!r}.")
    match = None if given.get("match") is None else _matching(given["match"])
    declaration = Declaration(
        scientific=_factors("scientific", given.get("scientific", {})),
        nuisance=_factors("nuisance", given.get("nuisance", {})),
        seeds=seeds,
        match=match,
        metric=metric,
        baseline=given.get("baseline"),
    )
    _check_roles(declaration)
    return declaration


def _check_roles(declaration: Declaration) -> None:
    if not declaration.scientific:
        raise SpecError("scientific", "is empty; name at least one setting with two values.")
    if math.prod(map(len, declaration.scientific.values())) < 2:
        raise SpecError(
            "scientific", "makes one arm; a comparison needs two, so give a second value."
        )
    for path in (*declaration.scientific, *declaration.nuisance):
        if path in NEUTRAL:
            raise SpecError(path, "changes no result, so it cannot make arms or be tuned.")
    roles = dict.fromkeys(declaration.scientific, "scientific")
    claims = [(path, "nuisance") for path in declaration.nuisance] + [("seed", "seeds")]
    if declaration.match:
        claims.append((declaration.match.by, "match.by"))
    for path, role in claims:
        if path in roles:
            raise SpecError(path, f"is both {roles[path]} and {role}; it can be one of them.")
        roles[path] = role


def _matching(value: Any) -> Matching:
    given = _strict("match", value, Matching)
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
    _integer("match.multiple_of", match.multiple_of, minimum=1)
    tolerance = match.tolerance
    if type(tolerance) not in (int, float) or not 0 <= tolerance < 1:
        raise SpecError("match.tolerance", "must be a fraction, at least 0 and less than 1, such "
                        f"as 0.01 for 1 %, got {tolerance!r}.")  # fmt: skip
    return match


def _strict(where: str, value: Any, cls: type) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(cls)]
    if not isinstance(value, Mapping):
        raise SpecError(where, f"must be a dict of {', '.join(names)}; got {value!r}.")
    for name in value:
        if name not in names:
            offer = nearest(str(name), names)
            raise SpecError(f"{where}: {name}", f"is not a part of it; {offer}.")
    return dict(value)


def _factors(role: str, value: Any) -> dict[str, tuple[Any, ...]]:
    if not isinstance(value, Mapping):
        raise SpecError(role, f"must map settings to their values, got {value!r}.")
    return {str(path): _values(str(path), values) for path, values in value.items()}


def _values(path: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, (tuple, list)) or not values:
        raise SpecError(path, f"must have a tuple of values, such as (1, 2), got {values!r}.")
    for index, value in enumerate(values):
        if type(value) not in PLAIN:
            raise SpecError(path, f"has the value {value!r}; each must be a plain Python number, "
                            "a string, True, False or None.")  # fmt: skip
        if _single(value) in map(_single, values[:index]):
            raise SpecError(path, f"names {value!r} twice; two arms or runs would be identical.")
    return tuple(values)


def _single(value: Any) -> Any:
    """Returns a number as single precision sees it: two that agree there make one run."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0] if type(value) is float else value
    except OverflowError:  # The spec refuses it with its reason.
        return value


def _integer(path: str, value: Any, *, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise SpecError(path, f"must be an integer of at least {minimum}, got {value!r}.")
