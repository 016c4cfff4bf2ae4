"""Which parameters are matrices, and as which matrix each is seen.

A projection into or out of attention heads is kept as [D, N, H] or [N, H, D], and a scanned
stack has its layers as a leading axis. A rule that reads the shape of a parameter must see
[D, N H] and [N H, D], one layer at a time, or a run would depend on how its parameters are
stored.
"""

import math
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array

from jtransformer.modules.initial import LAYER, STACKED

DECAYED = ("kernel", "table")
"""Names of parameters that are matrices by role; norms and biases are never decayed."""
OUTPUT = "out"
"""The module whose kernel sums over all its axes but the last: heads and their width."""


class Axes(NamedTuple):
    """The axes of a parameter that make up its matrix; the others count layers.

    Attributes:
        rows: Axes that the product sums over.
        columns: Axes of its result.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]


def decayed(parameters: Any) -> Any:
    """Returns the tree of whether a parameter is decayed, by its role."""
    return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key in DECAYED, parameters)


def is_stacked(path: Any) -> bool:
    """Whether a parameter holds all layers of a stack on its first axis."""
    return any(entry.key == STACKED for entry in path)


def layer_matrix(path: Any, rank: int) -> Axes | None:
    """Returns the axes of a matrix of a layer; None for every other parameter.

    Tables, heads, norms and biases are none, wherever they stand.
    """
    in_layer = any(entry.key == STACKED or entry.key.startswith(LAYER) for entry in path)
    first = int(is_stacked(path))
    if not in_layer or path[-1].key != "kernel" or rank - first < 2:
        return None
    return _axes(path, first, rank)


def leaf_by_leaf(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Applies a transformation to each matrix by itself, so that it sees one layer's alone.

    What is no matrix reaches it as a vector.

    Args:
        inner: Must not let one parameter influence another.
    """

    def init(params: Any) -> Any:
        def of_leaf(path: Any, leaf: Array) -> Any:
            return _each_layer(path, inner.init)(_viewed(path, leaf))

        return jax.tree_util.tree_map_with_path(of_leaf, params)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        def of_leaf(path: Any, leaf: Array, own: Any, parameter: Array) -> tuple[Array, Any]:
            views = _viewed(path, leaf), own, _viewed(path, parameter)
            changed, own = _each_layer(path, inner.update)(*views)
            return changed.reshape(leaf.shape), own

        both = jax.tree_util.tree_map_with_path(of_leaf, updates, state, params)
        changed = jax.tree.map(lambda _, pair: pair[0], updates, both)
        return changed, jax.tree.map(lambda _, pair: pair[1], updates, both)

    return optax.GradientTransformation(init, update)


def _each_layer(path: Any, function: Any) -> Any:
    return jax.vmap(function) if is_stacked(path) else function


def _viewed(path: Any, leaf: Array) -> Array:
    """Reshapes a parameter to [rows, columns], or to a vector, behind a leading axis of layers."""
    first = int(is_stacked(path))
    layers = leaf.shape[:first]
    if path[-1].key not in DECAYED or leaf.ndim - first < 2:
        return leaf.reshape(*layers, math.prod(leaf.shape[first:]))
    sizes = [math.prod(leaf.shape[axis] for axis in axes) for axes in _axes(path, first, leaf.ndim)]
    return leaf.reshape(*layers, *sizes)


def _axes(path: Any, first: int, rank: int) -> Axes:
    # An output projection [N, H, D] and a table of several axes end with their columns.
    ends_with_columns = path[-1].key == "table" or path[-2].key == OUTPUT
    columns = rank - 1 if ends_with_columns else first + 1
    return Axes(tuple(range(first, columns)), tuple(range(columns, rank)))
