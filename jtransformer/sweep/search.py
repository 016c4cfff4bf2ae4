"""How the settings that each arm is tuned over are found, the same for every arm.

A grid tries every combination. The other strategies draw: each draw is a value of every tuned
factor, and every arm takes the same draws, of each the factors that it has. So no arm is tuned
harder than another, and a conditional factor costs the others nothing.

"quasirandom" draws from a scrambled Halton sequence, which leaves smaller gaps than independent
draws do (Bergstra and Bengio 2012, sec. 4, https://jmlr.org/papers/v13/bergstra12a.html).
"halving" gives all settings a short run, one in `keep` of them a run `keep` times as long, and so
on (Jamieson and Talwalkar 2016, https://arxiv.org/abs/1502.07943). Unlike there, each run of a
rung starts anew, so that its schedule ends with it.
"""

import dataclasses
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from jtransformer.spec import SpecError, Tree
from jtransformer.sweep.factors import Factor, Range, Setting, grid
from jtransformer.sweep.parts import read_integer, read_parts

STRATEGIES = ("grid", "random", "quasirandom", "halving")
DIGITS = 3
"""Significant digits of a drawn number: it stands in the name of a directory."""
TRIES = 100
"""Draws per trial before it is said that there are no more distinct settings."""


@dataclasses.dataclass(frozen=True)
class Search:
    """How tuned settings are found.

    Attributes:
        strategy: One of `STRATEGIES`.
        trials: How many settings are drawn; None takes the grid of all values.
        seed: Of the draws; it has nothing to do with the seeds of the runs.
        rungs: How often the settings are run, the last time for all of `training.steps`.
        keep: One in so many settings goes on to the next rung, with so many times the steps.
    """

    strategy: str = "grid"
    trials: int | None = None
    seed: int | None = None
    rungs: int | None = None
    keep: int | None = None


@dataclasses.dataclass(frozen=True)
class Extension:
    """Whether the values of a factor are widened where an arm's best one lies at their edge.

    Attributes:
        most: Values that are added on each side at most.
    """

    most: int


def read_search(value: Any, factors: Sequence[Factor]) -> Search:
    """Reads the "search" part of a declaration.

    Raises:
        SpecError: For an unknown part, one that the strategy does not read, or a missing one.
    """
    given = read_parts("search", value, Search)
    strategy = given.setdefault("strategy", "grid")
    if strategy not in STRATEGIES:
        raise SpecError("search.strategy", f"must be one of {', '.join(STRATEGIES)}, got "
                        f"{strategy!r}.")  # fmt: skip
    needed = {"grid": (), "halving": ("rungs", "keep")}.get(strategy, ("trials",))
    allowed = {*needed, *(("trials", "seed") if strategy != "grid" else ()), "strategy"}
    for name in needed:
        if name not in given:
            raise SpecError(f"search.{name}", f"is missing; strategy {strategy!r} needs it.")
    for name in given:
        if name not in allowed:
            raise SpecError(f"search.{name}", f"would do nothing with strategy {strategy!r}; "
                            "leave it out.")  # fmt: skip
    for name, least in (("trials", 2), ("seed", 0), ("rungs", 2), ("keep", 2)):
        if name in given:
            read_integer(f"search.{name}", given[name], minimum=least)
    if "seed" in given and "trials" not in given:
        raise SpecError("search.seed", "would do nothing without trials; leave it out.")
    if strategy != "grid" and not factors:
        raise SpecError("search.strategy", f"= {strategy!r} has nothing to search; name settings "
                        "in nuisance.")  # fmt: skip
    if "trials" in given:
        given.setdefault("seed", 0)
    else:
        _refuse_ranges(factors)
    return Search(**given)


def read_extension(value: Any, search: Search, factors: Sequence[Factor]) -> Extension:
    """Reads the "extend" part of a declaration.

    Raises:
        SpecError: For an unknown part, or a sweep whose arms could not be extended alike.
    """
    given = read_parts("extend", value, Extension)
    if "most" not in given:
        raise SpecError("extend.most", "is missing; for example extend=dict(most=2).")
    read_integer("extend.most", given["most"], minimum=1)
    if search.strategy != "grid":
        raise SpecError("extend", f"needs a grid of values, and search.strategy is "
                        f"{search.strategy!r}; give a wider range instead.")  # fmt: skip
    for factor in factors:
        if factor.when:
            raise SpecError("extend", "would give some arms more settings than others, because "
                            f"{factor.name} has a 'when'; leave one out.")  # fmt: skip
    if not any(is_extendable(factor) for factor in factors):
        raise SpecError(
            "extend", "would do nothing: no setting in nuisance has two numbers or more."
        )
    return Extension(**given)


