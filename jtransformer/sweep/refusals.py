"""Sweeps that would mislead or repeat themselves, refused while they are planned."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jtransformer.spec import (
    RunSpec,
    SpecError,
    Tree,
    differences,
    get,
    unread_error,
    unread_settings,
)
from jtransformer.sweep.declaration import Declaration

SCORED = ("source", "tokenizer", "too_long", "malformed", "validation_fraction", "test_fraction")
"""What decides, beside the objective, which tokens a loss is a mean over."""


def refuse_unread(trees: list[Tree], touched: frozenset[str], inherited: frozenset[str]) -> None:
    """Refuses a changed setting that no arm reads; one that some arm reads has an effect."""
    unread = set.intersection(
        *(unread_settings(tree, touched=touched, inherited=inherited) for tree in trees)
    )
    if unread:
        raise unread_error(trees[0], min(unread))


def refuse_idle(name: str, delta: Iterable[str], trees: Sequence[Tree]) -> None:
    """Refuses a named arm or scale that replaces a setting which none of its runs reads."""
    own = frozenset(delta)
    unread = own.intersection(*(unread_settings(tree, touched=own) for tree in trees))
    if unread:
        error = unread_error(trees[0], min(unread))
        raise SpecError(f"{name}: {error.path}", error.problem)


def refuse_overruled(declaration: Declaration, tree: Tree, touched: frozenset[str]) -> None:
    """Refuses what the command line sets and the sweep replaces in every run."""
    overruled = {*declaration.tuned(), *(["seed"] if declaration.seeds else ())}
    if declaration.scales:
        overruled |= set.intersection(*map(set, declaration.scales.values()))
    if declaration.baseline is not None:  # Else a scientific setting chooses the baseline.
        overruled |= {path for factor in declaration.scientific for path in factor.paths}
        if declaration.arms:
            overruled |= set.intersection(*map(set, declaration.arms.values()))
    for path in sorted(overruled & touched):
        raise SpecError(path, f"= {get(tree, path)!r} would do nothing, because get_sweep() gives "
                        "its values; change them there.")  # fmt: skip


def refuse_identical(names: list[str], specs: list[RunSpec]) -> None:
    """Refuses two arms that are one."""
    for (a, left), (b, right) in itertools.combinations(zip(names, specs, strict=True), 2):
        if left == right or a == b:
            raise SpecError("scientific", f"makes two arms that are identical, {a!r} and {b!r}; "
                            "drop one of them.")  # fmt: skip


def refuse_undeclared(
    name: str, arm: Tree, baseline_name: str, baseline: Tree, declared: set[str]
) -> None:
    """Refuses an arm that differs from its baseline in a setting which it does not declare.

    A declared kind brings the settings of that kind with it.

    Args:
        name: Of the arm.
        arm: Its resolved settings.
        baseline_name: Of the baseline.
        baseline: Its resolved settings.
        declared: The paths that the arm gives a value or the match has solved for.
    """
    chosen = tuple(path.removesuffix("kind") for path in declared if path.endswith(".kind"))
    for path, (own, other) in differences(arm, baseline).items():
        if path not in declared and not path.startswith(chosen):
            raise SpecError(
                path,
                f"is {own!r} in the arm {name!r} and {other!r} in the baseline {baseline_name!r}, "
                "which is not declared, so their difference could be due to it; give the arm a "
                "value of its own for it, or make it nuisance.",
            )


def refuse_unequal_budgets(counts: Mapping[str, int]) -> None:
    """Refuses arms that are tuned over different numbers of settings."""
    if len(set(counts.values())) > 1:
        described = ", ".join(f"{count} for {name!r}" for name, count in counts.items())
        raise SpecError(
            "nuisance",
            f"gives the arms different numbers of settings ({described}), so that some are tuned "
            "harder; use search=dict(strategy='quasirandom', trials="
            f"{max(counts.values())}), with which every arm has as many.",
        )


def refuse_shared_identity(cells: Iterable[tuple[str, str]]) -> None:
    """Refuses two cells, each a fingerprint and a directory, that are one run."""
    seen: dict[str, str] = {}
    for identity, directory in cells:
        other = seen.setdefault(identity, directory)
        if other != directory:
            raise SpecError(
                "",
                f"Two runs of the sweep are identical: {other} and {directory}; "
                "drop one of the values that make no difference, or give the tuned setting a "
                "'when' that names the arms which read it.",
            )


def refuse_other_measures(specs: Iterable[RunSpec]) -> None:
    """Refuses runs that are asked different things: their losses could not be compared."""
    specs = list(specs)
    asked: dict[str, set[Any]] = {
        f"data.{field}": {getattr(spec.data, field) for spec in specs} for field in SCORED
    }
    asked["objective"] = {spec.objective for spec in specs}
    for path, values in asked.items():
        if len(values) > 1:
            raise SpecError(
                path,
                f"differs between runs ({', '.join(sorted(map(str, values)))}), so their losses "
                "would be of different tokens; keep it fixed and make one sweep per value.",
            )
