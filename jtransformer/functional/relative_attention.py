"""Learned relative positions: of keys and values (Shaw), and one number per head and distance.

The distance of a key from a query is its position less that of the query, so it is negative in
the past, and distances beyond m count as m. A table has M = 2m + 1 rows: the first for keys m or
more before the query, row m for the query's own position, the last for keys m or more after it.

Sources: Shaw et al. 2018, sec. 3.1 and 3.2, https://arxiv.org/abs/1803.02155 (tables shared by
all heads, as there). The bias is the plain form of what Raffel et al. 2019, sec. 2.1,
https://arxiv.org/abs/1910.10683, do with buckets: here each distance has a number of its own.
Where we differ: positions are arguments, so packed or cached tokens have theirs. Nothing of the
size T S H is formed: queries meet the M rows before their products are spread over the keys,
and weights of equal distance are summed before they meet the rows.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jtransformer.functional._arrays import statistics_dtype
from jtransformer.functional._distances import relative_positions
from jtransformer.functional._weights import check_heads, silenced, weighted_values
from jtransformer.functional.attention import attention_weights, dot_product_attention
from jtransformer.functional.dropout import DropoutKey, dropout
from jtransformer.functional.visibility import Visibility


def relative_attention(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K Hv"],
    key_table: Float[Array, "M H"],
    value_table: Float[Array, "M Hv"] | None = None,
    *,
    query_positions: Int[Array, "#B T"],
    key_positions: Int[Array, "#B S"],
    mask: Bool[Array, "..."] | Visibility | None = None,
    scale: float | None = None,
    dropout_rate: float | Float[Array, ""] = 0.0,
    key: DropoutKey | None = None,
) -> Float[Array, "B T N Hv"]:
    """Reads values with scores, and if wanted values, that know how far away a key is.

    `w = softmax(scale q (k + a_K)ᵀ, masked)`, then `w (v + a_V)`, where `a_K` and `a_V` are the
    rows of the tables for the distance of query and key. Heads are grouped as in
    `dot_product_attention`.

    Args:
        q: Queries.
        k: Keys.
        v: Values; a value head may have a width of its own.
        key_table: What is added to keys, one row per distance -m … m, for all heads.
        value_table: The same for values; None adds nothing to them.
        query_positions: Token positions of the queries.
        key_positions: Token positions of the keys, on the same count.
        mask: As for `dot_product_attention`.
        scale: Factor of the scores; None is `1/sqrt(H)`.
        dropout_rate: As for `dot_product_attention`; a dropped weight reads neither value.
        key: As for `dot_product_attention`.

    Returns:
        What each query head read, in `q.dtype`.

    Raises:
        ValueError: If a table has an even number of rows or another width, positions are not
            integers or not one per token, or as `dot_product_attention`.
    """
    check_heads(q, k, v)
    M = _rows(key_table, "key_table", k.shape[-1])
    index_BTS = _row_index(query_positions, key_positions, M)
    if index_BTS.shape[1:] != (q.shape[1], k.shape[1]):
        raise ValueError(
            "Each query and each key needs a position, got "
            f"query_positions.shape={query_positions.shape} for q.shape={q.shape}, "
            f"key_positions.shape={key_positions.shape} for k.shape={k.shape}."
        )
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1])
    dtype = statistics_dtype(q)
    by_row_BNTM = jnp.einsum("BTNH,MH->BNTM", q, key_table, preferred_element_type=dtype)
    bias = _spread(by_row_BNTM * scale, index_BTS)
    if value_table is None:
        return dot_product_attention(
            q, k, v, mask=mask, bias=bias, scale=scale, dropout_rate=dropout_rate, key=key
        )
    if _rows(value_table, "value_table", v.shape[-1]) != M:
        raise ValueError(
            "The tables must have the same rows, got "
            f"key_table.shape={key_table.shape}, value_table.shape={value_table.shape}."
        )
    weights_BNTS = attention_weights(q, k, mask=mask, bias=bias, scale=scale)
    weights_BNTS = dropout(weights_BNTS, rate=dropout_rate, key=key)
    own_BTNV = weighted_values(weights_BNTS, jnp.swapaxes(silenced(v, mask), 1, 2))
    sums_BNTM = _gather(weights_BNTS.astype(dtype), index_BTS, M)
    added_BTNV = jnp.einsum("BNTM,MV->BTNV", sums_BNTM, value_table.astype(dtype))
    return (own_BTNV.astype(dtype) + added_BTNV).astype(q.dtype)


def relative_bias(
    table: Float[Array, "M N"],
    query_positions: Int[Array, "#B T"],
    key_positions: Int[Array, "#B S"],
) -> Float[Array, "B N T S"]:
    """Looks up one learned score per head and distance, for the `bias` of attention.

    `bias[b, n, t, s] = table[m + clip(key position - query position, -m, m), n]`.

    Args:
        table: One row per distance -m … m.
        query_positions: Positions of the queries; a batch of 1 serves all.
        key_positions: Positions of the keys; a batch of 1 serves all.

    Returns:
        The bias in the table's dtype; its batch is 1 if both batches are.

    Raises:
        ValueError: If the table has an even number of rows, or the positions do not fit.
    """
    index_BTS = _row_index(query_positions, key_positions, _rows(table, "table", None))
    return jnp.moveaxis(jnp.take(table.T, index_BTS, axis=1, mode="clip"), 0, 1)


def _rows(table: Array, name: str, width: int | None) -> int:
    """Counts the rows of a table after checking them."""
    M = table.shape[0]
    if M % 2 == 0:
        raise ValueError(
            f"{name} must have 2m + 1 rows, for the distances -m … m, got M={M}; use {M + 1}."
        )
    if width is not None and table.shape[1:] != (width,):
        raise ValueError(
            f"{name} must have rows of the width of its heads, got {name}.shape={table.shape}; "
            f"use {(M, width)}."
        )
    return M


def _row_index(query_positions: Array, key_positions: Array, M: int) -> Array:
    """Finds the row of each query and key, in int32."""
    distance_BTS = relative_positions(query_positions, key_positions)
    return jnp.clip(distance_BTS, -(M // 2), M // 2) + M // 2


def _spread(by_row_BNTM: Array, index_BTS: Array) -> Array:
    """Gives each key the entry of its row: `B N T M` to `B N T S`."""
    return jnp.take_along_axis(by_row_BNTM, index_BTS[:, None], axis=-1, mode="promise_in_bounds")


def _gather(weights_BNTS: Array, index_BTS: Array, M: int) -> Array:
    """Sums the weights of the keys that share a row: the transpose of `_spread`."""
    rows = jax.ShapeDtypeStruct((*weights_BNTS.shape[:3], M), weights_BNTS.dtype)
    transposed = jax.linear_transpose(functools.partial(_spread, index_BTS=index_BTS), rows)
    (sums_BNTM,) = transposed(weights_BNTS)
    return sums_BNTM
