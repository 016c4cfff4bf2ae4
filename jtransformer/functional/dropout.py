"""Dropout: zeroes entries at random and scales the others so that the expectation stays.

Source: Srivastava et al. 2014, sec. 4 and 10, https://jmlr.org/papers/v15/srivastava14a.html
(there the scaling is done in evaluation; here, as usual today, while training).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


def dropout(
    x: Float[Array, "..."], *, rate: float, key: PRNGKeyArray | None = None
) -> Float[Array, "..."]:
    """Zeroes each entry with probability `rate` and divides the others by `1 - rate`.

    Args:
        x: Any activations.
        rate: Probability of zero, in [0, 1).
        key: Random key, consumed once; None (evaluation) returns `x` itself.

    Raises:
        ValueError: If `rate` does not lie in [0, 1).
    """
    rate = float(rate)  # a NumPy float64 is a float, but one whose dtype would count
    if not 0 <= rate < 1:
        raise ValueError(f"A dropout rate must lie in [0, 1), got rate={rate}.")
    if key is None or rate == 0:
        return x
    keep = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(keep, x / (1 - rate), jnp.zeros_like(x))
