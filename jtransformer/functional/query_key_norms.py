"""Norms of the queries and keys, which bound the scores of attention.

Published models normalise over two different sets of features, and weights trained with one
are of no use to the other, so each has its own name:

* `head_norm`: over each head on its own, with one scale for all heads (Qwen3).
* `width_norm`: over all heads together, that is, over the whole projected width (OLMo 2).

Either is used between the projection and the positions: `rope(head_norm(q, scale), positions)`.
A rotation keeps the root mean square, so without a scale the order would not matter; but a
scale acts on channels that the rotation would already have mixed. Queries and keys have
scales of their own. The norm takes away a freedom of plain attention: `Q -> QR, K -> KR^-T`
leaves its scores alone for every R, and here for no R but special ones (rotations of a head
that is normalised without a scale).

Sources: Henry et al. 2020, https://arxiv.org/abs/2010.04245 (unit length, and one learned
factor in the place of `1/sqrt(H)`: here the scale of the norm, and attention keeps its
`1/sqrt(H)`); Dehghani et al. 2023, sec. 2, https://arxiv.org/abs/2302.05442 (layer norm of
queries and keys); OLMo Team 2024, sec. 2.1, https://arxiv.org/abs/2501.00656; Qwen Team 2025,
sec. 2, https://arxiv.org/abs/2505.09388. Where we differ: `head_norm` is `rms_norm` of each head
with its defaults; call that directly where a published model rounds before it scales (Qwen3:
`cast="before"`) or keeps its scale less one (Gemma 3: `scale_offset=1.0`).
"""

from jaxtyping import Array, Float

from jtransformer.functional.norms import rms_norm


def head_norm(
    x: Float[Array, "B T N H"],
    scale: Float[Array, " H"] | None = None,
    *,
    epsilon: float = 1e-6,
) -> Float[Array, "B T N H"]:
    """Normalises each query or key head on its own.

    `scale * x / sqrt(mean(x^2) + epsilon)` with the mean over H. With it no score `q k` exceeds
    `H max|scale_q scale_k|` in size, whatever the projections have become.

    Args:
        x: Queries or keys, before their positions.
        scale: One factor per channel, the same for all heads; None is all ones.
        epsilon: Added to the mean square, at least 0.

    Returns:
        The normalised heads in `x.dtype`; statistics are at least float32.

    Raises:
        ValueError: As `rms_norm`.
    """
    return rms_norm(x, scale, epsilon=epsilon)


def width_norm(
    x: Float[Array, "B T N H"],
    scale: Float[Array, "N H"] | None = None,
    *,
    epsilon: float = 1e-6,
) -> Float[Array, "B T N H"]:
    """Normalises all query or key heads of a position together.

    `scale * x / sqrt(mean(x^2) + epsilon)` with the mean over N and H: heads keep their relative
    sizes. No score `q k` exceeds `N H max|scale_q scale_k|`, which one head reaches alone.

    Args:
        x: Queries or keys, before their positions.
        scale: One factor per head and channel; None is all ones.
        epsilon: Added to the mean square, at least 0.

    Returns:
        The normalised heads in `x.dtype`; statistics are at least float32.

    Raises:
        ValueError: If `scale` has other axes than the heads of `x`, or as `rms_norm`.
    """
    heads = x.shape[-2:]
    if scale is not None and scale.shape != heads:
        raise ValueError(
            f"scale must have one entry per head and channel, got scale.shape={scale.shape} for "
            f"x.shape={x.shape}; use {heads}."
        )
    flat = x.reshape(*x.shape[:-2], heads[0] * heads[1])
    flat_scale = None if scale is None else scale.reshape(-1)
    return rms_norm(flat, flat_scale, epsilon=epsilon).reshape(x.shape)
