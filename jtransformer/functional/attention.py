"""Scaled dot-product attention with grouped heads.

One function serves self-attention and cross-attention, multi-head (K = N), grouped-query and
multi-query (K = 1) attention. It differs from `jax.nn.dot_product_attention` where a query
sees no key: there the answer is the mean of the values, here it is zero, with zero gradients.

A hidden key has weight exactly 0, but 0 times NaN is NaN, forward and backward: keys and values
must be finite where they are hidden too. Zeroing them here would cost a pass over the mask. A
`Visibility` names padding in `key_valid`, and that is zeroed. With a drawn mask, pass
`jnp.where(valid[:, :, None, None], v, 0)`, and `k` likewise.

Sources: Vaswani et al. 2017, sec. 3.2, https://arxiv.org/abs/1706.03762; grouped queries,
Ainslie et al. 2023, sec. 2.2, https://arxiv.org/abs/2305.13245; soft cap of the scores,
Gemma Team 2024, sec. 2, https://arxiv.org/abs/2408.00118; heads switched off, Michel et al.
2019, sec. 2.3, https://arxiv.org/abs/1905.10650.
"""

import math
from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jtransformer.functional._blockwise import block_rows, over_query_blocks, over_steps
from jtransformer.functional._weights import (
    check_heads,
    fitted,
    scores,
    silenced,
    softmax_weights,
    weighted_values,
)
from jtransformer.functional.attention_backends import (
    attention_backend,
    fused,
    refusal,
    runs_on,
)
from jtransformer.functional.dropout import DropoutKey, dropout, may_drop
from jtransformer.functional.tpu_attention import splash
from jtransformer.functional.visibility import Visibility


def dot_product_attention(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K Hv"],
    *,
    mask: Bool[Array, "..."] | Visibility | None = None,
    bias: Float[Array, "..."] | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    dropout_rate: float | Float[Array, ""] = 0.0,
    key: DropoutKey | None = None,
    heads_on: Bool[Array, " N"] | None = None,
    backend: Literal["auto", "plain", "stepped", "blockwise", "fused", "splash"] = "auto",
    platform: str | None = None,
) -> Float[Array, "B T N Hv"]:
    """Reads the values with the weights of `attention_weights`.

    `softmax(cap(scale q kᵀ) + bias, masked) v`, where query head n reads key and value head
    `n // (N // K)`.

    Args:
        q: Queries.
        k: Keys.
        v: Values; a value head may have a width of its own.
        mask: True where a query may look; axes `T S` or `B N T S`, each full or 1; or a
            `Visibility`, of which "blockwise" draws a block at a time. A query that sees no key
            gets zeros and sends back zero gradients.
        bias: Added to the scores after the cap; axes as for `mask`.
        scale: Factor of the scores; None is `1/sqrt(H)`.
        soft_cap: Bounds the scores by `soft_cap tanh(score / soft_cap)`; None is no bound.
        dropout_rate: Probability with which a weight is zeroed; the others are scaled up, so
            a row need not sum to 1.
        key: Random key of the dropout, or one for each row; None (evaluation) drops nothing.
        heads_on: False for a head that reads zeros, as if its rows of `w_o` were gone; nothing
            flows back into it. None is all heads.
        backend: Which program computes it, see `attention_backends`; "auto" is the answer of
            `attention_backend` for these arguments, on an NVIDIA GPU perhaps cuDNN, on a TPU
            perhaps splash. These have no forward mode: use "plain" for `jvp`, Hessians and
            `vmap` over a part of the arguments. Results agree up to rounding.
        platform: What the program is compiled for, as for `attention_backend`; None is the
            default one of this process.

    Returns:
        What each query head read, in `q.dtype`; scores and weights are at least float32.

    Raises:
        ValueError: If shapes do not fit, N is no multiple of K, `mask` is not boolean,
            `soft_cap` or `dropout_rate` is out of range, or `backend` does not compute these
            arguments.
    """
    shape = check_heads(q, k, v)
    _require_options(soft_cap, dropout_rate)
    if heads_on is not None:
        _require_one_per_head(heads_on, shape[1])
    mask = _fitted_mask(mask, shape)
    bias = None if bias is None else fitted(bias, shape, "bias")
    drops = key is not None and may_drop(dropout_rate)
    forming: Any = {"mask": mask, "bias": bias, "soft_cap": soft_cap}
    chosen = backend
    if chosen == "auto":
        drop: Any = {"dropout_rate": dropout_rate, "key": key}
        chosen = attention_backend(q, k, v, **forming, **drop, platform=platform)
    refused = refusal(chosen, (q, k, v), **forming, drops=drops)
    if refused:
        raise ValueError(f"backend={backend!r} {refused}; use 'auto' or 'plain'.")
    k, v = silenced(k, mask), silenced(v, mask)
    if chosen == "fused":
        out = fused(q, k, v, mask=mask, bias=bias, scale=scale, platform=platform)
    elif chosen == "splash":
        assert not isinstance(mask, Array)
        interpret = not runs_on("tpu", platform)
        out = splash(q, k, v, mask=mask, scale=scale, soft_cap=soft_cap, interpret=interpret)
    else:
        keys_BKHS, values_BKSV = jnp.transpose(k, (0, 2, 3, 1)), jnp.swapaxes(v, 1, 2)

        def attend(
            q: Array, mask: Array | None, bias: Array | None, keys: slice = slice(None)
        ) -> Array:
            weights = softmax_weights(
                q, keys_BKHS[..., keys], mask=mask, bias=bias, scale=scale, soft_cap=soft_cap
            )
            weights = dropout(weights, rate=dropout_rate, key=key)
            return weighted_values(weights, values_BKSV[:, :, keys]).astype(q.dtype)

        if chosen == "stepped":
            assert isinstance(mask, Visibility)
            out = over_steps(attend, q, mask=mask, bias=bias)
        elif chosen == "blockwise":
            out = over_query_blocks(attend, q, mask=mask, bias=bias, rows=block_rows(shape))
        else:
            out = attend(q, _drawn(mask), bias)
    if heads_on is None:
        return out
    return jnp.where(heads_on[None, None, :, None], out, 0)


