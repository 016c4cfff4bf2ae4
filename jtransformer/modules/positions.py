"""The three slots of a position: added to the embeddings, turning q and k, biasing the scores.

`position_plan` is the one place that says which of them a kind of position fills; whoever has a
slot uses what is there and does not ask for the kind.

Sources: see `jtransformer.functional.positions`, `rope`, `position_bias` and
`relative_attention`. T5's buckets tell keys ahead from keys behind wherever a query may look
ahead, which is in an encoder and within a prefix, as in their code.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from jtransformer import functional as F
from jtransformer.spec import (
    Alibi,
    LatentAttention,
    Learned,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    NoPosition,
    NoScaling,
    NTKScaling,
    PrefixDecoder,
    RelativeBias,
    Rope,
    Shaw,
    Sinusoidal,
    T5Bias,
    YarnScaling,
)

Turn = Callable[[Array, Array, bool | Array], Array]


class PositionPlan(NamedTuple):
    """What a kind of position does; None where it does nothing.

    Attributes:
        embed: Maps positions and the table of a stack to vectors that are added to the
            embeddings.
        embed_rows: Rows of that table, of the model's width; None is no table.
        turn: Turns queries or keys `B T N H` by their positions, in a layer that has the window of
            attention or not.
        bias: Maps the table of a stack, query positions and key positions to what is added to
            the scores.
        bias_rows: Rows of that table, with one number per head; None is no table.
        distances: Whether each layer adds learned vectors of distances to its keys, or values too.
    """

    embed: Callable[[Array, Array | None], Array] | None = None
    embed_rows: int | None = None
    turn: Turn | None = None
    bias: Callable[..., Array] | None = None
    bias_rows: int | None = None
    distances: bool = False


def position_plan(spec: ModelSpec, *, causal: bool) -> PositionPlan:
    """Returns what the positions of a model do in one of its stacks.

    Args:
        spec: The model.
        causal: Whether the stack is causal.
    """
    match spec.position:
        case NoPosition():
            return PositionPlan()
        case Sinusoidal(layout=layout):
            return PositionPlan(
                embed=lambda positions, _: F.sinusoidal_embedding(
                    positions, spec.width, layout=layout
                )
            )
        case Learned(first=first, max_length=max_length):
            return PositionPlan(
                embed=lambda positions, table: F.learned_positions(positions + first, table),
                embed_rows=first + max_length,
            )
        case Rope():
            return PositionPlan(turn=_turn(spec, spec.position))
        case T5Bias(max_distance=max_distance, buckets=buckets):
            sees_ahead = not causal or isinstance(spec.stack, PrefixDecoder)
            return PositionPlan(
                bias=lambda table, query_positions, key_positions: F.t5_bias(
                    table,
                    query_positions,
                    key_positions,
                    bidirectional=sees_ahead,
                    max_distance=max_distance,
                ),
                bias_rows=buckets,
            )
        case RelativeBias(max_distance=max_distance):
            return PositionPlan(bias=F.relative_bias, bias_rows=2 * max_distance + 1)
        case Alibi():
            return PositionPlan(
                bias=lambda _, query_positions, key_positions: F.alibi_bias(
                    F.alibi_slopes(spec.heads), query_positions, key_positions
                )
            )
        case Shaw():
            return PositionPlan(distances=True)


def _turn(spec: ModelSpec, position: Rope) -> Turn:
    # Latent attention turns channels of their own, all of them.
    is_latent = isinstance(spec.attention, LatentAttention)
    width = None if is_latent else int(spec.H * position.rotary_fraction)

    def by(heads: Array, positions: Array, theta: float, scaling: F.RopeScaling | None) -> Array:
        return F.rope(
            heads,
            positions,
            theta=theta,
            pairing=position.pairing,
            rotary_width=width,
            scaling=scaling,
        )

    def turn(heads: Array, positions: Array, windowed: bool | Array) -> Array:
        far = position.theta, _scaling(position)
        if position.window_theta is None or windowed is False:
            return by(heads, positions, *far)
        near = by(heads, positions, position.window_theta, None)
        return near if windowed is True else jnp.where(windowed, near, by(heads, positions, *far))

    return turn


def _scaling(position: Rope) -> F.RopeScaling | None:
    match position.scaling:
        case NoScaling():
            return None
        case LinearScaling(factor=factor):
            return F.LinearScaling(factor=factor)
        case NTKScaling(factor=factor):
            return F.NTKScaling(factor=factor)
        case Llama3Scaling() as chosen:
            return F.Llama3Scaling(
                factor=chosen.factor,
                original_length=chosen.original_length,
                low_frequency_factor=chosen.low_frequency_factor,
                high_frequency_factor=chosen.high_frequency_factor,
            )
        case YarnScaling(factor=factor, original_length=original_length):
            return F.YarnScaling(factor=factor, original_length=original_length)
