"""Array helpers shared inside `functional`: precision, ranks made explicit, values known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Shaped


def raised_dtype(dtype: DTypeLike) -> jnp.dtype:
    """Returns a floating-point dtype, raised to float32 where it has less than 32 bits."""
    return jnp.dtype(dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32)


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
    return raised_dtype(x.dtype)


def require_integers(x: Array | np.ndarray, name: str) -> None:
    """Refuses positions or numbers of documents that are not integers.

    Raises:
        ValueError: If the dtype of `x` is no integer type.
    """
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise ValueError(f"{name} must be integers, got dtype={x.dtype}.")


def known(*arrays: Any) -> list[np.ndarray] | None:
    """Returns the values of the arrays where all of them are known, which is outside a trace."""
    for x in arrays:
        if isinstance(x, Tracer) or (isinstance(x, jax.Array) and not x.is_fully_addressable):
            return None
    # NumPy's own arrays: jax ones would be traced, were this called while tracing.
    return [np.asarray(x) for x in arrays]


def with_rank(x: Shaped[Array, "..."], rank: int) -> Shaped[Array, "..."]:
    """Adds leading axes of length 1 until `x` has `rank` axes.

    JAX can be told to refuse implicit rank promotion; this makes the promotion explicit.
    """
    return jnp.expand_dims(x, tuple(range(rank - x.ndim)))