def attention_scores(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    *,
    bias: Float[Array, "..."] | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
) -> Float[Array, "B N T S"]:
    """Computes `cap(scale q kᵀ) + bias`, of which `attention_weights` is the masked softmax.

    Args:
        q: Queries.
        k: Keys; what a mask would hide has its scores too.
        bias: As for `attention_weights`, like the options that follow.
        scale: See there.
        soft_cap: See there.

    Returns:
        The scores in `q.dtype`, computed in at least float32.

    Raises:
        ValueError: If shapes do not fit, N is no multiple of K, or `soft_cap` is not positive.
    """
    shape = check_heads(q, k)
    _require_options(soft_cap, 0.0)
    bias = None if bias is None else fitted(bias, shape, "bias")
    keys_BKHS = jnp.transpose(k, (0, 2, 3, 1))
    return scores(q, keys_BKHS, bias=bias, scale=scale, soft_cap=soft_cap).astype(q.dtype)


def attention_weights(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    *,
    mask: Bool[Array, "..."] | Visibility | None = None,
    bias: Float[Array, "..."] | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
) -> Float[Array, "B N T S"]:
    """Computes how much each query head reads from each key, before any dropout.

    `softmax(cap(scale q kᵀ) + bias, masked)`. Called beside `dot_product_attention` under `jit`
    with the same arguments, on the "plain" backend, the weights are computed once for both.

    Args:
        q: Queries.
        k: Keys.
        mask: True where a query may look; axes `T S` or `B N T S`, each full or 1; or a
            `Visibility`.
        bias: Added to the scores after the cap; axes as for `mask`.
        scale: Factor of the scores; None is `1/sqrt(H)`.
        soft_cap: Bounds the scores by `soft_cap tanh(score / soft_cap)`; None is no bound.

    Returns:
        The weights in `q.dtype`. A row sums to 1, or to 0 where the query sees no key; a
        hidden key has weight exactly 0.

    Raises:
        ValueError: If shapes do not fit, N is no multiple of K, `mask` is not boolean, or
            `soft_cap` is not positive.
    """
    shape = check_heads(q, k)
    _require_options(soft_cap, 0.0)
    mask = _fitted_mask(mask, shape)
    bias = None if bias is None else fitted(bias, shape, "bias")
    keys_BKHS = jnp.transpose(silenced(k, mask), (0, 2, 3, 1))
    weights_BNTS = softmax_weights(
        q, keys_BKHS, mask=_drawn(mask), bias=bias, scale=scale, soft_cap=soft_cap
    )
    return weights_BNTS.astype(q.dtype)


def _require_options(soft_cap: float | None, dropout_rate: float | Array) -> None:
    if soft_cap is not None and not 0 < soft_cap < math.inf:
        raise ValueError(
            f"soft_cap must be positive and finite, got {soft_cap}; None means no cap."
        )
    if not isinstance(dropout_rate, Array) and not 0 <= dropout_rate < 1:
        raise ValueError(f"dropout_rate must lie in [0, 1), got dropout_rate={dropout_rate}.")


def _require_one_per_head(heads_on: Array, N: int) -> None:
    if heads_on.shape != (N,) or heads_on.dtype != jnp.bool_:
        raise ValueError(
            f"heads_on must be boolean with one entry per query head, got dtype={heads_on.dtype}, "
            f"heads_on.shape={heads_on.shape} for N={N}."
        )


def _fitted_mask(
    mask: Array | Visibility | None, shape: tuple[int, int, int, int]
) -> Array | Visibility | None:
    """Gives a mask four axes, and refuses one that is not boolean or does not fit."""
    if mask is None:
        return None
    if isinstance(mask, Visibility):
        B, _, T, S = mask.shape
        if B not in (1, shape[0]) or (T, S) != shape[2:]:
            raise ValueError(
                f"mask must be of T queries and S keys, got mask.shape={mask.shape} "
                f"for B, N, T, S = {shape}."
            )
        return mask
    if mask.dtype != jnp.bool_:
        raise ValueError(
            f"mask must be boolean (True = may look), got dtype={mask.dtype}; pass summands of "
            "the scores as bias."
        )
    return fitted(mask, shape, "mask")


def _drawn(mask: Array | Visibility | None) -> Array | None:
    return mask.draw() if isinstance(mask, Visibility) else mask
