"""What a hypothesis is, and what those that follow have in common."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jtransformer.diff.ours import Ours

ATTENTIONS = ("attention", "cross_attention")


class Hypothesis(NamedTuple):
    """A convention that the other side may have: the same model of ours, changed to it.

    Attributes:
        kind: What differs, such as "rope pairing".
        words: What is changed, for a sentence that begins so: "with interleaved pairing".
        starts: The first place inside a layer or a stack that it changes; empty is any.
        changed: Our model with that change.
        layer: The first layer that it changes, where it changes one alone.
    """

    kind: str
    words: str
    starts: str
    changed: Ours
    layer: int | None = None


Found = Iterator[Hypothesis]


def of_changes(kind: str, starts: str, ours: Ours, changes: dict[str, dict[str, Any]]) -> Found:
    """Yields a hypothesis for each change of spec fields that the other fields allow.

    Args:
        kind: What differs.
        starts: The first place that it changes.
        ours: The model.
        changes: Fields of the spec, by the words for them.
    """
    for words, fields in changes.items():
        changed = ours.respecified(**fields)
        if changed is not None and changed.spec != ours.spec:
            yield Hypothesis(kind, words, starts, changed)


def edited(
    ours: Ours, edit: Callable[[dict[str, Any]], dict[str, Any]], layer: int | None = None
) -> Ours:
    """Returns a model whose layers have other parameters.

    Args:
        ours: The model.
        edit: Maps the parameters of a layer, a tree by name, to other ones.
        layer: The one layer that is changed, in each stack; None is all.
    """

    def below(tree: dict[str, Any]) -> dict[str, Any]:
        found = dict(tree)
        for name, branch in tree.items():
            if name in ("encoder", "decoder"):
                found[name] = below(branch)
            elif name.startswith("layer_") and layer in (None, int(name.removeprefix("layer_"))):
                found[name] = edit(dict(branch))
        return found

    return ours.but(variables={"params": below(ours.variables["params"])})


def within(
    ours: Ours,
    module: str,
    edit: Callable[[dict[str, Any]], dict[str, Any]],
    layer: int | None = None,
) -> Ours:
    """Returns a model in whose layers one module has other parameters.

    Args:
        ours: The model.
        module: Its name in a layer, such as "ffn"; layers without it stay.
        edit: Maps its parameters, a tree by name, to other ones.
        layer: The one layer that is changed; None is all.
    """

    def in_layer(tree: dict[str, Any]) -> dict[str, Any]:
        return tree | {module: edit(dict(tree[module]))} if module in tree else tree

    return edited(ours, in_layer, layer)


def at_top(ours: Ours, **branches: Any) -> Ours:
    """Returns a model with other parameters outside the layers; None takes a branch away."""
    tree = {**ours.variables["params"], **branches}
    return ours.but(variables={"params": {k: v for k, v in tree.items() if v is not None}})


def stacks(ours: Ours) -> list[dict[str, Any]]:
    """Returns the parameters of each stack."""
    tree = ours.variables["params"]
    return [tree[name] for name in ("encoder", "decoder") if name in tree] or [tree]


def modules_in(ours: Ours, module: str) -> list[dict[str, Any]]:
    """Returns the parameters of a module of the layers, layer by layer."""
    return [
        layer[module]
        for stack in stacks(ours)
        for name, layer in stack.items()
        if name.startswith("layer_") and module in layer
    ]


def first_normed(ours: Ours) -> str:
    """Returns the first place that the model's norms change."""
    spec = ours.spec
    if spec.embedding_norm:
        return "embedded"
    if "norm_in" in spec.norm_slots:
        return "attention/input"
    return "attention/stream" if spec.sublayers == "sequential" else "stream"


def cast(ours: Ours, dtype: str) -> Any:
    """Returns the parameters in another floating-point type."""
    return jax.tree.map(lambda x: x.astype(jnp.dtype(dtype)), ours.variables)
