"""From a declaration to arms: every point of the grid and every named arm, at every scale."""

import dataclasses
import itertools
from collections.abc import Sequence

from jtransformer.spec import (
    RunSpec,
    SpecError,
    Tree,
    from_tree,
    get,
    nearest,
    prune,
    replace,
    to_tree,
)
from jtransformer.sweep.declaration import Declaration
from jtransformer.sweep.factors import Setting, grid, is_read
from jtransformer.sweep.matching import NOTHING, match_arm, mismatches
from jtransformer.sweep.refusals import refuse_identical, refuse_undeclared


@dataclasses.dataclass(frozen=True)
class Arm:
    """One setting of the scientific factors, at one scale.

    Attributes:
        name: Its values, joined; unique in the sweep.
        scale: The scale that it stands at; None where there are none.
        factors: The scientific settings; of named arms, what it has of all settings that any of
            them replaces.
        matched: What the match solved for; empty for the baseline.
        spec: The run with the nuisance settings and seed of the config file.
        mismatches: (arm - baseline) / baseline of every quantity that can be matched.
        residual: That of the one which is held equal; of parameters where none is.
        tree: The settings of all kinds that its runs start from.
        baseline: The arm that it is compared with.
    """

    name: str
    scale: str | None
    factors: Setting
    matched: Setting
    spec: RunSpec
    mismatches: dict[str, float | None]
    residual: float
    tree: Tree
    baseline: str


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An arm before anything is known of it but its settings.

    Attributes:
        label: What it is called within its scale.
        named: Its name among the named arms; None where there are none.
        scale: As in `Arm`.
        point: Its values of the grid.
        delta: What its name replaces.
        tree: All of its settings.
    """

    label: str
    named: str | None
    scale: str | None
    point: Setting
    delta: Setting
    tree: Tree

    @property
    def name(self) -> str:
        return self.label if self.scale is None else f"{self.scale}-{self.label}"


def candidates(tree: Tree, declaration: Declaration) -> list[Candidate]:
    """Lists the arms, scale by scale; nothing is resolved yet."""
    found = []
    points = grid(declaration.scientific)
    named: list[tuple[str | None, Setting]] = list(declaration.arms.items()) or [(None, {})]
    scales: list[tuple[str | None, Setting]] = list(declaration.scales.items()) or [(None, {})]
    for (scale, size), point, (name, delta) in itertools.product(scales, points, named):
        label = "-".join(filter(None, [name_of(point), name]))
        changes = {**size, **point, **delta}
        found.append(Candidate(label, name, scale, point, delta, replace(tree, changes)))
    return found


def resolve_arms(
    tree: Tree, declaration: Declaration, found: Sequence[Candidate]
) -> tuple[tuple[Arm, ...], str]:
    """Resolves the arms and makes those of each scale equal to its baseline.

    Returns:
        The arms, and the name of the baseline within its scale.

    Raises:
        SpecError: If an arm cannot be, two are one, none is the baseline, or one differs from
            the baseline in a setting that is not declared.
    """
    names, resolved = [one.name for one in found], [from_tree(prune(one.tree)) for one in found]
    refuse_identical(names, resolved)
    specs = dict(zip(names, resolved, strict=True))
    baseline = _baseline(declaration, tree, found)
    by_scale = {one.scale: one for one in found if one.label == baseline}
    arms = tuple(
        _arm(one, specs[one.name], by_scale[one.scale], specs, declaration) for one in found
    )
    trees = {arm.name: to_tree(arm.spec) for arm in arms}
    for one, arm in zip(found, arms, strict=True):
        known = {*one.point, *one.delta, *arm.matched}
        refuse_undeclared(arm.name, trees[arm.name], arm.baseline, trees[arm.baseline], known)
    return arms, baseline


def name_of(setting: Setting) -> str:
    """Joins the values; a value that says nothing alone is named after its setting."""
    words = [
        value if isinstance(value, str) else f"{leaf(path)}={value}"
        for path, value in setting.items()
    ]
    return "-".join(words)


def leaf(path: str) -> str:
    """Returns the word of a path that tells what it is."""
    parts = path.split(".")
    return parts[-2] if parts[-1] == "kind" and len(parts) > 1 else parts[-1]


def _baseline(declaration: Declaration, tree: Tree, found: Sequence[Candidate]) -> str:
    labels = list(dict.fromkeys(one.label for one in found))
    if declaration.baseline is not None:
        if declaration.baseline not in labels:
            raise SpecError("baseline", f"= {declaration.baseline!r} is not an arm; "
                            f"{nearest(str(declaration.baseline), labels)}.")  # fmt: skip
        return declaration.baseline
    for one in found:
        changes = {**one.point, **one.delta}
        if all(get(tree, path) == value for path, value in changes.items()):
            return one.label
    paths = dict.fromkeys(path for one in found for path in {**one.point, **one.delta})
    configured = {path: get(tree, path) for path in paths}
    where = "grid" if declaration.scientific else "arms"
    raise SpecError(
        "baseline",
        f"is missing: no arm equals get_config(), which has {configured}; add those values to the "
        f"{where} or name an arm, one of {', '.join(labels)}.",
    )


def _arm(
    one: Candidate,
    spec: RunSpec,
    baseline: Candidate,
    specs: dict[str, RunSpec],
    declaration: Declaration,
) -> Arm:
    matched: Setting = {}
    reference, rule = specs[baseline.name], declaration.match
    if rule and one.name != baseline.name:
        spec, matched = match_arm(one.name, spec, reference, rule)
    unequal = mismatches(spec, reference)
    equal = rule.equal if rule and rule.equal != NOTHING else "parameters"
    return Arm(
        name=one.name,
        scale=one.scale,
        factors=_factors(one, declaration),
        matched=matched,
        spec=spec,
        mismatches=unequal,
        residual=unequal[equal] or 0.0,
        tree=replace(one.tree, matched),
        baseline=baseline.name,
    )


def _factors(one: Candidate, declaration: Declaration) -> Setting:
    """Returns the grid's values and, of what the named arms replace, all that this arm reads."""
    read = prune(one.tree)
    named = dict.fromkeys(path for delta in declaration.arms.values() for path in delta)
    return one.point | {path: get(read, path) for path in named if is_read(read, path)}
