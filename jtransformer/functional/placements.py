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
        norms: Options of `residual` that hold a norm, in the order in which the data pass them.
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
    """Computes alpha and beta of DeepNorm for the layers of one stack or two.

    One stack alone, of L layers: `alpha = (2 L)^(1/4)`, `beta = (8 L)^(-1/4)`. With both, the
    encoder has `alpha = 0.81 (L_encoder^4 L_decoder)^(1/16)` and
    `beta = 0.87 (L_encoder^4 L_decoder)^(-1/16)`; the decoder, whose layers have three
    sublayers, has `alpha = (3 L_decoder)^(1/4)` and `beta = (12 L_decoder)^(-1/4)`.

    Args:
        encoder_layers: Layers of the encoder, L_encoder; 0 where there is none.
        decoder_layers: Layers of the decoder, L_decoder; 0 where there is none.

    Raises:
        ValueError: If a number is negative or both are 0.
    """
    L_encoder, L_decoder = encoder_layers, decoder_layers
    if min(L_encoder, L_decoder) < 0 or L_encoder + L_decoder == 0:
        raise ValueError(
            f"deepnorm needs the layers of at least one stack, got encoder_layers={L_encoder}, "
            f"decoder_layers={L_decoder}; use 0 for the stack that is not there."
        )
    if L_encoder and L_decoder:
        both = (L_encoder**4 * L_decoder) ** (1 / 16)
        return DeepNorm(
            encoder=DeepNormFactors(0.81 * both, 0.87 / both),
            decoder=DeepNormFactors((3 * L_decoder) ** 0.25, (12 * L_decoder) ** -0.25),
        )
    alone = DeepNormFactors(
        (2 * (L_encoder + L_decoder)) ** 0.25, (8 * (L_encoder + L_decoder)) ** -0.25
    )
    return DeepNorm(encoder=alone if L_encoder else None, decoder=alone if L_decoder else None)
