"""Dropout: zeroes entries at random and scales the others so that the expectation stays.

With a key for each row, what a row loses depends on its key alone, and not on which rows are beside
it or on which device it lies.

Source: Srivastava et al. 2014, sec. 4 and 10, https://jmlr.org/papers/v15/srivastava14a.html
(there the scaling is done in evaluation; here, as usual today, while training).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

DropoutKey = PRNGKeyArray | Key[Array, " B"]
"""One key, or one for each row: for each entry of the first axis."""


def dropout(
    x: Float[Array, "..."],
    *,
    rate: float | Float[Array, ""],
    key: DropoutKey | None = None,
) -> Float[Array, "..."]:
    """Zeroes each entry with probability `rate` and divides the others by `1 - rate`.

    Args:
        x: Any activations.
        rate: Probability of zero, in [0, 1). One given as an array is not checked, and one
            program serves all its values.
        key: Random key, consumed once; or one for each entry of the first axis. None (evaluation)
            returns `x` itself.

    Raises:
        ValueError: If `rate` does not lie in [0, 1), or there are keys for another number of rows.
    """
    if not isinstance(rate, Array):
        rate = float(rate)  # a NumPy float64 is a float, but one whose dtype would count
        if not 0 <= rate < 1:
            raise ValueError(f"A dropout rate must lie in [0, 1), got rate={rate}.")
    if key is None or not may_drop(rate):
        return x
    share = 1 - rate
    keep = _kept(key, share, x.shape)
    if isinstance(share, Array):
        # What XLA makes of the division by a constant, so that both round alike.
        scaled = x * (1 / share).astype(x.dtype)
    else:
        scaled = x / share
    return jnp.where(keep, scaled, jnp.zeros_like(x))


def split_key(key: DropoutKey | None, parts: int) -> list[DropoutKey | None]:
    """Splits a key, or the key of each row, into one for each part; None into as many Nones."""
    if key is None:
        return [None] * parts
    if not has_rows(key):
        return [*jax.random.split(key, parts)]
    split = jax.vmap(lambda own: jax.random.split(own, parts), out_axes=1)(key)
    return [*split]


def has_rows(key: DropoutKey) -> bool:
    """Says whether there is a key for each row; a key of the old kind is an array of numbers."""
    return jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim > 0


def _kept(key: DropoutKey, share: float | Array, shape: tuple[int, ...]) -> Array:
    if not has_rows(key):
        return jax.random.bernoulli(key, share, shape)
    if key.shape != shape[:1]:
        raise ValueError(
            f"Keys of rows must be as many as there are, got {key.size} keys for x.shape={shape}; "
            "give one key, or one for each entry of the first axis."
        )
    return jax.vmap(lambda own: jax.random.bernoulli(own, share, shape[1:]))(key)


def may_drop(rate: float | Float[Array, ""]) -> bool:
    """Says whether a rate can drop anything; an array may hold any rate, so it can."""
    return isinstance(rate, Array) or rate > 0
