"""Residual wiring: one formula for every norm placement, for one sublayer or several at once.

The named placements are rows of `PLACEMENTS`. `stream_scale=0` takes the residual path away;
a learned scalar `branch_scale` that starts at 0 is ReZero, one learned factor per channel
LayerScale. Multipliers change the function: they are never a detail of the implementation.

Sources: post, Vaswani et al. 2017, sec. 3.1, https://arxiv.org/abs/1706.03762; pre, Xiong et
al. 2020, sec. 3, https://arxiv.org/abs/2002.04745; sandwich, Ding et al. 2021 (CogView),
https://arxiv.org/abs/2105.13290, and Kim et al. 2025 (Peri-LN), sec. 3,
https://arxiv.org/abs/2502.02732; branch, OLMo Team 2024, sec. 3,
https://arxiv.org/abs/2501.00656; stream scale, Wang et al. 2022 (DeepNet), sec. 4,
https://arxiv.org/abs/2203.00555; branch scale, Bachlechner et al. 2020 (ReZero), sec. 3,
https://arxiv.org/abs/2003.04887, per channel Touvron et al. 2021 (LayerScale), sec. 2,
https://arxiv.org/abs/2103.17239; parallel sublayers, Wang and Komatsuzaki 2021 (GPT-J),
https://github.com/kingoflolz/mesh-transformer-jax, Chowdhery et al. 2022 (PaLM), sec. 2,
https://arxiv.org/abs/2204.02311, with two norms Black et al. 2022 (GPT-NeoX), sec. 2,
https://arxiv.org/abs/2204.06745.
"""

import functools
import operator
from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

from jtransformer.functional.dropout import DropoutKey, dropout, split_key

Transform = Callable[[Float[Array, "..."]], Float[Array, "..."]]
"""A function of the stream that keeps its shape: a sublayer or a norm with its parameters."""
OneOrEach = Transform | Sequence[Transform | None] | None
"""A norm that several sublayers share, or one for each; None is the identity."""


def residual(
    x: Float[Array, "*batch D"],
    sublayer: Transform,
    *,
    norm_in: Transform | None = None,
    norm_branch: Transform | None = None,
    norm_out: Transform | None = None,
    branch_scale: float | Float[Array, "..."] = 1.0,
    stream_scale: float | Float[Array, "..."] = 1.0,
    dropout_rate: float | Float[Array, ""] = 0.0,
    key: DropoutKey | None = None,
) -> Float[Array, "*batch D"]:
    """Adds a sublayer to the stream.

    `norm_out(stream_scale x + branch_scale dropout(norm_branch(sublayer(norm_in(x)))))`

    Args:
        x: The residual stream.
        sublayer: Attention, feed-forward or any function that keeps the shape.
        norm_in: Norm before the sublayer; None is the identity.
        norm_branch: Norm after the sublayer, before the sum; None is the identity.
        norm_out: Norm after the sum; None is the identity.
        branch_scale: Factor of the branch: a number, a scalar array or one factor per channel.
        stream_scale: Factor of the stream, of the same kinds.
        dropout_rate: Probability with which an entry of the branch is zeroed.
        key: Random key of the dropout; None (evaluation) means none is dropped.

    Returns:
        The stream after the sublayer, in `x.dtype`; scales are cast to it.

    Raises:
        ValueError: If the branch has another shape than the stream, or the rate does not lie
            in [0, 1).
    """
    branch = _finished(sublayer(_normed(x, norm_in)), x, norm_branch, dropout_rate, key)
    return _normed(_scaled(x, stream_scale) + _scaled(branch, branch_scale), norm_out)


def parallel_residual(
    x: Float[Array, "*batch D"],
    sublayers: Sequence[Transform],
    *,
    norms_in: OneOrEach = None,
    norms_branch: OneOrEach = None,
    norm_out: Transform | None = None,
    branch_scale: float | Float[Array, "..."] = 1.0,
    stream_scale: float | Float[Array, "..."] = 1.0,
    dropout_rate: float | Float[Array, ""] = 0.0,
    key: DropoutKey | None = None,
) -> Float[Array, "*batch D"]:
    """Adds several sublayers that all read the same stream.

    `norm_out(stream_scale x + branch_scale Σ_i dropout(norm_branch_i(sublayer_i(norm_in_i(x)))))`

    With one sublayer and no dropout this is `residual`. Two after one another differ from it by
    what the second makes of the first's output.

    Args:
        x: The residual stream.
        sublayers: Functions that keep the shape, such as attention and feed-forward.
        norms_in: Norm before the sublayers: one that all share (GPT-J, PaLM; it is computed
            once), or a sequence with one for each (GPT-NeoX); None is the identity.
        norms_branch: Norm after each sublayer, given likewise.
        norm_out: Norm after the sum; None is the identity.
        branch_scale: Factor of every branch: a number, a scalar array or one per channel.
        stream_scale: Factor of the stream, of the same kinds.
        dropout_rate: Probability with which an entry of a branch is zeroed.
        key: Random key of the dropout, split into one for each branch; None means none.

    Returns:
        The stream after the sublayers, in `x.dtype`; scales are cast to it.

    Raises:
        ValueError: If there is no sublayer, a sequence of norms has another length, a branch
            has another shape than the stream, or the rate does not lie in [0, 1).
    """
    n = len(sublayers)
    if n == 0:
        raise ValueError("parallel_residual needs at least one sublayer, got none.")
    if isinstance(norms_in, Sequence):
        inputs = [_normed(x, norm) for norm in _one_each("norms_in", norms_in, n)]
    else:
        inputs = [_normed(x, norms_in)] * n
    after = _one_each("norms_branch", norms_branch, n)
    keys = split_key(key, n)
    branches = [
        _finished(sublayer(inputs[i]), x, after[i], dropout_rate, keys[i])
        for i, sublayer in enumerate(sublayers)
    ]
    total = functools.reduce(operator.add, branches)
    return _normed(_scaled(x, stream_scale) + _scaled(total, branch_scale), norm_out)


def _one_each(name: str, norms: OneOrEach, n: int) -> Sequence[Transform | None]:
    if not isinstance(norms, Sequence):
        return [norms] * n
    if len(norms) != n:
        raise ValueError(
            f"{name} must hold one norm for each sublayer, got {len(norms)} norms for {n} "
            "sublayers; pass one function alone to share it."
        )
    return norms


def _normed(x: Array, norm: Transform | None) -> Array:
    return x if norm is None else norm(x)


def _finished(
    branch: Array,
    x: Array,
    norm: Transform | None,
    rate: float | Array,
    key: DropoutKey | None,
) -> Array:
    """Returns a branch as it enters the sum, but for its factor."""
    branch = _normed(branch, norm).astype(x.dtype)
    if branch.shape != x.shape:
        raise ValueError(
            f"A branch must keep the shape of the stream, got branch.shape={branch.shape} for "
            f"x.shape={x.shape}."
        )
    return dropout(branch, rate=rate, key=key)


def _scaled(x: Array, scale: float | Array) -> Array:
    if isinstance(scale, int | float):
        # A NumPy float64 is a float, but one whose dtype would count.
        return x * float(scale)
    return x * jnp.broadcast_to(scale.astype(x.dtype), x.shape)
