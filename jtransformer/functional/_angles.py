"""Angles of positions that stay exact at any distance, for rotary and sinusoidal positions."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jtransformer.functional._arrays import with_rank


def angles(
    positions: Int[Array, "*batch"], radians_per_token_P: np.ndarray, dtype: jnp.dtype
) -> Float[Array, "*batch P"]:
    """Computes `positions * radians_per_token` up to whole turns, in radians.

    In float32 the product itself would round away the angle, of which only the part of the
    last turn matters. So that part is counted in units of 2^-32 turns: an int32 product wraps
    around exactly at whole turns, for positions of either sign. What the rounding of the step
    to such units leaves, less than half a unit per token, is added as a float.
    """
    rank = positions.ndim + 1
    if dtype == jnp.float64:
        return positions.astype(dtype)[..., None] * with_rank(
            jnp.asarray(radians_per_token_P), rank
        )
    units_per_token_P = np.mod(radians_per_token_P / (2 * math.pi), 1.0) * 2.0**32
    whole_P = np.rint(units_per_token_P)
    rest_P = (units_per_token_P - whole_P) * (2 * math.pi / 2.0**32)
    step_P = whole_P.astype(np.uint64).astype(np.uint32).view(np.int32)
    counts = positions.astype(jnp.int32)[..., None]
    units = counts * with_rank(jnp.asarray(step_P), rank)
    last_turn = units.astype(jnp.float32) * (2 * math.pi / 2.0**32)
    rest = with_rank(jnp.asarray(rest_P, jnp.float32), rank)
    # The positions themselves: beyond 2^31 the counts are negative, one turn of the int32 back.
    return last_turn + positions.astype(jnp.float32)[..., None] * rest
