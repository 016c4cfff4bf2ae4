"""Biases of the attention scores by distance: T5's buckets and ALiBi.

Both take the positions of queries and keys, so that packed documents, ragged prompts and caches
use the same functions; the distance is counted in integers and exact at any position.

Sources. T5: Raffel et al. 2019, sec. 2.1, https://arxiv.org/abs/1910.10683; the formula is in
their code (mesh_tensorflow, `_relative_position_bucket`), https://github.com/tensorflow/mesh.
ALiBi: Press, Smith and Lewis 2021, sec. 3, https://arxiv.org/abs/2108.12409; head counts that are
no power of two are defined by their code alone (`get_slopes`),
https://github.com/ofirpress/attention_with_linear_biases.

Where we differ: T5's buckets are compared with whole distances found in exact arithmetic, where
the published code rounds a float32 logarithm.
"""

import bisect

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jtransformer.functional._arrays import require_integers, statistics_dtype, with_rank
from jtransformer.functional._distances import relative_positions as distances


def t5_bucket(
    relative_positions: Int[Array, "*batch"],
    *,
    bidirectional: bool,
    n_buckets: int = 32,
    max_distance: int = 128,
) -> Int[Array, "*batch"]:
    """Assigns relative positions to buckets that widen with the distance.

    Of the C buckets of one direction, the first `E = C // 2` hold one distance each. Bucket
    `E + j` starts at the least whole distance d with `d >= E (max_distance / E)^(j / (C - E))`,
    so that a distance on a boundary belongs to the bucket that starts there, and the last bucket
    has no end. In one direction, all keys ahead share bucket 0 with the query's own position. In
    both, the first half of the buckets is for keys behind and the second half for keys ahead.

    Args:
        relative_positions: Key position minus query position: negative for keys behind.
        bidirectional: Whether keys ahead have buckets of their own (an encoder).
        n_buckets: Number of buckets, of both directions together.
        max_distance: From here on at the latest, all distances are in the last bucket.

    Returns:
        Buckets in 0 … n_buckets - 1.

    Raises:
        ValueError: If the buckets cannot be divided among the directions, or `max_distance` lies
            within the buckets of one distance each.
    """
    require_integers(relative_positions, "relative_positions")
    n_directions = 2 if bidirectional else 1
    n_each = n_buckets // n_directions
    if n_buckets % n_directions or n_each < 2:
        raise ValueError(
            "n_buckets (the rows of the table) must give each direction the same number, at least "
            f"2, got n_buckets={n_buckets}, bidirectional={bidirectional}."
        )
    if max_distance <= n_each // 2:
        raise ValueError(
            f"max_distance must exceed the {n_each // 2} buckets of one distance each, "
            f"got max_distance={max_distance}, n_buckets={n_buckets}."
        )
    # Bytes are widened, and the rest clipped before it is converted: the lowest int32 has no
    # negative, and 64 bits would wrap around.
    wide = relative_positions
    wide = wide.astype(jnp.int32) if wide.dtype.itemsize < 4 else wide
    low = 0 if jnp.issubdtype(wide.dtype, jnp.unsignedinteger) else -max_distance
    relative = wide.clip(low, max_distance).astype(jnp.int32)
    distance = jnp.abs(relative) if bidirectional else jnp.maximum(-relative, 0)
    starts = with_rank(jnp.asarray(_starts(n_each, max_distance)[1:]), distance.ndim + 1)
    bucket = jnp.sum(distance[..., None] >= starts, axis=-1, dtype=jnp.int32)
    return jnp.where(relative > 0, bucket + n_each, bucket) if bidirectional else bucket


def t5_bias(
    table: Float[Array, "M N"],
    query_positions: Int[Array, "#B T"],
    key_positions: Int[Array, "#B S"],
    *,
    bidirectional: bool,
    max_distance: int = 128,
) -> Float[Array, "B N T S"]:
    """Looks up one learned score per head and bucket of distance.

    `bias[b, n, t, s] = table[t5_bucket(key position - query position), n]`, for the `bias` of
    `dot_product_attention`; T5 adds it to scores that are not divided by `sqrt(H)`.

    Args:
        table: One row per bucket; a stack shares one among its layers.
        query_positions: Positions of the queries; a batch of 1 serves all.
        key_positions: Positions of the keys; a batch of 1 serves all.
        bidirectional: As for `t5_bucket`.
        max_distance: As for `t5_bucket`.

    Returns:
        The bias in the table's dtype; its batch is 1 if both batches are.

    Raises:
        ValueError: If the positions do not fit, or as `t5_bucket`.
    """
    buckets_BTS = t5_bucket(
        distances(query_positions, key_positions),
        bidirectional=bidirectional,
        n_buckets=table.shape[0],
        max_distance=max_distance,
    )
    return jnp.moveaxis(jnp.take(table, buckets_BTS, axis=0, mode="clip"), -1, 1)


def alibi_slopes(N: int) -> Float[Array, " N"]:
    """Computes the slopes of ALiBi for any number of heads.

    For N a power of two, head n (from 0) has `2^(-8 (n + 1) / N)`. Otherwise the largest power of
    two below N comes first, with its own slopes, and then every other slope of twice that power,
    from the first one. The order belongs to the weights of a model.

    Args:
        N: Number of heads.

    Raises:
        ValueError: If there is no head.
    """
    if N < 1:
        raise ValueError(f"ALiBi needs at least one head, got N={N}.")
    power = 1 << (int(N).bit_length() - 1)
    own = np.arange(1, power + 1) / power
    between = np.arange(1, 2 * (N - power), 2) / (2 * power)
    return jnp.asarray(2.0 ** (-8 * np.concatenate([own, between])), jnp.result_type(float))


def alibi_bias(
    slopes: Float[Array, " N"],
    query_positions: Int[Array, "#B T"],
    key_positions: Int[Array, "#B S"],
) -> Float[Array, "B N T S"]:
    """Computes `-slope * |key position - query position|`, for the `bias` of attention.

    Under a causal mask, a softmax gives the same weights as with `slope * key position` (BLOOM),
    from which it differs by one number per query; that form loses digits far out, this one does
    not.

    Args:
        slopes: One slope per head, see `alibi_slopes`.
        query_positions: Positions of the queries; a batch of 1 serves all.
        key_positions: Positions of the keys; a batch of 1 serves all.

    Returns:
        The bias in the dtype of the slopes, within its finite range (float16 ends at 65,504); its
        batch is 1 if both batches are. In bfloat16 distances above 256 are rounded: float32
        slopes, such as `alibi_slopes` gives, tell them apart.

    Raises:
        ValueError: If the positions do not fit.
    """
    dtype = statistics_dtype(slopes)
    distance_BTS = jnp.abs(distances(query_positions, key_positions)).astype(dtype)
    bias = -slopes.astype(dtype)[None, :, None, None] * distance_BTS[:, None]
    if dtype != slopes.dtype:
        # Else a query whose keys are all far away would get a softmax over -inf alone.
        most = float(jnp.finfo(slopes.dtype).max)
        bias = jnp.clip(bias, -most, most)
    return bias.astype(slopes.dtype)


def _starts(n_each: int, max_distance: int) -> np.ndarray:
    """Finds the least distance of each bucket of one direction by comparing whole powers."""
    exact = n_each // 2
    wider = n_each - exact
    distances = range(max_distance + 1)
    starts = [
        bisect.bisect_left(
            distances, exact ** (wider - j) * max_distance**j, key=lambda distance: distance**wider
        )
        for j in range(wider)
    ]
    return np.array([*range(exact), *starts], np.int32)
