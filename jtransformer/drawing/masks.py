"""Small pictures of what a query sees, drawn by the masks that attention itself uses.

A window of thousands of tokens does not fit a picture of twelve: then the picture shows every so
many-th token, at its true position, under the true mask.
"""

import jax.numpy as jnp
import numpy as np

from jtransformer import functional as F
from jtransformer.drawing.diagram import Mask

CELLS = 12
"""Queries and keys of a picture."""
_NEAR = 4
"""How many cells a window has in it."""
PREFIX = 4
"""How many cells of the picture are prefix; how long it is is said by each call of a model."""


def self_mask(*, causal: bool, window: int | None = None, has_prefix: bool = False) -> Mask:
    """Draws what tokens see of one another.

    Args:
        causal: Whether a token sees itself and earlier ones alone.
        window: Positions nearer than this are seen; None is all.
        has_prefix: Whether the first tokens see one another.
    """
    step = 1 if window is None else max(1, -(-window // _NEAR))
    positions = step * jnp.arange(CELLS, dtype=jnp.int32)[None]
    drawn = F.visible(
        positions,
        positions,
        causal=causal,
        window=window,
        prefix_length=step * PREFIX if has_prefix else None,
    )
    words = "causal: itself and earlier tokens" if causal else "bidirectional: all tokens"
    if has_prefix:
        words = "prefix: all of it; then causal"
    if window is not None:
        near = f"{window:,} nearest" if causal else f"{window - 1:,} to each side"
        words = f"{words.partition(':')[0]}, window: {near}"
    return Mask(_cells(drawn), words, step)


def cross_mask() -> Mask:
    """Draws what tokens see of the memory of an encoder."""
    drawn = F.cross_mask(CELLS, jnp.ones((1, CELLS), bool))
    return Mask(_cells(drawn), "all tokens of the source", 1)


def _cells(drawn: jnp.ndarray) -> tuple[tuple[bool, ...], ...]:
    return tuple(tuple(map(bool, row)) for row in np.asarray(drawn)[0, 0])
