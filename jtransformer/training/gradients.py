"""The gradient of the mean loss of a batch: at once, or of its parts one after the other.

Parts are added up as sums, of losses over their scored tokens and of the gradients of these, and
divided by the scored tokens of the whole batch once. A mean of the parts' means would weigh a token
by how few others its part scores.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jtransformer import functional as F
from jtransformer.data import Batch

Sums = Callable[[Any, Batch, Array | None], F.CrossEntropy]
"""From parameters, rows and the key of each row's dropout to the sums of the loss."""


def mean_loss(sums: F.CrossEntropy) -> Float[Array, ""]:
    """Returns the mean loss of a scored token."""
    # Weights are 0 or 1: a batch that scores nothing has loss 0, and never 0 / 0.
    return sums.loss_sum / jnp.maximum(sums.weight_sum, 1.0)


def mean_gradient(
    sums_of: Sums,
    parameters: Any,
    batch: Batch,
    keys: Array | None,
    *,
    parts: int,
    axis: str | None = None,
) -> tuple[F.CrossEntropy, Any]:
    """Computes the sums of a batch and the gradient of its mean loss.

    Args:
        sums_of: The loss.
        parameters: Where the gradient is taken.
        batch: Its rows.
        keys: The key of each row's dropout; None drops nothing.
        parts: In how many parts it is read; memory holds the activations of one at a time.
        axis: The axis of `jax.pmap` over which other devices have the other rows of the batch;
            None is none.
    """
    if parts > 1 or axis is not None:
        sums, gradient = summed_gradient(sums_of, parameters, batch, keys, parts=parts)
        if axis is not None:
            sums, gradient = jax.lax.psum((sums, gradient), axis)
        weight = jnp.maximum(sums.weight_sum, 1.0)
        return sums, jax.tree.map(lambda x: x / weight.astype(x.dtype), gradient)

    def loss(parameters: Any) -> tuple[Array, F.CrossEntropy]:
        sums = sums_of(parameters, batch, keys)
        return mean_loss(sums), sums

    (_, sums), gradient = jax.value_and_grad(loss, has_aux=True)(parameters)
    return sums, gradient


def summed_gradient(
    sums_of: Sums, parameters: Any, batch: Batch, keys: Array | None, *, parts: int = 1
) -> tuple[F.CrossEntropy, Any]:
    """Computes the sums of a batch and the gradient of its summed loss, part by part.

    Part i of n has the rows i, i + n, i + 2n, …: of rows that lie on several devices in blocks,
    each device has its share in every part. Arguments are those of `mean_gradient`.
    """

    def loss(parameters: Any, rows: Batch, keys: Array | None) -> tuple[Array, F.CrossEntropy]:
        sums = sums_of(parameters, rows, keys)
        return sums.loss_sum, sums

    def one(rows: Batch, keys: Array | None) -> tuple[F.CrossEntropy, Any]:
        (_, sums), gradient = jax.value_and_grad(loss, has_aux=True)(parameters, rows, keys)
        return sums, gradient

    def added(total: Any, part: tuple[Batch, Array | None]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, one(*part)), None

    if parts == 1:
        return one(batch, keys)
    read = jax.tree.map(lambda x: _dealt(jnp.asarray(x), parts), (batch, keys))
    first = jax.tree.map(lambda x: x[0], read)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(one, *first))
    return jax.lax.scan(added, nothing, read)[0]


def row_keys(key: Array, rows: Int[Array, " B"]) -> Array:
    """Returns the key of each row.

    Args:
        key: The key of an update.
        rows: The number of each row in the whole batch, wherever it is computed.
    """
    return jax.vmap(jax.random.fold_in, (None, 0))(key, rows)


def _dealt(x: Array, parts: int) -> Array:
    """Deals rows out to the parts, one after the other; parts come first."""
    return jnp.swapaxes(x.reshape(x.shape[0] // parts, parts, *x.shape[1:]), 0, 1)
