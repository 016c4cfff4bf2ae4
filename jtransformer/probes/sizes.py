"""Sizes by layer: of a gradient, of an update beside the weights, of any tree of the parameters.

Sources: the gradient of the last feed-forward matrix by depth, Xiong et al. 2020, sec. 3.3,
https://arxiv.org/abs/2002.04745.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jtransformer.modules.apart import looped
from jtransformer.modules.initial import LAYER
from jtransformer.modules.layers import at_least_float32
from jtransformer.modules.parts import Part
from jtransformer.probes.sites import layers_of, prefix_of, stacks_of, sublayers_of
from jtransformer.spec import ModelSpec

Loss = Callable[[Any], Float[Array, ""]]
"""The loss that a run minimises on one batch, as a function of the parameters alone."""


class ByLayer(NamedTuple):
    """One number for each layer and group of parameters.

    Attributes:
        stacks: By stack and group, one number per layer. Groups are "layer" (all of it), each
            sublayer (its matrices and biases, its norms, its branch factor) and "ffn_last" (the
            matrix that writes the feed-forward network's output). A norm that sublayers share
            is the first one's; that of the memory belongs to cross-attention.
        outside: By name, one number for what lies in no layer, such as "embedding".
    """

    stacks: dict[str, dict[str, Float[Array, " L"]]]
    outside: dict[str, Float[Array, ""]]


def groups_of(part: Part) -> tuple[str, ...]:
    """Returns the groups of a layer's parameters."""
    return ("layer", *sublayers_of(part), "ffn_last")


def norms(model: ModelSpec, tree: Any) -> ByLayer:
    """Computes Euclidean norms of a tree with the structure of a model's parameters.

    Args:
        model: The model.
        tree: Its parameters, their gradient or their change.

    Returns:
        The norms, in at least float32.
    """
    _, tree = looped(model, tree)
    stacks: dict[str, dict[str, Array]] = {}
    outside: dict[str, Any] = {}
    last = "down" if model.gated else "out"
    for stack, part in stacks_of(model).items():
        found = defaultdict(list)
        for own in layers_of(part, tree):
            found["layer"].append(_norm(own))
            for sublayer in sublayers_of(part):
                found[sublayer].append(_norm(_owned(own, sublayer)))
            found["ffn_last"].append(_norm(own["ffn"][last]["kernel"]))
        stacks[stack] = {group: jnp.stack(values) for group, values in found.items()}
        beside = tree[part.scope] if part.scope else tree
        outside |= {
            f"{prefix_of(part)}{name}": value
            for name, value in beside.items()
            if not name.startswith(LAYER)
        }
    scopes = {part.scope for part in stacks_of(model).values()} - {""}
    if scopes:
        outside |= {name: value for name, value in tree.items() if name not in scopes}
    return ByLayer(stacks, {name: _norm(outside[name]) for name in sorted(outside)})


def gradient_norms(model: ModelSpec, parameters: Any, loss: Loss) -> ByLayer:
    """Computes the norm of the loss's gradient by layer.

    Cost: one gradient.

    Args:
        model: The model.
        parameters: Where the gradient is taken.
        loss: What is differentiated.
    """
    return norms(model, jax.grad(loss)(parameters))


def update_ratios(model: ModelSpec, before: Any, after: Any) -> ByLayer:
    """Computes how far an update moved the parameters, relative to their size, by layer.

    `|after - before| / |before|`; NaN where `before` is 0.

    Args:
        model: The model.
        before: Its parameters before the update.
        after: Its parameters after it.
    """
    moved = norms(model, jax.tree.map(jnp.subtract, after, before))
    return jax.tree.map(_ratio, moved, norms(model, before))


def _owned(layer: Mapping[str, Any], sublayer: str) -> Any:
    """Returns the parameters of a layer that belong to a sublayer."""
    also = "memory_norm" if sublayer == "cross_attention" else sublayer
    return {name: value for name, value in layer.items() if name.startswith((sublayer, also))}


def _norm(tree: Any) -> Float[Array, ""]:
    """Returns the Euclidean norm of all entries; squares neither over- nor underflow."""
    leaves = [x.astype(at_least_float32(x.dtype)) for x in jax.tree.leaves(tree)]
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(x)) for x in leaves]))
    unit = jnp.where(largest > 0, largest, 1)
    square = sum(jnp.sum(jnp.square(x / unit)) for x in leaves)
    return largest * jnp.sqrt(square)


def _ratio(moved: Array, size: Array) -> Array:
    return jnp.where(size > 0, moved / jnp.where(size > 0, size, 1), jnp.nan)
