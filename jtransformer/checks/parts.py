"""The parts of a model as functions, for the figures that are worked out by hand."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Function = Callable[..., Any]


class Parts(NamedTuple):
    """Parts of a model; what is None is not judged.

    They are functions of JAX, which are compiled with the figures that they are given.

    Attributes:
        layer_norm: `(x, epsilon) -> y`, without scale and bias.
        rms_norm: Likewise.
        attention: `(q, k, v, mask) -> heads`; heads `B T N H`, mask bool `T S` or None.
        attention_weights: `(q, k, mask) -> weights`, `B N T S`.
        attention_layer: `(x, kernels, mask) -> y`, with the split into heads and what joins
            them: x `T D`, kernels those of queries, keys, values (`D N H`) and output (`N H D`).
        feed_forward: `(x, w_in, w_out, activation) -> y`, the activation a function.
        activations: Functions by name: relu, gelu (the exact one), gelu_tanh, silu, sigmoid.
        residual: `(x, sublayer, norm_in, norm_out) -> y`, either norm or None.
        rope: `(x, positions) -> y` by pairing, "half" or "interleaved"; base 10,000, x `B T N H`.
        sinusoidal: `(T, D) -> table`, sines and cosines interleaved.
        causal_mask: `T -> mask`, bool `T T` after leading axes of size 1.
        prefix_mask: `(T, prefix) -> mask`, likewise.
        cross_entropy: `(logits, labels, weights, label_smoothing) -> mean`, over the weights.
    """

    layer_norm: Function | None = None
    rms_norm: Function | None = None
    attention: Function | None = None
    attention_weights: Function | None = None
    attention_layer: Function | None = None
    feed_forward: Function | None = None
    activations: Mapping[str, Function] | None = None
    residual: Function | None = None
    rope: Mapping[str, Function] | None = None
    sinusoidal: Function | None = None
    causal_mask: Function | None = None
    prefix_mask: Function | None = None
    cross_entropy: Function | None = None
