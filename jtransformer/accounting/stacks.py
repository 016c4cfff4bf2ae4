"""The stacks of a model, seen alike whatever their number."""

from typing import NamedTuple

from jtransformer.spec import DotProduct, EncoderDecoder, ModelSpec


class StackView(NamedTuple):
    """One stack.

    Attributes:
        prefix: What stands before the paths of its parameters.
        layers: How many it has.
        causal: Whether a token sees itself and earlier ones alone (behind a prefix, if any).
        reads_memory: Whether its layers have cross-attention.
    """

    prefix: str
    layers: int
    causal: bool
    reads_memory: bool


def stacks_of(model: ModelSpec) -> tuple[StackView, ...]:
    """Returns the stacks; the last is the one that the head reads."""
    if isinstance(model.stack, EncoderDecoder):
        return (
            StackView("encoder/", model.stack.encoder_layers, causal=False, reads_memory=False),
            StackView("decoder/", model.layers, causal=True, reads_memory=True),
        )
    return (StackView("", model.layers, causal=model.causal, reads_memory=False),)


def windows_of(model: ModelSpec, stack: StackView) -> list[int | None]:
    """Returns the window of each layer of a stack, None where it sees all."""
    attention = model.attention
    if not isinstance(attention, DotProduct):
        return [None] * stack.layers
    return [attention.window_of(layer) for layer in range(stack.layers)]
