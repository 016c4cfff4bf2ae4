"""Distances of keys from queries, for learned and fixed biases of the scores."""

import jax.numpy as jnp
from jaxtyping import Array

from jtransformer.functional._arrays import require_integers


def relative_positions(query_positions: Array, key_positions: Array) -> Array:
    """Subtracts query positions `B T` from key positions `B S`: `B T S` in int32.

    Raises:
        ValueError: If positions are not integers, or have other axes.
    """
    require_integers(query_positions, "query_positions")
    require_integers(key_positions, "key_positions")
    shapes = query_positions.shape, key_positions.shape
    if {len(shape) for shape in shapes} != {2} or len({shape[0] for shape in shapes} - {1}) > 1:
        raise ValueError(
            "Positions must have the axes B T and B S, each B full or 1, got "
            f"query_positions.shape={shapes[0]}, key_positions.shape={shapes[1]}."
        )
    # Bytes would wrap around where they are subtracted.
    query, key = query_positions.astype(jnp.int32), key_positions.astype(jnp.int32)
    return key[:, None, :] - query[:, :, None]
