"""Whole runs to start from; change what the question is about."""

from jtransformer.spec.model import ModelSpec
from jtransformer.spec.run import RunSpec


def decoder_lm(*, width: int = 64, layers: int = 2) -> RunSpec:
    """A pre-LN GELU decoder over bytes of the embedded text.

    Args:
        width: Width of the residual stream; heads are 16 wide where that divides it.
        layers: Attention + feed-forward pairs.
    """
    heads = width // 16 if width % 16 == 0 else 1
    model = ModelSpec(width=width, layers=layers, heads=heads, ffn_width=4 * width)
    return RunSpec(model=model)
