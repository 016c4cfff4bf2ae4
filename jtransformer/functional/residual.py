"""Residual wiring: one formula for every norm placement.

`post` has `norm_out` alone, `pre` `norm_in`, `sandwich` `norm_in` and `norm_branch`, `branch`
`norm_branch`; DeepNorm is `post` with a `stream_scale`; `stream_scale=0` takes the residual
path away. Dropout of the branch is part of the function passed as `norm_branch` or `sublayer`.

Sources: post, Vaswani et al. 2017, sec. 3.1, https://arxiv.org/abs/1706.03762; pre, Xiong et
al. 2020, sec. 3, https://arxiv.org/abs/2002.04745; sandwich, Kim et al. 2025 (Peri-LN), sec. 3,
https://arxiv.org/abs/2502.02732; branch, OLMo Team 2024, sec. 3,
https://arxiv.org/abs/2501.00656; stream scale, Wang et al. 2022 (DeepNet), sec. 4,
https://arxiv.org/abs/2203.00555; branch scale, Bachlechner et al. 2020 (ReZero), sec. 3,
https://arxiv.org/abs/2003.04887, per channel Touvron et al. 2021 (LayerScale), sec. 2,
https://arxiv.org/abs/2103.17239.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

Transform = Callable[[Float[Array, "..."]], Float[Array, "..."]]
"""A function of the stream that keeps its shape: a sublayer or a norm with its parameters."""


def residual(
    x: Float[Array, "*batch D"],
    sublayer: Transform,
    *,
    norm_in: Transform | None = None,
    norm_branch: Transform | None = None,
    norm_out: Transform | None = None,
    branch_scale: float | Float[Array, "..."] = 1.0,
    stream_scale: float | Float[Array, "..."] = 1.0,
) -> Float[Array, "*batch D"]:
    """Adds a sublayer to the stream.

    `norm_out(stream_scale x + branch_scale norm_branch(sublayer(norm_in(x))))`

    Args:
        x: The residual stream.
        sublayer: Attention, feed-forward or any function that keeps the shape.
        norm_in: Norm before the sublayer; None is the identity.
        norm_branch: Norm after the sublayer, before the sum; None is the identity.
        norm_out: Norm after the sum; None is the identity.
        branch_scale: Factor of the branch: a number, a scalar array or one factor per channel.
        stream_scale: Factor of the stream, of the same kinds.

    Raises:
        ValueError: If the branch has another shape than the stream.
    """
    branch = sublayer(x if norm_in is None else norm_in(x))
    if norm_branch is not None:
        branch = norm_branch(branch)
    if branch.shape != x.shape:
        raise ValueError(
            f"A branch must keep the shape of the stream, got branch.shape={branch.shape} for "
            f"x.shape={x.shape}."
        )
    out = _scaled(x, stream_scale) + _scaled(branch, branch_scale)
    return out if norm_out is None else norm_out(out)


def _scaled(x: Array, scale: float | Array) -> Array:
    if isinstance(scale, int | float):
        return x * scale
    return x * jnp.broadcast_to(scale.astype(x.dtype), x.shape)
