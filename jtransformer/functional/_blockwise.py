"""A row-wise function of the queries, taken one block of queries at a time.

The rows of a softmax do not meet, so attention over a block of queries is the same function of
fewer rows. In a loop of many equal blocks there is memory for the scores of one block alone, and
the backward pass computes each block again instead of keeping its weights. In a few steps that
are written out each block has its own keys, and those that none of its queries sees are left out.

Sources: Rabe and Staats 2021, https://arxiv.org/abs/2112.05682 (there the keys are split too;
here a block holds all its keys, so that its softmax is the plain one).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jtransformer.functional.visibility import Visibility

ROWS = 128
"""Queries in a block; on CPU 64 and 256 take about as long, 32 and 512 longer."""

FEWEST_ROWS = 64
"""Queries in a block where 128 have more than `BLOCK_SCORES` scores."""

BLOCK_SCORES = 2**22
"""Scores B·N·rows·S of a block, 16 MiB in float32; 64 queries may have more of them."""

STEPS = 4
"""Most blocks that are written out: of a causal product they leave out 3/8 of the possible 1/2."""

Mask = Array | Visibility | None


def block_rows(shape: tuple[int, ...]) -> int:
    """Returns how many queries form a block, for scores of the shape `B N T S`.

    A number that divides T is preferred, since a rest is compiled as a second program.
    """
    B, N, T, S = shape
    most = min(ROWS, max(FEWEST_ROWS, BLOCK_SCORES // max(1, B * N * S)))
    return next((rows for rows in range(most, most // 2, -1) if T % rows == 0), most)


def over_query_blocks(
    attend: Callable[[Array, Array | None, Array | None], Array],
    q: Array,
    *,
    mask: Mask,
    bias: Array | None,
    rows: int,
) -> Array:
    """Computes `attend(q, mask, bias)` block by block.

    Args:
        attend: Maps queries `B T N H`, their mask and their bias to `B T N Hv`, row by row.
        q: All queries.
        mask: Mask of four axes, or what one is drawn from.
        bias: Bias of four axes.
        rows: How many queries form a block.

    Returns:
        `B T N Hv`; the last block is what is left.
    """
    B, T, N, H = q.shape
    n_blocks = T // rows
    whole = n_blocks * rows
    bias_is_full = bias is not None and bias.shape[2] == T

    def one(start: int | Array, block: Array, block_bias: Array | None) -> Array:
        visible = _mask_of(mask, start, block.shape[1], T)
        return attend(block, visible, block_bias if bias_is_full else bias)

    def step(_: None, block: tuple[Array, Array, Array | None]) -> tuple[None, Array]:
        # In a loop XLA cannot merge the second computation of a block with the first.
        return None, jax.checkpoint(one, prevent_cse=False)(*block)

    parts = []
    if n_blocks:
        starts = rows * jnp.arange(n_blocks)
        blocks = jnp.moveaxis(q[:, :whole].reshape(B, n_blocks, rows, N, H), 1, 0)
        biases = None
        if bias is not None and bias_is_full:
            # Split, not sliced: each step's gradient of a slice would be as large as the bias.
            b, n, _, s = bias.shape
            biases = jnp.moveaxis(bias[:, :, :whole].reshape(b, n, n_blocks, rows, s), 2, 0)
        _, out = jax.lax.scan(step, None, (starts, blocks, biases))
        parts.append(jnp.moveaxis(out, 0, 1).reshape(B, whole, N, out.shape[-1]))
    if whole < T or not n_blocks:
        rest_bias = bias[:, :, whole:] if bias is not None and bias_is_full else None
        parts.append(jax.checkpoint(one)(whole, q[:, whole:], rest_bias))
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)


def over_steps(
    attend: Callable[[Array, Array | None, Array | None, slice], Array],
    q: Array,
    *,
    mask: Visibility,
    bias: Array | None,
) -> Array:
    """Computes `attend(q, mask, bias, keys)` in a few blocks, each with the keys it may see alone.

    Args:
        attend: Maps queries `B T N H`, their mask, their bias and which keys are read to
            `B T N Hv`, row by row.
        q: All queries.
        mask: What is seen, by place.
        bias: Bias of four axes.

    Returns:
        `B T N Hv`.
    """
    T = q.shape[1]
    steps = max(1, min(STEPS, T // FEWEST_ROWS))
    rows = max(1, -(-T // steps))
    reach = T if mask.window is None else mask.window - 1
    parts = []
    for start in range(0, T, rows):
        stop = min(start + rows, T)
        last = stop if mask.causal else min(stop + reach, T)
        queries, keys = slice(start, stop), slice(max(0, start - reach), last)
        some_bias = None
        if bias is not None:
            some_bias = bias if bias.shape[2] == 1 else bias[:, :, queries]
            some_bias = some_bias if bias.shape[3] == 1 else some_bias[..., keys]
        parts.append(attend(q[:, queries], mask.part(queries, keys).draw(), some_bias, keys))
    return jnp.concatenate(parts, axis=1)


def _mask_of(mask: Mask, start: int | Array, rows: int, T: int) -> Array | None:
    """Cuts or draws the mask of `rows` queries from `start` on."""
    if isinstance(mask, Visibility):
        return mask.of_queries(start, rows).draw()
    if mask is None or mask.shape[2] != T:
        return mask
    return jax.lax.dynamic_slice_in_dim(mask, start, rows, axis=2)
