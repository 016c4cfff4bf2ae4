"""Random mixtures of all that a model returns: one number that has no reason to stay still."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def mixture(generator: np.random.Generator, call: Callable[..., Any], *given: Any) -> list[Any]:
    """Draws a weight for every number that a function returns.

    Args:
        generator: Draws them; the first array that is returned gets the same ones, whatever
            follows it.
        call: The function.
        *given: Arguments of the shapes that it will have.
    """
    shapes = jax.tree.leaves(jax.eval_shape(call, *given))
    return [jnp.asarray(generator.normal(size=shape.shape)) for shape in shapes]


def mixed(call: Callable[..., Any]) -> Callable[..., Any]:
    """Makes `(weights, *arguments) -> sum of weights * outputs` of a function."""

    def scalar(weights: list[Any], *arguments: Any) -> Any:
        leaves = jax.tree.leaves(call(*arguments))
        total = jnp.zeros((), jnp.promote_types(leaves[0].dtype, jnp.float32))
        for leaf, weight in zip(leaves, weights, strict=True):
            total += jnp.sum(leaf.astype(total.dtype) * weight.astype(total.dtype))
        return total

    return scalar


def logits_of(outputs: Any) -> Any:
    """Returns the first array of what a model returns."""
    return jax.tree.leaves(outputs)[0]
