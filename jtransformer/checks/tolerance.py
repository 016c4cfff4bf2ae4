"""How far two ways to compute the same numbers may differ, from the types in which they do.

Two programs of one function differ in the order of their sums and in where results are rounded.
Rounding errors are taken as independent, of the size of the machine epsilon relative to what is
rounded, so that n of them add up to sqrt(n) (Higham and Mary 2019, "A new approach to probabilistic
rounding error analysis", thm 2.4, https://doi.org/10.1137/18M1226312). With sublayers that each
form sums of `terms` products in float32 (what every device does, also for narrower inputs) and
round results `ROUNDED` times to their own type, a model of `depth` sublayers differs by

    SAFETY * (eps(sums) * sqrt(terms * depth) + eps(type) * sqrt(ROUNDED * depth))

relative to the size of its logits, which norms keep level along the depth. Sizes are root mean
squares over the vocabulary at a position, so that the largest of many numbers need no allowance.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SAFETY = 4.0
"""Standard deviations that are allowed."""
ROUNDED = 8
"""Results that a sublayer rounds: norm, three projections, read, output, branch and sum."""


class Rounding(NamedTuple):
    """What decides how rounding adds up in a model.

    Attributes:
        dtype: The coarsest floating-point type in which a part of it is computed.
        depth: Its sublayers, one behind the other.
        terms: Products in its longest sum.
    """

    dtype: Any
    depth: int
    terms: int

    def limit(self) -> float:
        """Returns the difference allowed between two programs, relative to the logits."""
        sums = jnp.float64 if jnp.dtype(self.dtype) == jnp.float64 else jnp.float32
        added = epsilon(sums) * math.sqrt(self.terms * self.depth)
        return SAFETY * (added + epsilon(self.dtype) * math.sqrt(ROUNDED * self.depth))


def epsilon(dtype: Any) -> float:
    """Returns the distance from 1 to the next number of a type."""
    return float(jnp.finfo(dtype).eps)


def exact(x: Any) -> np.ndarray:
    """Returns an array in double precision."""
    return np.asarray(jax.device_get(x)).astype(np.float64)


def size(x: Any) -> float:
    """Returns the root mean square of an array."""
    return float(np.sqrt(np.mean(np.square(exact(x)))))


def distance(found: Any, expected: Any) -> float:
    """Returns how far logits are from others, at the position where they are farthest.

    Args:
        found: Logits, `... V`.
        expected: Likewise.

    Returns:
        The largest root mean square of a difference over the last axis, relative to that of all
        that is expected; not a number where either has none.
    """
    found, expected = exact(found), exact(expected)
    if found.shape != expected.shape:
        return math.nan
    worst = float(np.sqrt(np.mean(np.square(found - expected), axis=-1)).max())
    return worst if worst == 0.0 else worst / max(size(expected), np.finfo(np.float64).tiny)
