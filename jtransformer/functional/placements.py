"""Named placements of the norms around a sublayer, and the two factors of DeepNorm.

There is no entry for "no residual path": it is any placement with `stream_scale=0`.

Sources: those of `jtransformer.functional.residual`; DeepNorm, Wang et al. 2022, sec. 2 (table
and pseudocode of figure 2), https://arxiv.org/abs/2203.00555.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Placement(NamedTuple):
    """What the name of a placement stands for.

    Attributes:
        norms: Options of `residual` that hold a norm, in the order of the data's way.
        final_norm: Whether the stack ends with a norm of its own, before the head.
        deepnorm: Whether `stream_scale` and the initial values take the factors of `deepnorm`.
    """

    norms: tuple[str, ...]
    final_norm: bool
    deepnorm: bool = False


PLACEMENTS: Mapping[str, Placement] = MappingProxyType(
    {
        "post": Placement(norms=("norm_out",), final_norm=False),
        "pre": Placement(norms=("norm_in",), final_norm=True),
        "sandwich": Placement(norms=("norm_in", "norm_branch"), final_norm=True),
        "branch": Placement(norms=("norm_branch",), final_norm=True),
        "deepnorm": Placement(norms=("norm_out",), final_norm=False, deepnorm=True),
        "none": Placement(norms=(), final_norm=False),
    }
)
"""Every named placement; the one place of the functions that says what a name means."""


class DeepNormFactors(NamedTuple):
    """The two factors of one stack.

    Attributes:
        stream_scale: The paper's alpha: `stream_scale` of every residual sum.
        init_gain: The paper's beta: gain of the initial values of the feed-forward, value and
            output matrices; see `draw_deepnorm`.
    """

    stream_scale: float
    init_gain: float


class DeepNorm(NamedTuple):
    """The factors of both stacks; None where a model has no such stack."""

    encoder: DeepNormFactors | None
    decoder: DeepNormFactors | None


def deepnorm(*, encoder_layers: int = 0, decoder_layers: int = 0) -> DeepNorm:
    """Computes alpha and beta of DeepNorm for N encoder and M decoder layers.

    One stack alone, of L layers: `alpha = (2 L)^(1/4)`, `beta = (8 L)^(-1/4)`. With both, the
    encoder has `alpha = 0.81 (N^4 M)^(1/16)`, `beta = 0.87 (N^4 M)^(-1/16)` and the decoder,
    whose layers have three sublayers, `alpha = (3 M)^(1/4)`, `beta = (12 M)^(-1/4)`.

    Args:
        encoder_layers: Layers of the encoder, N; 0 where there is none.
        decoder_layers: Layers of the decoder, M; 0 where there is none.

    Raises:
        ValueError: If a number is negative or both are 0.
    """
    N, M = encoder_layers, decoder_layers
    if min(N, M) < 0 or N + M == 0:
        raise ValueError(
            f"deepnorm needs the layers of at least one stack, got encoder_layers={N}, "
            f"decoder_layers={M}; use 0 for the stack that is not there."
        )
    if N and M:
        both = (N**4 * M) ** (1 / 16)
        return DeepNorm(
            encoder=DeepNormFactors(0.81 * both, 0.87 / both),
            decoder=DeepNormFactors((3 * M) ** 0.25, (12 * M) ** -0.25),
        )
    alone = DeepNormFactors((2 * (N + M)) ** 0.25, (8 * (N + M)) ** -0.25)
    return DeepNorm(encoder=alone if N else None, decoder=alone if M else None)
