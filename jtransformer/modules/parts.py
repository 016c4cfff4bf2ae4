"""The stacks of a model: which there are, how deep, and what their layers read."""

from typing import NamedTuple

from jtransformer import functional as F
from jtransformer.spec import Encoder, EncoderDecoder, ModelSpec

ENCODER, DECODER = "encoder", "decoder"


class Part(NamedTuple):
    """One stack.

    Attributes:
        scope: Where its parameters lie; empty where there is one stack alone.
        layers: How many layers it has.
        causal: Whether a token sees itself and what is before it (and a prefix) only.
        cross: Whether its layers read a memory.
    """

    scope: str
    layers: int
    causal: bool
    cross: bool


class Parts(NamedTuple):
    """The stacks of a model.

    Attributes:
        encoder: What reads the source; None where there is no source.
        main: What the head reads.
    """

    encoder: Part | None
    main: Part


def parts_of(spec: ModelSpec) -> Parts:
    """Returns the stacks of a model."""
    if isinstance(spec.stack, EncoderDecoder):
        encoder = Part(ENCODER, spec.stack.encoder_layers, causal=False, cross=False)
        return Parts(encoder, Part(DECODER, spec.layers, causal=True, cross=True))
    return Parts(None, Part("", spec.layers, causal=spec.causal, cross=False))


def part_at(spec: ModelSpec, path: tuple[str, ...]) -> Part:
    """Returns the stack in which a parameter lies; the main one where it lies in none."""
    encoder, main = parts_of(spec)
    if encoder is None:
        return main
    # What encloses the model may have such a name too: the last one is the model's own.
    scopes = [name for name in path if name in (ENCODER, DECODER)]
    return encoder if scopes and scopes[-1] == ENCODER else main


def layers_at(spec: ModelSpec, path: tuple[str, ...]) -> tuple[int, int]:
    """Returns the layers of the stack in which a parameter lies, and the branches of a layer."""
    part = part_at(spec, path)
    return part.layers, 3 if part.cross else 2


def deepnorm_of(spec: ModelSpec, part: Part) -> F.DeepNormFactors | None:
    """Returns the factors of DeepNorm for a stack; None where the placement has none."""
    if not F.PLACEMENTS[spec.norm_placement].deepnorm:
        return None
    encoder, main = parts_of(spec)
    if encoder is not None:
        both = F.deepnorm(encoder_layers=encoder.layers, decoder_layers=main.layers)
        return both.encoder if part == encoder else both.decoder
    if isinstance(spec.stack, Encoder):
        return F.deepnorm(encoder_layers=main.layers).encoder
    return F.deepnorm(decoder_layers=main.layers).decoder


def stream_factors(spec: ModelSpec, path: tuple[str, ...]) -> F.DeepNormFactors | None:
    """Returns the factors of DeepNorm for the stack in which a parameter lies."""
    return deepnorm_of(spec, part_at(spec, path))
