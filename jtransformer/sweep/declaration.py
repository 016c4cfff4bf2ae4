"""What a config file's `get_sweep()` may say, checked before anything is built."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from jtransformer.records import VerdictRule
from jtransformer.spec import SpecError
from jtransformer.sweep.factors import (
    Factor,
    Setting,
    grid,
    read_factors,
    read_setting,
    read_values,
)
from jtransformer.sweep.matching import Matching, read_matching
from jtransformer.sweep.parts import read_integer, read_parts
from jtransformer.sweep.search import (
    Extension,
    Search,
    read_extension,
    read_search,
)
from jtransformer.sweep.verdict import read_verdict

NEUTRAL = tuple(
    f"training.{name}"
    for name in (
        "log_every",
        "evaluate_every",
        "checkpoint_every",
        "evaluation_batch_size",
        "probe_steps",
    )
)
"""Settings that a run reports or is stored by; they move no final loss."""
METRICS = ("validation/nll",)


@dataclasses.dataclass(frozen=True)
class Declaration:
    """A sweep: factors whose effect is asked about, factors tuned per arm, and seeds.

    Attributes:
        scientific: Factors that make the arms, a full grid.
        nuisance: Factors that are tuned per arm on validation.
        seeds: Seeds that every setting is run with; they pair the arms. Empty takes the one of
            `get_config()`.
        match: How arms are made equal; None leaves them as they are.
        metric: What selects nuisance settings and is compared.
        baseline: Name of the arm to compare with; None takes the one equal to `get_config()`.
        arms: Named arms, each the settings that it replaces; each stands once at every point of
            the grid. Empty leaves the grid alone.
        scales: Named sizes or budgets, each the settings that it replaces; all arms stand at each
            and are compared within it. Empty asks once.
        search: How tuned settings are found.
        extend: Whether the tuned values are widened; None keeps them.
        verdict: By which rule the arms are judged.
    """

    scientific: tuple[Factor, ...] = ()
    nuisance: tuple[Factor, ...] = ()
    seeds: tuple[int, ...] = ()
    match: Matching | None = None
    metric: str = METRICS[0]
    baseline: str | None = None
    arms: dict[str, Setting] = dataclasses.field(default_factory=dict)
    scales: dict[str, Setting] = dataclasses.field(default_factory=dict)
    search: Search = Search()
    extend: Extension | None = None
    verdict: VerdictRule = VerdictRule()

    def tuned(self) -> set[str]:
        """Returns the settings that are tuned."""
        return {path for factor in self.nuisance for path in factor.paths}

    def declared(self) -> set[str]:
        """Returns every setting that the sweep gives values to, the seed left out."""
        factors = {path for factor in self.scientific for path in factor.paths}
        named = {path for delta in (*self.arms.values(), *self.scales.values()) for path in delta}
        return factors | named | self.tuned()


def read_declaration(value: Any) -> Declaration:
    """Reads what `get_sweep()` returned.

    Raises:
        SpecError: For an unknown key, a wrong type, or two statements that contradict.
    """
    given = read_parts("get_sweep()", value, Declaration)
    seeds = read_values("seeds", given["seeds"]) if "seeds" in given else ()
    for seed in seeds:
        read_integer("seeds", seed, minimum=0)
    metric = given.get("metric", METRICS[0])
    if metric not in METRICS:
        raise SpecError("metric", f"must be one of {', '.join(METRICS)}, got {metric!r}.")
    nuisance = read_factors("nuisance", given.get("nuisance", {}))
    search = read_search(given.get("search", {}), nuisance)
    extend = given.get("extend")
    declaration = Declaration(
        scientific=read_factors("scientific", given.get("scientific", {})),
        nuisance=nuisance,
        seeds=seeds,
        match=None if given.get("match") is None else read_matching(given["match"]),
        metric=metric,
        baseline=given.get("baseline"),
        arms=_named("arms", given["arms"]) if "arms" in given else {},
        scales=_named("scales", given["scales"]) if "scales" in given else {},
        search=search,
        extend=None if extend is None else read_extension(extend, search, nuisance),
        verdict=read_verdict(given.get("verdict", {})),
    )
    _check_number_of_arms(declaration)
    _check_roles(declaration)
    _check_conditions(declaration)
    return declaration


def _check_number_of_arms(declaration: Declaration) -> None:
    if not declaration.scientific and not declaration.arms:
        raise SpecError("scientific", "is empty; name at least one setting with two values, or "
                        "give named arms.")  # fmt: skip
    if len(grid(declaration.scientific)) * max(len(declaration.arms), 1) < 2:
        part = "scientific" if declaration.scientific else "arms"
        raise SpecError(
            part, "makes one arm; a comparison needs two, so give a second value or arm."
        )
    if len(declaration.scales) == 1:
        raise SpecError("scales", "has one scale; give a second, or set it in get_config().")


def _check_roles(declaration: Declaration) -> None:
    roles: dict[str, str] = {}
    for path, role in _settings_by_role(declaration):
        if path in NEUTRAL:
            raise SpecError(path, "changes no result, so it cannot make arms or be tuned.")
        # The scale gives the baseline its value, the match the other arms theirs.
        if path in roles and (roles[path], role) != ("scales", "match.by"):
            if roles[path] == role:
                raise SpecError(path, f"stands twice in {role}; name it once.")
            raise SpecError(path, f"is both {roles[path]} and {role}; it can be one of them.")
        roles[path] = role
    steps = "training.steps"
    if declaration.search.rungs and roles.get(steps) == "nuisance":
        raise SpecError(steps, "is both nuisance and what search.strategy 'halving' varies; it can "
                        "be one of them.")  # fmt: skip


def _settings_by_role(declaration: Declaration) -> Iterator[tuple[str, str]]:
    """Yields every setting with what it is for."""
    for role, factors in (
        ("scientific", declaration.scientific),
        ("nuisance", declaration.nuisance),
    ):
        for factor in factors:
            yield from ((path, role) for path in factor.paths)
    for role, deltas in (("arms", declaration.arms), ("scales", declaration.scales)):
        yield from ((p, role) for p in dict.fromkeys(p for d in deltas.values() for p in d))
    yield "seed", "seeds"
    if declaration.match:
        yield from ((path, "match.by") for path in declaration.match.solved)


def _check_conditions(declaration: Declaration) -> None:
    tuned = declaration.tuned()
    for factor in declaration.nuisance:
        for path in factor.when:
            if path in tuned or path == "seed":
                raise SpecError(
                    f"{factor.name}: when",
                    f"names {path}, which differs between the runs of one arm; name a setting that "
                    "makes arms.",
                )


def _named(role: str, value: Any) -> dict[str, Setting]:
    if not isinstance(value, Mapping) or not value:
        raise SpecError(role, "must map names to the settings that they replace, such as "
                        f"{{'wide': {{'model.width': 128}}}}, got {value!r}.")  # fmt: skip
    for name in value:
        if not isinstance(name, str) or not name.strip():
            raise SpecError(role, f"must have names that are strings and not blank, got {name!r}.")
    return {name: read_setting(f"{role}: {name}", delta) for name, delta in value.items()}
