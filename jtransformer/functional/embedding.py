"""Token embeddings and the tied readout.

A tied table serves two ends that want different sizes, and models differ in where they multiply.
Here the scale of `embed` acts on the rows that were looked up, and the scale of `readout` on the
hidden states, before the product; the table itself is scaled by neither.

Sources: Vaswani et al. 2017, sec. 3.4, https://arxiv.org/abs/1706.03762 (rows times `sqrt(D)`);
tying, Press and Wolf 2016, sec. 3, https://arxiv.org/abs/1608.05859; hidden states times
`D^-0.5`, T5, Raffel et al. 2019, https://arxiv.org/abs/1910.10683, in their code alone.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jtransformer.functional._arrays import known
from jtransformer.functional.linear import Rows, linear


def embed(
    tokens: Int[Array, "*batch"],
    table: Float[Array, "V D"],
    *,
    scale: float | None = None,
) -> Float[Array, "*batch D"]:
    """Looks up one row of the table per token: `scale * E[token]`.

    Args:
        tokens: Rows to look up, in 0 … V - 1. Ids are refused where their values are known,
            which is outside a traced function; inside, one beyond the table reads its nearest
            row (never a row of NaN), so data are checked where they enter a program. For this
            a call outside a trace reads the ids back to the host.
        table: One row per token id.
        scale: Multiplies the rows, such as `sqrt(D)`; it is rounded to the table's dtype first,
            as the models do that need it (`sqrt(3072)` is 55.5 in bfloat16). None is none.

    Raises:
        ValueError: If an id whose value is known lies beyond the table.
    """
    V = table.shape[0]
    if tokens.size and (values := known(tokens)) is not None:
        low, high = int(values[0].min()), int(values[0].max())
        if low < 0 or high >= V:
            raise ValueError(
                f"Ids must lie in 0 … {V - 1} (the rows of the table), got {low} … {high}."
            )
    rows = jnp.take(table, tokens, axis=0, mode="clip")
    return rows if scale is None else rows * jnp.asarray(scale, rows.dtype)


def readout(
    hidden: Float[Array, "*batch D"],
    table: Float[Array, "V D"],
    bias: Float[Array, " V"] | None = None,
    *,
    scale: float | None = None,
    rows: Rows = "merged",
) -> Float[Array, "*batch V"]:
    """Computes the logits `(scale * h) Eᵀ + b` with the embedding table E: the tied head.

    Args:
        hidden: Final states.
        table: The table that `embed` reads; it receives the gradients of both.
        bias: One summand per token, not scaled; None is none.
        scale: Multiplies the hidden states, rounded to their dtype first; a tied T5 has `D^-0.5`,
            an untied one (version 1.1) none. None is none.
        rows: As for `linear`.

    Raises:
        ValueError: If the widths do not fit.
    """
    if scale is not None:
        hidden = hidden * jnp.asarray(scale, hidden.dtype)
    return linear(hidden, jnp.transpose(table), bias, rows=rows)
