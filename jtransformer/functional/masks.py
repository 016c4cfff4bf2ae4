"""Masks: which key positions a query may look at, drawn as booleans.

A boolean mask says where a query MAY look (True = visible); libraries with the opposite
convention are converted where they are called. Visibility is a property of positions, so
`visible` is the one general form (ragged prompts, chunked prefill and fixed cache buffers
use it), and the masks of a square or end-aligned attention are its special cases. Every mask
here has the axes `B 1 T S` of attention scores, with 1 where an axis does not matter, and
masks combine by AND.

Sources: causal, Vaswani et al. 2017, sec. 3.2.3, https://arxiv.org/abs/1706.03762; prefix,
Raffel et al. 2019, sec. 3.2.1, https://arxiv.org/abs/1910.10683; sliding window, Beltagy et
al. 2020, sec. 3.1, https://arxiv.org/abs/2004.05150; wait-k, Ma et al. 2019, sec. 3,
https://arxiv.org/abs/1810.08398.
"""

import functools
import operator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jtransformer.functional._arrays import require_integers, with_rank
from jtransformer.functional.visibility import Visibility, require_boolean


def visible(
    query_positions: Int[Array, "#B T"],
    key_positions: Int[Array, "#B S"],
    *,
    causal: bool = True,
    window: int | None = None,
    prefix_length: int | Int[Array, ""] | Int[Array, "#B"] | None = None,
    query_segments: Int[Array, "#B T"] | None = None,
    key_segments: Int[Array, "#B S"] | None = None,
    key_valid: Bool[Array, "#B S"] | None = None,
) -> Bool[Array, "B 1 T S"]:
    """Says which keys each query may look at, from positions, segments and validity.

    It is the drawing of a `Visibility`, which attention also takes undrawn and which says what
    each condition means. All that are given must hold at once.

    Args:
        query_positions: Token positions of the queries, counted from 0.
        key_positions: Token positions of the keys, on the same count.
        causal: Whether a query looks at its own and earlier positions only.
        window: Looks at positions nearer than this only.
        prefix_length: Positions before this see each other and nothing after it; later ones
            see what causality lets them. One number, or one per batch row.
        query_segments: Document of each query.
        key_segments: Document of each key.
        key_valid: Which keys are real tokens and no padding.

    Returns:
        True where the query may look.

    Raises:
        ValueError: As `Visibility`.
    """
    return Visibility(
        query_positions,
        key_positions,
        causal=causal,
        window=window,
        prefix_length=prefix_length,
        query_segments=query_segments,
        key_segments=key_segments,
        key_valid=key_valid,
    ).draw()


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
    require_boolean(valid, "valid")
    return valid[:, None, None, :]


def cross_mask(T: int, source_valid: Bool[Array, "B S"]) -> Bool[Array, "B 1 T S"]:
    """Lets every target position look at every real source position, with no triangle.

    Padding of the target is no part of it: it hides no source position, it could only make
    queries blind.

    Args:
        T: Number of target positions.
        source_valid: True at real tokens of the source.

    Raises:
        ValueError: If `source_valid` is not boolean.
    """
    require_boolean(source_valid, "source_valid")
    B, S = source_valid.shape
    return jnp.broadcast_to(source_valid[:, None, None, :], (B, 1, T, S))


def wait_k_mask(T: int, S: int, *, k: int) -> Bool[Array, "1 1 T S"]:
    """Lets target position t look at the first `k + t` source positions, as in streaming.

    The paper counts from 1, where position t reads `min(k + t - 1, S)` source tokens.

    Args:
        T: Number of target positions.
        S: Number of source positions.
        k: How many source tokens are read before the first target token, at least 1.

    Raises:
        ValueError: If `k` is below 1.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got k={k}; a query would see nothing.")
    return visible(jnp.arange(T)[None] + (min(k, S) - 1), jnp.arange(S)[None])


def segment_mask(
    query_segments: Int[Array, "B T"], key_segments: Int[Array, "B S"]
) -> Bool[Array, "B 1 T S"]:
    """Keeps packed documents apart: a query sees the keys of its own segment.

    Args:
        query_segments: Number of the document of each query.
        key_segments: Number of the document of each key.

    Raises:
        ValueError: If the numbers are not integers, or have other axes.
    """
    require_integers(query_segments, "query_segments")
    require_integers(key_segments, "key_segments")
    shapes = query_segments.shape, key_segments.shape
    if {len(shape) for shape in shapes} != {2} or shapes[0][0] != shapes[1][0]:
        raise ValueError(
            "Segments must have the axes B T and B S, got "
            f"query_segments.shape={shapes[0]}, key_segments.shape={shapes[1]}."
        )
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
        require_boolean(mask, "mask")
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
