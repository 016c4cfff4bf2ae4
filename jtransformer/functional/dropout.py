"""Dropout: zeroes entries at random and scales the others so that the expectation stays.

Source: Srivastava et al. 2014, sec. 4 and 10, https://jmlr.org/papers/v15/srivastava14a.html
(there the scaling is done in evaluation; here, as usual today, while training).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


def dropout(
    x: Float[Array, "..."],
    *,
    rate: float | Float[Array, ""],
    key: PRNGKeyArray | None = None,
) -> Float[Array, "..."]:
    """Zeroes each entry with probability `rate` and divides the others by `1 - rate`.

    Args:
        x: Any activations.
        rate: Probability of zero, in [0, 1). One given as an array is not checked, and one
            program serves all its values.
        key: Random key, consumed once; None (evaluation) returns `x` itself.

    Raises:
        ValueError: If `rate` does not lie in [0, 1).
    """
    if not isinstance(rate, Array):
        rate = float(rate)  # a NumPy float64 is a float, but one whose dtype would count
        if not 0 <= rate < 1:
            raise ValueError(f"A dropout rate must lie in [0, 1), got rate={rate}.")
    if key is None or not may_drop(rate):
        return x
    share = 1 - rate
    keep = jax.random.bernoulli(key, share, x.shape)
    if isinstance(share, Array):
        # What XLA makes of the division by a constant, so that both round alike.
        scaled = x * (1 / share).astype(x.dtype)
    else:
        scaled = x / share
    return jnp.where(keep, scaled, jnp.zeros_like(x))


def may_drop(rate: float | Float[Array, ""]) -> bool:
    """Says whether a rate can drop anything; an array may hold any rate, so it can."""
    return isinstance(rate, Array) or rate > 0
