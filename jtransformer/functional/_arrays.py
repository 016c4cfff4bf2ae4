"""Array helpers shared inside `functional`: the precision rule, and ranks made explicit."""

import jax.numpy as jnp
from jaxtyping import Array, Shaped


def statistics_dtype(x: Shaped[Array, "..."]) -> jnp.dtype:
    """Returns the dtype in which statistics of `x` are computed: at least float32.

    bfloat16 and float16 are raised to float32; float64 stays float64.

    Raises:
        ValueError: If `x` is not a floating-point array.
    """
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"A floating-point array is needed, got dtype={x.dtype}; convert it with "
            "`.astype(jnp.float32)`."
        )
    return x.dtype if jnp.finfo(x.dtype).bits >= 32 else jnp.dtype(jnp.float32)


def with_rank(x: Shaped[Array, "..."], rank: int) -> Shaped[Array, "..."]:
    """Adds leading axes of length 1 until `x` has `rank` axes.

    JAX can be told to refuse implicit rank promotion; this makes the promotion explicit.
    """
    return jnp.expand_dims(x, tuple(range(rank - x.ndim)))
