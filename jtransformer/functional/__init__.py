"""Transformer sublayers as pure functions: arrays in, arrays out.

Nothing here holds a parameter, a configuration or a state; the letters of the shapes are those
of `jtransformer.shapes`. Options are keyword-only, `key=None` means deterministic, statistics
are computed in at least float32, and results have the dtype of their input.
"""

from jtransformer.functional.activations import (
    gelu,
    gelu_tanh,
    identity,
    relu,
    relu_squared,
    sigmoid,
    silu,
    tanh,
)
from jtransformer.functional.attention import attention_weights, dot_product_attention
from jtransformer.functional.dropout import dropout
from jtransformer.functional.embedding import embed, readout
from jtransformer.functional.feed_forward import (
    FFN_KINDS,
    FFNKind,
    feed_forward,
    gated_feed_forward,
)
from jtransformer.functional.linear import linear
from jtransformer.functional.losses import CrossEntropy, cross_entropy
from jtransformer.functional.masks import (
    causal_mask,
    combine_masks,
    padding_mask,
    prefix_mask,
    segment_mask,
    visible,
    window_mask,
)
from jtransformer.functional.norms import layer_norm, rms_norm
from jtransformer.functional.positions import (
    learned_positions,
    sinusoidal_embedding,
    sinusoidal_positions,
)
from jtransformer.functional.residual import residual
from jtransformer.functional.rope import rope

__all__ = [
    "FFN_KINDS",
    "CrossEntropy",
    "FFNKind",
    "attention_weights",
    "causal_mask",
    "combine_masks",
    "cross_entropy",
    "dot_product_attention",
    "dropout",
    "embed",
    "feed_forward",
    "gated_feed_forward",
    "gelu",
    "gelu_tanh",
    "identity",
    "layer_norm",
    "learned_positions",
    "linear",
    "padding_mask",
    "prefix_mask",
    "readout",
    "relu",
    "relu_squared",
    "residual",
    "rms_norm",
    "rope",
    "segment_mask",
    "sigmoid",
    "silu",
    "sinusoidal_embedding",
    "sinusoidal_positions",
    "tanh",
    "visible",
    "window_mask",
]
