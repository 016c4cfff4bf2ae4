"""Sweeps that would mislead or repeat themselves, refused while they are planned."""

import itertools
from collections.abc import Iterable

from jtransformer.spec import RunSpec, SpecError, Tree, get, unread_error, unread_settings
from jtransformer.sweep.declaration import Declaration


def refuse_unread(trees: list[Tree], touched: frozenset[str], inherited: frozenset[str]) -> None:
    """Refuses a changed setting that no arm reads; one that some arm reads has an effect."""
    unread = set.intersection(
        *(unread_settings(tree, touched=touched, inherited=inherited) for tree in trees)
    )
    if unread:
        raise unread_error(trees[0], min(unread))


def refuse_overruled(declaration: Declaration, tree: Tree, touched: frozenset[str]) -> None:
    """Refuses what the command line sets and the sweep replaces in every run."""
    overruled = {*declaration.nuisance, *(["seed"] if declaration.seeds else ())}
    if declaration.baseline is not None:  # Else a scientific setting chooses the baseline.
        overruled |= declaration.scientific.keys()
    for path in sorted(overruled & touched):
        raise SpecError(path, f"= {get(tree, path)!r} would do nothing, because get_sweep() gives "
                        "its values; change them there.")  # fmt: skip


def refuse_identical(names: list[str], specs: list[RunSpec]) -> None:
    """Refuses two arms that are one."""
    for (a, left), (b, right) in itertools.combinations(zip(names, specs, strict=True), 2):
        if left == right or a == b:
            raise SpecError("scientific", f"makes two arms that are identical, {a!r} and {b!r}; "
                            "drop one of them.")  # fmt: skip


def refuse_shared_identity(cells: Iterable[tuple[str, str]]) -> None:
    """Refuses two cells, each a fingerprint and a directory, that are one run."""
    seen: dict[str, str] = {}
    for identity, directory in cells:
        other = seen.setdefault(identity, directory)
        if other != directory:
            raise SpecError(
                "",
                f"Two runs of the sweep are identical: {other} and {directory}; "
                "drop one of the values that make no difference.",
            )


def refuse_other_measures(specs: Iterable[RunSpec]) -> None:
    """Refuses runs that are scored on different bytes: their losses could not be compared."""
    for field in ("source", "validation_fraction", "test_fraction"):
        values = {getattr(spec.data, field) for spec in specs}
        if len(values) > 1:
            raise SpecError(
                f"data.{field}",
                f"differs between runs ({', '.join(sorted(map(str, values)))}), so they would be "
                "scored on different bytes; keep it fixed and make one sweep per value.",
            )
