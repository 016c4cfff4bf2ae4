"""Token embeddings and the tied readout.

Sources: Vaswani et al. 2017, sec. 3.4, https://arxiv.org/abs/1706.03762; tying, Press and
Wolf 2016, sec. 3, https://arxiv.org/abs/1608.05859.
"""

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jtransformer.functional.linear import linear


def embed(tokens: Int[Array, "*batch"], table: Float[Array, "V D"]) -> Float[Array, "*batch D"]:
    """Looks up one row of the table per token.

    Args:
        tokens: Rows to look up, in 0 … V - 1. Ids are refused where their values are known,
            which is outside a traced function; inside, one beyond the table reads its nearest
            row (never a row of NaN), so data are checked where they enter a program.
        table: One row per token id.

    Raises:
        ValueError: If an id whose value is known lies beyond the table.
    """
    V = table.shape[0]
    if not isinstance(tokens, Tracer) and tokens.size:
        # NumPy's own array: a jax one would be traced, were this called while tracing.
        known = np.asarray(tokens)
        low, high = int(known.min()), int(known.max())
        if low < 0 or high >= V:
            raise ValueError(
                f"Ids must lie in 0 … {V - 1} (the rows of the table), got {low} … {high}."
            )
    return jnp.take(table, tokens, axis=0, mode="clip")


def readout(
    hidden: Float[Array, "*batch D"],
    table: Float[Array, "V D"],
    bias: Float[Array, " V"] | None = None,
) -> Float[Array, "*batch V"]:
    """Computes the logits `h Eᵀ + b` with the embedding table E: the tied head.

    Args:
        hidden: Final states.
        table: The table that `embed` reads; it receives the gradients of both.
        bias: One summand per token; None is none.

    Raises:
        ValueError: If the widths do not fit.
    """
    return linear(hidden, jnp.transpose(table), bias)
