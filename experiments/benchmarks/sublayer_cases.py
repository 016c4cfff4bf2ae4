"""What the sublayer benchmark computes: sizes, inputs, and the names of the cases."""

from typing import NamedTuple

import numpy as np

VOCABULARY = 4096


class Size(NamedTuple):
    """One size; the hidden width is 4 D, that of the gated network 8/3 D up to a multiple of 8."""

    B: int
    T: int
    D: int
    N: int


SIZES = {
    "small": Size(16, 64, 64, 4),
    "medium": Size(8, 256, 256, 8),
    "large": Size(4, 256, 512, 8),
}
CASES = (
    "layer_norm",
    "rms_norm",
    "feed_forward",
    "swiglu",
    "attention",
    "embedding",
    "cross_entropy",
)


class Inputs(NamedTuple):
    """What one case is given, the same for every library.

    Attributes:
        x: The differentiated input, `B T D`; logits for the cross-entropy; None for embeddings.
        tokens: Integers `B T`.
        weights: Parameters by name, kernels as `in out` with the heads apart.
        upstream: The gradient that comes from above, in the shape of the output: that of `x`,
            or a number for the cross-entropy, which is a sum.
    """

    x: np.ndarray | None
    tokens: np.ndarray
    weights: dict[str, np.ndarray]
    upstream: np.ndarray


def inputs(case: str, size: Size) -> Inputs:
    """Draws the arrays of a case."""
    generator = np.random.default_rng(0)
    B, T, D, N = size
    hidden, gated, H = 4 * D, -(-8 * D // 24) * 8, D // N

    def normal(*shape: int, deviation: float = 1.0) -> np.ndarray:
        return np.asarray(deviation * generator.normal(size=shape), np.float32)

    def kernel(fan_in: int, *shape: int) -> np.ndarray:
        return normal(*shape, deviation=fan_in**-0.5)

    weights = {
        "layer_norm": {"scale": normal(D), "bias": normal(D)},
        "rms_norm": {"scale": normal(D)},
        "feed_forward": {
            "in": kernel(D, D, hidden),
            "in_bias": normal(hidden),
            "out": kernel(hidden, hidden, D),
            "out_bias": normal(D),
        },
        "swiglu": {
            "gate": kernel(D, D, gated),
            "up": kernel(D, D, gated),
            "down": kernel(gated, gated, D),
        },
        "attention": {
            "query": kernel(D, D, N, H),
            "key": kernel(D, D, N, H),
            "value": kernel(D, D, N, H),
            "out": kernel(D, N, H, D),
        },
        "embedding": {"table": normal(VOCABULARY, D)},
        "cross_entropy": {},
    }[case]
    tokens = generator.integers(VOCABULARY, size=(B, T)).astype(np.int32)
    if case == "cross_entropy":
        return Inputs(normal(B, T, VOCABULARY), tokens, weights, normal())
    x = None if case == "embedding" else normal(B, T, D)
    return Inputs(x, tokens, weights, normal(B, T, D))
