"""What `KVCache` asks of the rows of a batch: their places, what is known of them, refusals."""

import functools
import operator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

OVERFLOW = (
    "A row takes no tokens beyond its limit, and none after some were refused; make a larger cache"
)
REWIND = (
    "A row can be rewound to 0 … its length, a ring to where all that its window reads is stored; "
    "keep more tokens or make a larger chunk"
)


def places(B: int, T: int, valid: Array | None) -> Int[Array, "B T"]:
    """Numbers the real tokens of each row from 0; padding has the number before it."""
    if valid is None:
        return jnp.broadcast_to(jnp.arange(T, dtype=jnp.int32), (B, T))
    return jnp.cumsum(valid, axis=1, dtype=jnp.int32) - 1


def check_tokens(
    new: tuple[Array, Array], stored: tuple[Array, Array], valid: Array | None, *, most: int
) -> None:
    """Refuses keys and values that do not fit into a cache, and more than `most` at a time."""
    B, T = new[0].shape[:2]
    for name, x, slots in zip(("k", "v"), new, stored, strict=True):
        rows, heads, _, width = slots.shape
        fitting = (rows, T, heads, width)
        if x.shape != fitting:
            raise ValueError(
                f"{name} must have the shape that the cache was made for, got {name}.shape="
                f"{x.shape}; use {fitting}."
            )
    if valid is not None and (valid.shape != (B, T) or valid.dtype != jnp.bool_):
        raise ValueError(
            f"valid must be boolean with the axes B T, got valid.shape={valid.shape}, "
            f"dtype={valid.dtype} for B={B}, T={T}."
        )
    if most < T:
        raise ValueError(
            f"At most {most} tokens can be appended at a time (the capacity, or the chunk of a "
            f"ring), got T={T}; append them in parts or make a larger cache."
        )


def fits(length: Any, real: Any, *marks: Any, limit: int) -> Any:
    """Says which rows can take their new tokens; by NumPy or JAX, whichever it is given."""
    count = real.sum(axis=1, dtype=np.int32)
    marked = functools.reduce(operator.or_, marks)
    return (count == 0) | ((length + count <= limit) & ~marked)


def can_rewind(kept: Any, length: Any, oldest: Any, *, window: int | None) -> Any:
    """Says which rows can be rewound; by NumPy or JAX, whichever it is given."""
    is_shorter = (kept >= 0) & (kept <= length)
    if window is None:
        return is_shorter
    first_read = (kept - window + 1).clip(0)
    return is_shorter & ((oldest <= first_read) | (first_read == kept))


def refuse(refused: np.ndarray, rule: str, **values: np.ndarray | int) -> None:
    """Raises if a row is refused, naming the rows and their values."""
    which = np.flatnonzero(refused)
    if which.size:
        got = [
            f"{name}={value if isinstance(value, int) else value[which].tolist()}"
            for name, value in values.items()
        ]
        raise ValueError(f"{rule}; got {', '.join(got)} in rows {which.tolist()}.")
