"""What a config file's `get_sweep()` may say, checked before anything is built."""

import dataclasses
import math
import struct
from collections.abc import Mapping
from typing import Any

from jtransformer.spec import SpecError
from jtransformer.sweep.matching import Matching, read_matching
from jtransformer.sweep.parts import read_integer, read_parts

NEUTRAL = tuple(
    f"training.{name}"
    for name in ("log_every", "evaluate_every", "checkpoint_every", "evaluation_batch_size")
)
"""Settings that a run reports or is stored by; they move no final loss."""
METRICS = ("validation/nll",)
PLAIN = (str, int, float, bool, type(None))
"""What a value may be: it names arms and directories, and is written to sweep.json."""


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
    given = read_parts("get_sweep()", value, Declaration)
    seeds = _values("seeds", given["seeds"]) if "seeds" in given else ()
    for seed in seeds:
        read_integer("seeds", seed, minimum=0)
    metric = given.get("metric", METRICS[0])
    if metric not in METRICS:
        raise SpecError("metric", f"must be one of {', '.join(METRICS)}, got {metric!r}.")
    match = None if given.get("match") is None else read_matching(given["match"])
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
