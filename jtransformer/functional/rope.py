"""Rotary position embedding (RoPE), in both pairings, exact at any distance.

Each two-channel plane of a query or key is turned by an angle proportional to its position,
so the score of a turned query and a turned key depends on their offset alone. Published code
pairs channels in two ways, and weights trained with one are useless with the other:

* "half": channel i turns with channel i + H/2 (GPT-NeoX, Hugging Face Llama).
* "interleaved": channel 2i turns with channel 2i + 1 (RoFormer, GPT-J).

Source: Su et al. 2021, sec. 3.2.2, https://arxiv.org/abs/2104.09864. Where we differ: the
angle is no float32 product (its cosine is wrong by 2e-4 at position 32,000), see `angles`.
"""

from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jtransformer.functional._angles import angles
from jtransformer.functional._arrays import statistics_dtype


def rope(
    x: Float[Array, "B T N H"],
    positions: Int[Array, "#B T"],
    *,
    theta: float = 10_000.0,
    pairing: Literal["half", "interleaved"] = "half",
) -> Float[Array, "B T N H"]:
    """Turns query or key heads by their positions.

    Plane i turns by `positions * theta^(-2i/H)` radians.

    Args:
        x: Queries or keys.
        positions: Token positions; need not start at zero or be contiguous.
        theta: Base of the frequency ladder; a larger base turns more slowly.
        pairing: Which two channels form a plane; see the module docstring.

    Returns:
        The turned heads, in `x.dtype`; they are computed in at least float32, with an error
        below 1e-6 of the cosines and sines at every 32-bit position.

    Raises:
        ValueError: If the head width is odd, `theta` is not positive, or `pairing` is unknown.
    """
    H = x.shape[-1]
    if H % 2:
        raise ValueError(f"rope needs an even head width, got H={H}.")
    if not jnp.issubdtype(positions.dtype, jnp.integer):
        raise ValueError(f"positions must be integers, got dtype={positions.dtype}.")
    if positions.ndim != 2 or positions.shape[1] != x.shape[1]:
        raise ValueError(
            f"positions must have the axes B T, B full or 1, got positions.shape={positions.shape} "
            f"for x.shape={x.shape}."
        )
    if not theta > 0:
        raise ValueError(f"theta must be positive, got theta={theta}.")
    dtype = statistics_dtype(x)
    radians_per_token_P = float(theta) ** (-np.arange(0, H, 2) / H)
    angle_BTxP = angles(positions, radians_per_token_P, dtype)[:, :, None]
    cos, sin = jnp.cos(angle_BTxP), jnp.sin(angle_BTxP)
    raised = x.astype(dtype)
    if pairing == "half":
        a, b = jnp.split(raised, 2, axis=-1)
        out = jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
    elif pairing == "interleaved":
        a, b = raised[..., 0::2], raised[..., 1::2]
        out = jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape)
    else:
        raise ValueError(f"Unknown pairing {pairing!r}; use 'half' or 'interleaved'.")
    return out.astype(x.dtype)
