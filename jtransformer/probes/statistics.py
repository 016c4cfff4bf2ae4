"""What activations of one layer are like, over the positions that count.

Every function takes `counted`, and what lies elsewhere has no part in its answer, be it NaN. With
nothing counted the answer is NaN. All are computed in at least float32.

Sources: outlier channels, Dettmers et al. 2022, sec. 4, https://arxiv.org/abs/2208.07339 (there
by a threshold on single entries; here by the size of a channel beside that of the median one);
entropy of attention weights, Zhai et al. 2023, sec. 3, https://arxiv.org/abs/2303.06296.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jtransformer import functional as F
from jtransformer.modules.layers import at_least_float32

FLAT_SLOPE = 0.05
"""A gate is saturated where the slope of its activation is nearer to 0 than this."""


class StreamSize(NamedTuple):
    """How large the residual stream is.

    Attributes:
        rms: Root mean square over positions and channels.
        outlier_ratio: Largest root mean square of a channel, over that of the median channel.
        outlier_channel: Which channel is the largest.
    """

    rms: Float[Array, "..."]
    outlier_ratio: Float[Array, "..."]
    outlier_channel: Int[Array, "..."]


def stream_size(x: Float[Array, "B T D"], counted: Bool[Array, "B T"]) -> StreamSize:
    """Measures the residual stream at one depth."""
    squares = jnp.square(_raised(x))
    mean_D = jax.vmap(_mean, in_axes=(2, None))(squares, counted)
    channels_D = jnp.sqrt(mean_D)
    return StreamSize(
        rms=jnp.sqrt(jnp.mean(mean_D)),
        outlier_ratio=jnp.max(channels_D) / jnp.median(channels_D),
        outlier_channel=jnp.argmax(channels_D),
    )


class Entropy(NamedTuple):
    """How widely heads spread their weights.

    Attributes:
        nats: Mean entropy of a query's weights, over counted queries that see a key.
        relative: Mean of the entropy over that of equal weights, `ln n` for a query that sees n
            keys; over counted queries that see at least two.
    """

    nats: Float[Array, "*layers N"]
    relative: Float[Array, "*layers N"]


def attention_entropy(
    weights: Float[Array, "B N T S"], counted: Bool[Array, "B T"], seen: Int[Array, "B T"]
) -> Entropy:
    """Measures the attention weights of a sublayer.

    Args:
        weights: A row sums to 1, or to 0 where the query sees no key.
        counted: Queries that count.
        seen: How many keys each query sees.
    """
    nats_NBT = jnp.moveaxis(jnp.sum(jax.scipy.special.entr(_raised(weights)), axis=-1), 1, 0)
    has_choice = seen > 1
    most = jnp.log(jnp.where(has_choice, seen, 2).astype(nats_NBT.dtype))
    over_heads = jax.vmap(_mean, in_axes=(0, None))
    return Entropy(
        nats=over_heads(nats_NBT, counted & (seen > 0)),
        relative=over_heads(nats_NBT / most[None], counted & has_choice),
    )


def keys_seen(mask: Array | F.Visibility | None, shape: tuple[int, int, int]) -> Int[Array, "B T"]:
    """Counts the keys that each query sees.

    Args:
        mask: As for `functional.dot_product_attention`, the same for all heads; None is all.
        shape: B, T and S.
    """
    B, T, S = shape
    if mask is None:
        return jnp.full((B, T), S)
    drawn = mask.draw() if isinstance(mask, F.Visibility) else mask
    return jnp.broadcast_to(jnp.sum(drawn, axis=-1)[:, 0], (B, T))


class SilentUnits(NamedTuple):
    """How often hidden units are 0.

    Attributes:
        zero_fraction: Share of activations that are 0.
        dead_fraction: Share of units that are 0 at every position.
    """

    zero_fraction: Float[Array, "..."]
    dead_fraction: Float[Array, "..."]


def silent_units(activations: Float[Array, "B T F"], counted: Bool[Array, "B T"]) -> SilentUnits:
    """Measures the output of an activation that is 0 on a half-line, such as ReLU."""
    is_zero = activations == 0
    dtype = at_least_float32(activations.dtype)
    share_F = jax.vmap(_mean, in_axes=(2, None))(is_zero.astype(dtype), counted)
    # Not share == 1, which a rounded mean may miss.
    dead_F = jnp.all(is_zero | ~counted[:, :, None], axis=(0, 1))
    dead = jnp.mean(dead_F.astype(dtype))
    return SilentUnits(jnp.mean(share_F), jnp.where(jnp.any(counted), dead, jnp.nan))


def saturated_fraction(
    gates: Float[Array, "B T F"],
    counted: Bool[Array, "B T"],
    *,
    activation: Callable[[Array], Array],
) -> Float[Array, ""]:
    """Computes the share of gates at which `|activation'(gate)| < FLAT_SLOPE`.

    Args:
        gates: What the activation of the gate is given.
        counted: Positions that count.
        activation: It.
    """
    gates = _raised(gates)
    _, slope = jax.jvp(activation, (gates,), (jnp.ones_like(gates),))
    flat = (jnp.abs(slope) < FLAT_SLOPE).astype(gates.dtype)
    return _mean(jnp.mean(flat, axis=-1), counted)


class LogitScale(NamedTuple):
    """How large the scores of the head are.

    Attributes:
        sd: Standard deviation over the classes, mean over positions.
        largest: Largest absolute score.
    """

    sd: Float[Array, ""]
    largest: Float[Array, ""]


def logit_scale(logits: Float[Array, "*batch V"], counted: Bool[Array, "*batch"]) -> LogitScale:
    """Measures the scores of a head, in each row or at each position."""
    logits = _raised(logits)
    largest = jnp.max(jnp.where(counted[..., None], jnp.abs(logits), 0))
    return LogitScale(
        sd=_mean(jnp.std(logits, axis=-1), counted),
        largest=jnp.where(jnp.any(counted), largest, jnp.nan),
    )


def _raised(x: Array) -> Array:
    return x.astype(at_least_float32(x.dtype))


def _mean(x: Array, counted: Array) -> Array:
    """Returns the mean over the entries that count; NaN where none does."""
    return jnp.sum(jnp.where(counted, x, 0)) / jnp.sum(counted).astype(x.dtype)
