"""Visibility: which key positions a query may look at.

A boolean mask says where a query MAY look (True = visible); libraries with the opposite
convention are converted where they are called. Visibility is a property of positions, so
`visible` is the one general form (ragged prompts, chunked prefill and fixed cache buffers
use it), and the masks of a square or end-aligned attention are its special cases. Every mask
here has the axes `B 1 T S` of attention scores, with 1 where an axis does not matter, and
masks combine by AND.

Sources: causal, Vaswani et al. 2017, sec. 3.2.3, https://arxiv.org/abs/1706.03762; prefix,
Raffel et al. 2019, sec. 3.2.1, https://arxiv.org/abs/1910.10683; sliding window, Beltagy et
al. 2020, sec. 3.1, https://arxiv.org/abs/2004.05150.
"""

import functools
import operator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jtransformer.functional._arrays import with_rank

FARTHEST = 2**30
"""Positions lie below this, so that a sum of a position and a window stays in 32 bits."""


def visible(
    query_positions: Int[Array, "#B T"],
    key_positions: Int[Array, "#B S"],
    *,
    causal: bool = True,
    window: int | None = None,
    prefix_length: int | Int[Array, "#B"] | None = None,
    query_segments: Int[Array, "#B T"] | None = None,
    key_segments: Int[Array, "#B S"] | None = None,
    key_valid: Bool[Array, "#B S"] | None = None,
) -> Bool[Array, "B 1 T S"]:
    """Says which keys each query may look at, from positions, segments and validity.

    All conditions that are given must hold at once.

    Args:
        query_positions: Token positions of the queries, counted from 0.
        key_positions: Token positions of the keys, on the same count.
        causal: Whether a query looks at its own and earlier positions only.
        window: Looks at positions nearer than this only (the query's own is at distance 0),
            before it and, where the future is visible, after it.
        prefix_length: The first so many positions see each other and nothing else; later ones
            see what causality lets them. One number, or one per batch row.
        query_segments: Document of each query; a query sees only keys of its own document.
        key_segments: Document of each key; given together with `query_segments`.
        key_valid: Which keys are real tokens and no padding.

    Returns:
        True where the query may look.

    Raises:
        ValueError: If `window` is below 1, `prefix_length` is negative or is given without
            causality, only one of the segment arrays is given, or `key_valid` is not boolean.
    """
    # Bytes would wrap around where a window is added to them.
    query_BTx = query_positions.astype(jnp.int32)[:, :, None]
    key_BxS = key_positions.astype(jnp.int32)[:, None, :]
    if prefix_length is not None:
        if not causal:
            raise ValueError("prefix_length needs causal=True; without causality all is visible.")
        may_look = _prefix(query_BTx, key_BxS, prefix_length)
    elif causal:
        may_look = key_BxS <= query_BTx
    else:
        may_look = jnp.full(np.broadcast_shapes(query_BTx.shape, key_BxS.shape), True)
    if window is not None:
        if window < 1:
            raise ValueError(f"window must be at least 1, got window={window}; None means none.")
        # Sums, because the difference of unsigned positions wraps around.
        window = min(window, FARTHEST)
        near = (query_BTx < key_BxS + window) & (key_BxS < query_BTx + window)
        may_look = may_look & near
    if query_segments is not None and key_segments is not None:
        may_look = may_look & (query_segments[:, :, None] == key_segments[:, None, :])
    elif query_segments is not None or key_segments is not None:
        raise ValueError("query_segments and key_segments must be given together.")
    if key_valid is not None:
        _require_boolean(key_valid, "key_valid")
        may_look = may_look & key_valid[:, None, :]
    return may_look[:, None]


def causal_mask(T: int, S: int | None = None) -> Bool[Array, "1 1 T S"]:
    """Lets each query look at its own and earlier positions.

    With more keys than queries the queries are the last T of the S positions, as when a prompt
    is continued from a cache: query t sees the keys 0 … S - T + t.

    Args:
        T: Number of queries.
        S: Number of keys; None is T.

    Raises:
        ValueError: If there are fewer keys than queries.
    """
    return visible(*_end_aligned(T, S))


