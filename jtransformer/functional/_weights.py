"""Weights of dot-product attention, and the read, on heads laid out for matrix products."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jtransformer.functional._arrays import statistics_dtype, with_rank


def softmax_weights(
    q: Array,
    k_BKHS: Array,
    *,
    mask: Array | None,
    bias: Array | None,
    scale: float | None,
    soft_cap: float | None,
) -> Array:
    """Computes the weights `B N T S` in at least float32."""
    H = q.shape[-1]
    scores_BNTS = per_group(jnp.swapaxes(q, 1, 2), k_BKHS, dtype=statistics_dtype(q))
    scores_BNTS = scores_BNTS * (1 / math.sqrt(H) if scale is None else scale)
    if soft_cap is not None:
        scores_BNTS = soft_cap * jnp.tanh(scores_BNTS / soft_cap)
    if bias is not None:
        scores_BNTS = scores_BNTS + bias.astype(scores_BNTS.dtype)
    return _masked_softmax(scores_BNTS, mask)


def read(weights_BNTS: Array, v_BKSV: Array) -> Array:
    """Reads the values with the weights: `B T N Hv` in the dtype of the values."""
    read_BNTV = per_group(weights_BNTS.astype(v_BKSV.dtype), v_BKSV)
    return jnp.swapaxes(read_BNTV, 1, 2)


def per_group(left_BNTX: Array, right_BKXY: Array, *, dtype: Any = None) -> Array:
    """Multiplies the rows of each head with the matrix of its group.

    The G heads of a group are stacked into the rows of one product, so no head is repeated in
    memory; with the heads before the positions both operands lie as the product needs them
    (1.03 to 1.13 times as fast on CPU as letting XLA transpose them).
    """
    B, N, T, X = left_BNTX.shape
    K = right_BKXY.shape[1]
    rows = left_BNTX.reshape(B, K, N // K * T, X)
    product = jnp.matmul(rows, right_BKXY, preferred_element_type=dtype)
    return product.reshape(B, N, T, right_BKXY.shape[3])


def fitted(x: Array, shape: tuple[int, ...], name: str) -> Array:
    """Gives a mask or bias four axes and checks that each is full or 1.

    Raises:
        ValueError: If an axis of `x` is neither that of `shape` nor 1.
    """
    axes = x.shape if x.ndim == 4 else (1, 1, *x.shape) if x.ndim == 2 else ()
    if not axes or any(have not in (1, want) for have, want in zip(axes, shape, strict=True)):
        raise ValueError(
            f"{name} must have the axes T S or B N T S, each full or 1, got {name}.shape={x.shape} "
            f"for B, N, T, S = {shape}."
        )
    return with_rank(x, 4)


# The rule of the softmax needs its output alone: hidden keys and rows without any visible key
# are zero there, so their gradients are exact zeros and no 0/0 is differentiated.
@jax.custom_jvp
def _masked_softmax(scores: Array, mask: Array | None) -> Array:
    """Softmax over the last axis of the visible scores; all zeros where none is visible."""
    lowest = float(jnp.finfo(scores.dtype).min)
    if mask is not None:
        scores = jnp.where(mask, scores, lowest)
    # `initial` keeps the maximum finite where a bias of -inf hides a whole row.
    highest = jnp.max(scores, axis=-1, keepdims=True, initial=lowest)
    exponentials = jnp.exp(scores - highest)
    if mask is not None:
        exponentials = jnp.where(mask, exponentials, 0)
    total = jnp.sum(exponentials, axis=-1, keepdims=True)
    return exponentials / jnp.where(total == 0, 1, total)


@_masked_softmax.defjvp
def _masked_softmax_jvp(primals, tangents):
    weights = _masked_softmax(*primals)
    scores_dot = tangents[0]
    mean_dot = jnp.sum(weights * scores_dot, axis=-1, keepdims=True)
    return weights, weights * (scores_dot - mean_dot)
