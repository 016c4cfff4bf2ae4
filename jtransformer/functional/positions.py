"""Positions of tokens, and what is added to the embeddings for them: sinusoidal and learned.

Sources: Vaswani et al. 2017, sec. 3.5, https://arxiv.org/abs/1706.03762; the concatenated
layout is that of the authors' code, tensor2tensor (`get_timing_signal_1d`),
https://github.com/tensorflow/tensor2tensor, and of fairseq; the split layout that of Marian
(Junczys-Dowmunt et al. 2018, https://arxiv.org/abs/1804.00344, in its code); learned positions,
Gehring et al. 2017, sec. 3.1, https://arxiv.org/abs/1705.03122.
"""

from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jtransformer.functional._angles import angles
from jtransformer.functional._arrays import require_integers
from jtransformer.functional.embedding import embed

SinusoidLayout = Literal["interleaved", "split", "concatenated"]
"""In which order sines and cosines stand, and with which frequencies."""


def sinusoidal_positions(
    T: int,
    D: int,
    *,
    layout: SinusoidLayout = "interleaved",
) -> Float[Array, "T D"]:
    """Computes the sines and cosines of the positions 0 … T - 1.

    "interleaved" is the paper's: feature 2i is `sin(t w)` and feature 2i + 1 is `cos(t w)` with
    `w = 10000^(-2i/D)`; an odd width ends with a sine. "split" has the same features, all sines
    before all cosines. "concatenated" has all sines, then all cosines, with its own frequencies
    `w = 10000^(-i/(C - 1))` for C = D // 2 pairs; an odd width ends with zeros. In general it is
    no permutation of the other two.

    Args:
        T: Number of positions.
        D: Model width.
        layout: Which of the three.

    Returns:
        The table in the default float dtype; angles are formed in float64, so that it is right
        to the last digits at any position.

    Raises:
        ValueError: If T or D is too small or `layout` is unknown.
    """
    if T < 0 or D < 2:
        raise ValueError(f"Sinusoidal positions need T >= 0 and D >= 2, got T={T}, D={D}.")
    angle = np.arange(T, dtype=np.float64)[:, None] * _radians_per_token(D, layout)
    table_TD = np.zeros((T, D))
    if layout == "interleaved":
        table_TD[:, 0::2] = np.sin(angle)
        table_TD[:, 1::2] = np.cos(angle[:, : D // 2])
    else:
        C, pairs = D // 2, angle.shape[1]
        table_TD[:, :pairs] = np.sin(angle)
        table_TD[:, pairs : pairs + C] = np.cos(angle[:, :C])
    return jnp.asarray(table_TD, jnp.result_type(float))


def sinusoidal_embedding(
    positions: Int[Array, "*batch"],
    D: int,
    *,
    layout: SinusoidLayout = "interleaved",
) -> Float[Array, "*batch D"]:
    """Computes the rows of `sinusoidal_positions` for positions known only when it runs.

    Serves packed documents, ragged prompts and decoding, where a token's position is not its
    place in the array.

    Args:
        positions: Token positions; need not start at zero or be contiguous.
        D: Model width.
        layout: As for `sinusoidal_positions`.

    Returns:
        Sines and cosines in the default float dtype, with an error below 1e-6 (in float32) at
        every 32-bit position.

    Raises:
        ValueError: If positions are not integers, D is too small or `layout` is unknown.
    """
    require_integers(positions, "positions")
    if D < 2:
        raise ValueError(f"Sinusoidal positions need D >= 2, got D={D}.")
    dtype = jnp.result_type(float)
    angle = angles(positions, _radians_per_token(D, layout), dtype)
    if layout == "interleaved":
        pairs = jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1)
        return pairs.reshape(*positions.shape, -1)[..., :D]
    if layout == "split":
        return jnp.concatenate([jnp.sin(angle), jnp.cos(angle[..., : D // 2])], axis=-1)
    rest = jnp.zeros((*positions.shape, D % 2), dtype)
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle), rest], axis=-1)


def learned_positions(
    positions: Int[Array, "*batch"], table: Float[Array, "M D"]
) -> Float[Array, "*batch D"]:
    """Looks up one learned vector per position.

    Args:
        positions: Token positions, in 0 … M - 1.
        table: One row per position.

    Raises:
        ValueError: As `embed`, if a position whose value is known lies beyond the table.
    """
    return embed(positions, table)


def token_positions(
    valid: Bool[Array, "B T"], *, first: int | Int[Array, " B"] = 0
) -> Int[Array, "B T"]:
    """Counts the real tokens of each row: the positions of padded and ragged batches.

    `positions[b, t] = first - 1 + Σ_{i ≤ t} valid[b, i]` at a real token, so that padding on the
    left, on the right or in between shifts no position.

    Args:
        valid: True at real tokens.
        first: Position of the first real token. RoBERTa counts from its padding id + 1; with one
            number per row, the tokens that a row has had already, a ragged batch goes on.

    Returns:
        Positions in int32. Those of padding are `first - 1`, or 0 where that is negative, and so
        rows of a table that exist.

    Raises:
        ValueError: If `first` is a negative number.
    """
    if valid.ndim != 2 or valid.dtype != jnp.bool_:
        raise ValueError(
            "valid must be Boolean with the axes B T, got "
            f"valid.shape={valid.shape}, dtype={valid.dtype}."
        )
    if isinstance(first, int | np.integer) and first < 0:
        raise ValueError(f"first must not be negative, got first={first}.")
    before_Bx = jnp.asarray(first, jnp.int32).reshape(-1, 1) - 1
    counted = jnp.cumsum(valid, axis=1, dtype=jnp.int32) + before_Bx
    return jnp.where(valid, counted, jnp.maximum(before_Bx, 0))


def _radians_per_token(D: int, layout: str) -> np.ndarray:
    """Returns by how much the angle of each pair of features grows from token to token."""
    if layout in ("interleaved", "split"):
        return 10_000.0 ** (-np.arange(0, D, 2) / D)
    if layout == "concatenated":
        C = D // 2
        return 10_000.0 ** (-np.arange(C) / max(C - 1, 1))
    raise ValueError(f"Unknown layout {layout!r}; use 'interleaved', 'split' or 'concatenated'.")