def is_extendable(factor: Factor) -> bool:
    """Says whether a factor has an edge: two listed numbers or more of one setting."""
    values = [value for level in factor.values for value in level]
    numbers = all(type(value) in (int, float) for value in values)
    return len(factor.paths) == 1 and len(values) > 1 and numbers


def active(factors: Sequence[Factor], tree: Tree) -> tuple[Factor, ...]:
    """Returns the factors that an arm with these settings has."""
    return tuple(factor for factor in factors if factor.holds(tree))


def project(settings: Sequence[Setting], factors: Sequence[Factor]) -> list[Setting]:
    """Returns what settings of all factors are for an arm that has some, each once."""
    paths = [path for factor in factors for path in factor.paths]
    kept: list[Setting] = []
    for setting in settings:
        own = {path: setting[path] for path in paths}
        if own not in kept:
            kept.append(own)
    return kept


def settings_of(
    search: Search,
    factors: Sequence[Factor],
    arms: Sequence[tuple[Factor, ...]],
    drawn: Sequence[Setting] = (),
) -> tuple[Setting, ...]:
    """Returns the settings of all factors that every arm is tuned over.

    Args:
        search: How they are found.
        factors: What is tuned.
        arms: The factors of each arm.
        drawn: What was drawn before, which stays.

    Raises:
        SpecError: If there are fewer distinct settings for an arm than trials.
    """
    if search.trials is None:
        return tuple(grid(factors))
    spaces = list(dict.fromkeys(tuple(f.paths for f in own) for own in arms))
    seen: list[set[tuple[Any, ...]]] = [set() for _ in spaces]
    found: list[Setting] = []
    for setting in _draws(search, factors, drawn):
        keys = [tuple(setting[path] for paths in space for path in paths) for space in spaces]
        # Two draws that are one setting for some arm would give it a smaller budget.
        if any(key in known for key, known in zip(keys, seen, strict=True)):
            continue
        for key, known in zip(keys, seen, strict=True):
            known.add(key)
        found.append(setting)
        if len(found) == search.trials:
            return tuple(found)
    least = min(spaces, key=len)
    tuned = ", ".join(path for paths in least for path in paths) or "nothing"
    raise SpecError("search.trials", f"= {search.trials}, but an arm that tunes {tuned} has no "
                    f"more than {len(found)} distinct settings; give a wider range or fewer "
                    "trials.")  # fmt: skip


def _draws(
    search: Search, factors: Sequence[Factor], drawn: Sequence[Setting]
) -> Iterator[Setting]:
    yield from drawn
    assert search.trials is not None and search.seed is not None
    for point in _points(search, len(factors), TRIES * search.trials):
        setting: Setting = {}
        for factor, at in zip(factors, point, strict=True):
            if factor.between is not None:
                setting[factor.paths[0]] = _within(factor.between, at)
            else:
                values = factor.values[int(at * len(factor.values))]
                setting |= zip(factor.paths, values, strict=True)
        yield setting


def _points(search: Search, dimensions: int, most: int) -> Iterator[Sequence[float]]:
    """Yields points of the unit cube, each coordinate at least 0 and less than 1."""
    assert search.seed is not None and search.trials is not None
    if search.strategy == "random":
        generator = random.Random(search.seed)
        for _ in range(most):
            yield [generator.random() for _ in range(dimensions)]
        return
    from scipy.stats import qmc

    sequence = qmc.Halton(dimensions, scramble=True, rng=search.seed)
    for _ in range(most // search.trials):
        yield from sequence.random(search.trials).tolist()


def _within(between: Range, at: float) -> int | float:
    low, high = between.low, between.high
    if between.scale == "log":
        value = math.exp(math.log(low) + at * (math.log(high) - math.log(low)))
    else:
        value = low + at * (high - low)
    if isinstance(low, int) and isinstance(high, int):
        return min(max(round(value), low), high)
    if between.scale == "log":
        value = rounded(value)
    else:
        value = round(value, DIGITS - math.ceil(math.log10(high - low)))
    return min(max(value, float(low)), float(high))


def rounded(value: float) -> float:
    """Rounds to the digits that a directory's name has room for."""
    return float(f"{value:.{DIGITS}g}")


def _refuse_ranges(factors: Sequence[Factor]) -> None:
    for factor in factors:
        if factor.between is not None:
            raise SpecError(factor.name, "has a range, of which a grid takes no values; list them, "
                            "or use search=dict(strategy='quasirandom', trials=8).")  # fmt: skip
