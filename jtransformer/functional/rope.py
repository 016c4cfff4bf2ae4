"""Rotary position embedding (RoPE): both pairings, partial, extended; exact at any distance.

Each two-channel plane of a query or key is turned by an angle proportional to its position,
so the score of a turned query and a turned key depends on their offset alone. Published code
pairs channels in two ways, and weights trained with one are useless with the other:

* "half": channel i turns with channel i + H/2 (GPT-NeoX, Hugging Face Llama).
* "interleaved": channel 2i turns with channel 2i + 1 (RoFormer, GPT-J).

Where only the first W channels of a head are turned (GPT-J, GPT-NeoX), W takes the place of H.

Source: Su et al. 2021, sec. 3.2.2, https://arxiv.org/abs/2104.09864. Partial rotation: Black et
al. 2022, sec. 2.1, https://arxiv.org/abs/2204.06745. Extensions: see `rope_scaling`. Where we
differ: the angle is no float32 product (its cosine is wrong by 2e-4 at position 32,000), see
`angles`.
"""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jtransformer.functional._angles import angles
from jtransformer.functional._arrays import require_integers, statistics_dtype
from jtransformer.functional.rope_scaling import RopeScaling, attention_factor, rope_frequencies


def rope(
    x: Float[Array, "B T N H"],
    positions: Int[Array, "#B T"],
    *,
    theta: float = 10_000.0,
    pairing: Literal["half", "interleaved"] = "half",
    rotary_width: int | None = None,
    scaling: RopeScaling | None = None,
) -> Float[Array, "B T N H"]:
    """Turns query or key heads by their positions.

    Plane i turns by `positions * theta^(-2i/W)` radians, W being the rotary width.

    Args:
        x: Queries or keys.
        positions: Token positions; need not start at zero or be contiguous.
        theta: Base of the frequency ladder; a larger base turns more slowly.
        pairing: Which two channels form a plane; see the module docstring.
        rotary_width: How many channels are turned, the first ones; the others pass unchanged.
            None is all.
        scaling: An extension of the trained length: `LinearScaling`, `NTKScaling`,
            `Llama3Scaling` or `YarnScaling`; None is none.

    Returns:
        The turned heads, in `x.dtype`; they are computed in at least float32, with an error
        below 1e-6 of the cosines and sines at every 32-bit position, extended or not.

    Raises:
        ValueError: If the rotary width is odd or beyond the head, `theta` is not positive,
            `pairing` is unknown, positions are not integers or have other axes (their batch is
            1 or that of `x`), or the extension is not defined for them.
    """
    H = x.shape[-1]
    if rotary_width is None and H % 2:
        raise ValueError(f"rope needs an even head width, got H={H}; give an even rotary_width.")
    width = H if rotary_width is None else rotary_width
    if width % 2 or not 2 <= width <= H:
        raise ValueError(
            f"rotary_width must be even and in 2 … H, got rotary_width={rotary_width}, H={H}."
        )
    require_integers(positions, "positions")
    if positions.shape not in ((1, x.shape[1]), x.shape[:2]):
        raise ValueError(
            f"positions must have the axes B T, B full or 1, got positions.shape={positions.shape} "
            f"for x.shape={x.shape}."
        )
    dtype = statistics_dtype(x)
    radians_per_token_P = rope_frequencies(width, theta=theta, scaling=scaling)
    angle_BTxP = angles(positions, radians_per_token_P, dtype)[:, :, None]
    cos, sin = jnp.cos(angle_BTxP), jnp.sin(angle_BTxP)
    stretch = attention_factor(scaling)
    if stretch != 1:
        cos, sin = cos * stretch, sin * stretch
    turned = x if width == H else x[..., :width]
    raised = turned.astype(dtype)
    if pairing == "half":
        a, b = jnp.split(raised, 2, axis=-1)
        out = jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
    elif pairing == "interleaved":
        a, b = raised[..., 0::2], raised[..., 1::2]
        out = jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(turned.shape)
    else:
        raise ValueError(f"Unknown pairing {pairing!r}; use 'half' or 'interleaved'.")
    out = out.astype(x.dtype)
    return out if width == H else jnp.concatenate([out, x[..., width:]], axis=-1)
