"""Matches stored tensors with the parameters of a spec: each exactly once, by rules."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.interop.family import Family
from jtransformer.interop.files import DTYPES, Store
from jtransformer.interop.layouts import Shape
from jtransformer.interop.rules import Rule
from jtransformer.modules import build
from jtransformer.spec import ModelSpec, SpecError

SHOWN = 8
"""Tensors of each kind that an error names."""
OLD_NAMES = {".weight": ".gamma", ".bias": ".beta"}
"""How the norms of BERT's first checkpoints end."""


class Match(NamedTuple):
    """A rule and the stored tensors that it is about.

    Attributes:
        rule: The rule.
        names: Stored names: the first is read, the others must be equal to it.
    """

    rule: Rule
    names: tuple[str, ...]


def shapes_of(spec: ModelSpec) -> dict[str, Shape]:
    """Returns the shape of every parameter of a spec, by its path below "params"."""
    tokens = jnp.zeros((1, 1), jnp.int32)
    tree = jax.eval_shape(lambda key: build(spec).init(key, tokens), jax.random.key(0))
    return {path: tuple(leaf.shape) for path, leaf in flat(tree["params"]).items()}


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Returns the leaves of nested dicts by their paths, joined by "/"."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{above}/{name}" if above else name
        found |= flat(value, path) if isinstance(value, Mapping) else {path: value}
    return found


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested dicts of leaves by their paths; the inverse of `flat`."""
    tree: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *parents, name = path.split("/")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[name] = leaf
    return tree


def rules_of(family: Family, spec: ModelSpec, shapes: Mapping[str, Shape]) -> list[Rule]:
    """Returns the rules of a spec, which name each of its parameters once.

    Raises:
        SpecError: If the spec has parameters that the family has no names for.
    """
    rules = list(family.rules(spec))
    named = [path for rule in rules for path in rule.ours]
    assert len(named) == len(set(named)), "a parameter has two rules"
    assert set(named) <= set(shapes), f"not of the spec: {sorted(set(named) - set(shapes))}"
    unnamed = sorted(set(shapes) - set(named))
    if unnamed:
        raise SpecError(
            "", f"The family {family.name} has no tensors for {_listed(unnamed)} of this model."
        )
    return rules


def matched(
    family: Family, rules: Iterable[Rule], shapes: Mapping[str, Shape], store: Store
) -> list[Match]:
    """Finds the stored tensors of every rule; none is left over, missing or of another shape.

    Raises:
        SpecError: With all that is missing, left over, of another shape or no floating-point
            type.
    """
    stored = _stored_names(family, store)
    left = set(stored)
    matches, missing, wrong, typed = [], [], [], []
    for rule in rules:
        names = [name for name in (rule.theirs, *rule.copies) if name in stored]
        left.difference_update(names)
        if not names:
            missing.append(rule.theirs)
            continue
        expected = rule.layout.theirs([shapes[path] for path in rule.ours])
        for name in names:
            own = store.shapes[stored[name]]
            if own != expected:
                wrong.append(f"{name} {list(own)} instead of {list(expected)}")
            elif store.dtypes[stored[name]] not in DTYPES:
                typed.append(f"{name} ({store.dtypes[stored[name]]})")
        matches.append(Match(rule, tuple(stored[name] for name in names)))
    buffers = [re.compile(pattern) for pattern in family.buffers]
    extra = [name for name in left if not any(buffer.fullmatch(name) for buffer in buffers)]
    if missing or extra or wrong or typed:
        parts = (
            ("lacks", missing),
            ("has besides", extra),
            ("has other shapes of", wrong),
            ("has neither F64, F32, F16 nor BF16 in", typed),
        )
        said = "; ".join(f"{verb} {_listed(names)}" for verb, names in parts if names)
        raise SpecError(
            "",
            f"The checkpoint does not fit its config.json: it {said}. Each tensor must be there "
            f"once, as the family {family.name} has them.",
        )
    return matches


def _stored_names(family: Family, store: Store) -> dict[str, str]:
    """Returns stored names by the names that rules use, for older or headless checkpoints."""
    headless = family.prefix and not any(name.startswith(family.prefix) for name in store.shapes)
    found: dict[str, str] = {}
    for stored in store.shapes:
        name = stored
        for new, old in OLD_NAMES.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        if headless and not name.startswith("lm_head."):
            name = family.prefix + name
        if name in found:
            raise SpecError("", f"{stored} and {found[name]} are two names of one tensor.")
        found[name] = stored
    return found


def _listed(names: Iterable[str]) -> str:
    names = sorted(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


@dataclasses.dataclass(frozen=True)
class StoredLeaf:
    """A parameter that is still in a file.

    Attributes:
        shape: Its shape.
        match: The rule that it is a part of.
        shapes: Shapes of all parts.
        place: Which part it is.
        store: Where it is read from.
    """

    shape: Shape
    match: Match
    shapes: tuple[Shape, ...]
    place: int
    store: Store

    def read(self) -> np.ndarray:
        """Returns it, in the type in which it is stored.

        Raises:
            SpecError: If two names of its tensor hold different numbers, or what it holds are none.
        """
        return read_match(self.match, self.shapes, self.store)[self.place]


def stored_leaves(
    matches: Iterable[Match], shapes: Mapping[str, Shape], store: Store
) -> dict[str, StoredLeaf]:
    """Returns every parameter by its path, unread."""
    found = {}
    for match in matches:
        own = tuple(shapes[path] for path in match.rule.ours)
        for place, path in enumerate(match.rule.ours):
            found[path] = StoredLeaf(own[place], match, own, place, store)
    return found


def read_match(match: Match, shapes: Sequence[Shape], store: Store) -> list[np.ndarray]:
    """Reads the parameters of one rule.

    Raises:
        SpecError: If two names of its tensor hold different numbers, or what it holds are none.
    """
    first, *others = match.names
    array = store.read(first)
    # What overflows is told by the sentence, not by a warning.
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(array.astype(np.float32, copy=False))
    if not is_finite.all():
        raise SpecError(
            first,
            f"has {np.count_nonzero(~is_finite):,} of {array.size:,} numbers that are not finite "
            "in float32; get the weights again.",
        )
    for other in others:
        if not np.array_equal(array, store.read(other)):
            raise SpecError(
                "tie_word_embeddings",
                f"says that {first} and {other} are one tensor, and they differ; set it to "
                "false in config.json if they are two.",
            )
    return match.rule.layout.read(array, shapes)


def read_leaves(
    matches: Iterable[Match],
    shapes: Mapping[str, Shape],
    store: Store,
    convert: Callable[[np.ndarray], Any],
) -> Iterator[tuple[str, Any]]:
    """Yields parameters by path, tensor by tensor.

    Args:
        matches: What is read.
        shapes: Shapes of the parameters.
        store: Where it is read from.
        convert: What is made of each array; it must not keep it.

    Raises:
        SpecError: If two names of one tensor hold different numbers, or one holds none.
    """
    for match in matches:
        parts = read_match(match, [shapes[path] for path in match.rule.ours], store)
        for path, part in zip(match.rule.ours, parts, strict=True):
            yield path, convert(part)


def their_tensors(
    rules: Iterable[Rule], leaves: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields their tensors by name; copies are not written."""
    for rule in rules:
        yield rule.theirs, rule.layout.write([np.asarray(leaves[path]) for path in rule.ours])
