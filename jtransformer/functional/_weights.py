"""Weights of dot-product attention, and the read, on heads laid out for matrix products."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jtransformer.functional._arrays import statistics_dtype, with_rank
from jtransformer.functional.visibility import Visibility


def check_heads(q: Array, k: Array, v: Array | None = None) -> tuple[int, int, int, int]:
    """Returns the shape `B N T S` of the scores.

    Raises:
        ValueError: If queries, keys and values do not fit.
    """
    if v is not None and v.shape[:3] != k.shape[:3]:
        raise ValueError(
            f"k and v must agree in all axes but the last, got k.shape={k.shape}, "
            f"v.shape={v.shape}."
        )
    B, T, N, H = q.shape
    _, S, K, _ = k.shape
    if k.shape != (B, S, K, H):
        raise ValueError(
            f"q and k must agree in batch and head width, got q.shape={q.shape}, k.shape={k.shape}."
        )
    if K == 0 or N % K:
        raise ValueError(
            f"The query heads must be a multiple of the key heads, got N={N}, K={K}; "
            f"use a K out of {[heads for heads in range(1, N + 1) if N % heads == 0]}."
        )
    return B, N, T, S


def silenced(x_BSKH: Array, mask: Array | Visibility | None) -> Array:
    """Zeroes keys or values of padding: their weight is 0, but 0 times NaN is NaN."""
    if not isinstance(mask, Visibility) or mask.key_valid is None:
        return x_BSKH
    return jnp.where(mask.key_valid[:, :, None, None], x_BSKH, 0)


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
    scores_BNTS = scores(q, k_BKHS, bias=bias, scale=scale, soft_cap=soft_cap)
    return _masked_softmax(scores_BNTS, mask)


def scores(
    q: Array, k_BKHS: Array, *, bias: Array | None, scale: float | None, soft_cap: float | None
) -> Array:
    """Computes the scores `B N T S` in at least float32, those of hidden keys too."""
    dtype = statistics_dtype(q)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if q.dtype == dtype:
        # There are fewer queries than scores; narrower ones would be rounded once more.
        q, factor = q * factor, None
    scores_BNTS = _per_group(jnp.swapaxes(q, 1, 2), k_BKHS, dtype=dtype)
    if factor is not None:
        scores_BNTS = scores_BNTS * factor
    if soft_cap is not None:
        scores_BNTS = soft_cap * jnp.tanh(scores_BNTS / soft_cap)
    if bias is not None:
        scores_BNTS = scores_BNTS + bias.astype(scores_BNTS.dtype)
    return scores_BNTS


def weighted_values(weights_BNTS: Array, v_BKSV: Array) -> Array:
    """Reads the values with the weights: `B T N Hv` in the dtype of the values."""
    read_BNTV = _per_group(weights_BNTS.astype(v_BKSV.dtype), v_BKSV)
    return jnp.swapaxes(read_BNTV, 1, 2)


def _per_group(left_BNTX: Array, right_BKXY: Array, *, dtype: Any = None) -> Array:
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
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    # `initial` keeps the maximum finite where a whole row is hidden: all its exponentials are 0.
    lowest = float(jnp.finfo(scores.dtype).min)
    highest = jnp.max(scores, axis=-1, keepdims=True, initial=lowest)
    exponentials = jnp.exp(scores - highest)
    total = jnp.sum(exponentials, axis=-1, keepdims=True)
    return exponentials / jnp.where(total == 0, 1, total)


@_masked_softmax.defjvp
def _masked_softmax_jvp(primals, tangents):
    weights = _masked_softmax(*primals)
    scores_dot = tangents[0]
    mean_dot = jnp.sum(weights * scores_dot, axis=-1, keepdims=True)
    return weights, weights * (scores_dot - mean_dot)
