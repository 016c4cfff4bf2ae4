"""Multi-head latent attention: the keys and values of all heads from one low-rank latent.

A token leaves behind one latent of width C, from which each head has its keys and values by a
linear map. A rotary position cannot be turned into such keys without spoiling the map, so it
has channels of its own: Hr more per query head, and one rotary key shared by all heads. What
decoding has to keep is C + Hr numbers per token, and not 2 N H.

The map of the keys can be moved to the query, and the map of the values behind the read,
because `q (c W_k) = (q W_kᵀ) c`. That is the absorbed form of the same function. It reads the
latent itself, as one key and value head that all query heads share.

Source: DeepSeek-AI 2024, sec. 2.1, https://arxiv.org/abs/2405.04434. Where we differ: the
projections around it (to the latent, to queries, out) are the caller's, like any norm of the
latent; the rotary part can be left out.
"""

import math
from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jtransformer.functional._arrays import statistics_dtype
from jtransformer.functional._weights import silenced
from jtransformer.functional.attention import dot_product_attention
from jtransformer.functional.dropout import DropoutKey
from jtransformer.functional.linear import linear
from jtransformer.functional.visibility import Visibility


def latent_attention(
    q: Float[Array, "B T N H"],
    latent: Float[Array, "B S C"],
    w_k: Float[Array, "C N H"],
    w_v: Float[Array, "C N Hv"],
    *,
    q_rotary: Float[Array, "B T N Hr"] | None = None,
    k_rotary: Float[Array, "B S Hr"] | None = None,
    mask: Bool[Array, "..."] | Visibility | None = None,
    bias: Float[Array, "..."] | None = None,
    scale: float | None = None,
    dropout_rate: float | Float[Array, ""] = 0.0,
    key: DropoutKey | None = None,
    form: Literal["expanded", "absorbed"] = "expanded",
    attend: Callable[..., Float[Array, "..."]] = dot_product_attention,
) -> Float[Array, "B T N Hv"]:
    """Reads values `c W_v` by keys `[c W_k, k_rotary]`, both from the latent c.

    `softmax(scale (q W_kᵀ cᵀ + q_rotary k_rotaryᵀ) + bias, masked) c W_v` for each head.

    Args:
        q: Queries without position.
        latent: What each source token left behind.
        w_k: Map from the latent to the keys of each head.
        w_v: Map from the latent to the values of each head.
        q_rotary: Queries of the rotary part, already turned by `rope`; None is no such part.
        k_rotary: Its key, one for all heads: `rope(x[:, :, None], positions)[:, :, 0]`. Given
            together with `q_rotary`.
        mask: As for `dot_product_attention`.
        bias: As for `dot_product_attention`.
        scale: Factor of the scores; None is `1/sqrt(H + Hr)`.
        dropout_rate: As for `dot_product_attention`.
        key: As for `dot_product_attention`.
        form: "expanded" forms the keys and values of each head, which is less work for many
            queries; "absorbed" reads the latent, which is less work for few queries.
        attend: What computes `dot_product_attention` from queries, keys, values and its options,
            perhaps with less memory or on several devices.

    Returns:
        What each head read, in `q.dtype`. The forms differ by rounding alone. The absorbed one
        has more products in a row, so it raises its input to at least float32 and rounds to a
        lower precision at the end only.

    Raises:
        ValueError: If shapes do not fit, only one part of the rotary pair is given, `form` is
            unknown, or as `dot_product_attention`.
    """
    _check(q, latent, w_k, w_v)
    _check_rotary(q, latent, q_rotary, k_rotary)
    # Before the projections, whose gradients are products with the latent.
    latent = silenced(latent[:, :, None], mask)[:, :, 0]
    if k_rotary is not None:
        k_rotary = silenced(k_rotary[:, :, None], mask)[:, :, 0]
    if scale is None:
        rotary_width = 0 if q_rotary is None else q_rotary.shape[-1]
        scale = 1 / math.sqrt(q.shape[-1] + rotary_width)
    if form == "expanded":
        k, v = linear(latent, w_k), linear(latent, w_v)
        if q_rotary is not None and k_rotary is not None:
            shared = jnp.broadcast_to(k_rotary[:, :, None], (*k.shape[:3], k_rotary.shape[-1]))
            q, k = jnp.concatenate([q, q_rotary], -1), jnp.concatenate([k, shared], -1)
        return attend(
            q, k, v, mask=mask, bias=bias, scale=scale, dropout_rate=dropout_rate, key=key
        )
    if form != "absorbed":
        raise ValueError(f"Unknown form {form!r}; use 'expanded' or 'absorbed'.")
    dtype = statistics_dtype(q)
    raised = latent.astype(dtype)
    q_absorbed = jnp.einsum("BTNH,CNH->BTNC", q.astype(dtype), w_k.astype(dtype))
    k_shared = raised
    if q_rotary is not None and k_rotary is not None:
        q_absorbed = jnp.concatenate([q_absorbed, q_rotary.astype(dtype)], -1)
        k_shared = jnp.concatenate([raised, k_rotary.astype(dtype)], -1)
    read_BTNC = attend(
        q_absorbed,
        k_shared[:, :, None],
        raised[:, :, None],
        mask=mask,
        bias=bias,
        scale=scale,
        dropout_rate=dropout_rate,
        key=key,
    )
    return jnp.einsum("BTNC,CNV->BTNV", read_BTNC, w_v.astype(dtype)).astype(q.dtype)


def _check(q: Array, latent: Array, w_k: Array, w_v: Array) -> None:
    B, _, N, H = q.shape
    if latent.shape[0] != B or latent.ndim != 3:
        raise ValueError(
            f"latent must have the axes B S C with the batch of q, got q.shape={q.shape}, "
            f"latent.shape={latent.shape}."
        )
    C = latent.shape[-1]
    if w_k.shape != (C, N, H):
        raise ValueError(
            f"w_k must map the latent to the keys of each query head, got w_k.shape={w_k.shape} "
            f"for q.shape={q.shape}, latent.shape={latent.shape}; use {(C, N, H)}."
        )
    if w_v.ndim != 3 or w_v.shape[:2] != (C, N):
        raise ValueError(
            f"w_v must map the latent to the values of each query head, got w_v.shape={w_v.shape} "
            f"for q.shape={q.shape}, latent.shape={latent.shape}; use {(C, N, 'Hv')}."
        )


def _check_rotary(q: Array, latent: Array, q_rotary: Array | None, k_rotary: Array | None) -> None:
    if q_rotary is None and k_rotary is None:
        return
    if q_rotary is None or k_rotary is None:
        missing = "q_rotary" if q_rotary is None else "k_rotary"
        raise ValueError(f"q_rotary and k_rotary must be given together, got {missing}=None.")
    Hr = q_rotary.shape[-1]
    if q_rotary.shape != (*q.shape[:3], Hr) or k_rotary.shape != (*latent.shape[:2], Hr):
        raise ValueError(
            "q_rotary must have the axes B T N Hr and k_rotary B S Hr, got "
            f"q_rotary.shape={q_rotary.shape}, k_rotary.shape={k_rotary.shape} for "
            f"q.shape={q.shape}, latent.shape={latent.shape}."
        )