def window_mask(T: int, S: int | None = None, *, window: int) -> Bool[Array, "1 1 T S"]:
    """Lets each query look at the last `window` positions, its own among them.

    It is causal and aligned to the end like `causal_mask`; for a window that also looks ahead
    use `visible(..., causal=False, window=window)`.

    Args:
        T: Number of queries.
        S: Number of keys; None is T.
        window: How many positions are visible, at least 1.

    Raises:
        ValueError: If there are fewer keys than queries or `window` is below 1.
    """
    return visible(*_end_aligned(T, S), window=window)


def prefix_mask(T: int, prefix: int | Int[Array, " B"]) -> Bool[Array, "B 1 T T"]:
    """Lets the first `prefix` positions see each other, and later ones look back.

    Args:
        T: Number of positions.
        prefix: Length of the mutually visible beginning: one number, or one per batch row.

    Raises:
        ValueError: If a `prefix` that is one number does not lie in 0 … T.
    """
    if isinstance(prefix, int | np.integer) and not 0 <= prefix <= T:
        raise ValueError(f"prefix must lie in 0 … T, got prefix={prefix}, T={T}.")
    positions = _end_aligned(T, None)
    return visible(*positions, prefix_length=prefix)


def padding_mask(valid: Bool[Array, "B S"]) -> Bool[Array, "B 1 1 S"]:
    """Hides keys that are padding from every query.

    Args:
        valid: True at real tokens.

    Raises:
        ValueError: If `valid` is not boolean: 0/1 arrays have two meanings in circulation.
    """
    _require_boolean(valid, "valid")
    return valid[:, None, None, :]


def segment_mask(
    query_segments: Int[Array, "B T"], key_segments: Int[Array, "B S"]
) -> Bool[Array, "B 1 T S"]:
    """Keeps packed documents apart: a query sees the keys of its own segment.

    Args:
        query_segments: Number of the document of each query.
        key_segments: Number of the document of each key.
    """
    return (query_segments[:, :, None] == key_segments[:, None, :])[:, None]


def combine_masks(*masks: Bool[Array, "..."]) -> Bool[Array, "..."]:
    """Combines masks by AND: visible is what every one of them shows.

    Args:
        masks: At least one mask, with the axes `T S` or `B N T S`, each axis full or 1.

    Raises:
        ValueError: If no mask is given, one is not boolean, or the shapes do not fit.
    """
    if not masks:
        raise ValueError("combine_masks needs at least one mask, got none.")
    for mask in masks:
        _require_boolean(mask, "mask")
        if mask.ndim not in (2, 4):
            raise ValueError(
                f"A mask has the axes T S or B N T S, got mask.shape={mask.shape}; "
                "add the missing axes as 1."
            )
    rank = max(mask.ndim for mask in masks)
    ranked = [with_rank(mask, rank) for mask in masks]
    shapes = [mask.shape for mask in ranked]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise ValueError(f"Each axis of a mask must fit or be 1, got shapes {shapes}.") from error
    return functools.reduce(operator.and_, ranked)


def _end_aligned(T: int, S: int | None) -> tuple[Array, Array]:
    """Positions of T queries that are the last of S keys, each with a batch axis of 1."""
    S = T if S is None else S
    if S < T:
        raise ValueError(
            f"The queries are the last of the keys, so S must be at least T, got T={T}, S={S}; "
            "cross-attention has no triangle."
        )
    return jnp.arange(S - T, S)[None], jnp.arange(S)[None]


def _prefix(query_BTx: Array, key_BxS: Array, prefix_length: int | Array) -> Array:
    if isinstance(prefix_length, int | np.integer):
        if prefix_length < 0:
            raise ValueError(f"prefix_length must be at least 0, got {prefix_length}.")
        length_Bxx = jnp.full((1, 1, 1), prefix_length, query_BTx.dtype)
    else:
        length_Bxx = prefix_length.astype(query_BTx.dtype)[:, None, None]
    return (key_BxS < length_Bxx) | (key_BxS <= query_BTx)


def _require_boolean(mask: Array, name: str) -> None:
    if mask.dtype != jnp.bool_:
        raise ValueError(
            f"{name} must be boolean (True = may look), got dtype={mask.dtype}; write "
            f"`{name} != 0` if nonzero means visible."
        )
