"""Transformer sublayers as pure functions: arrays in, arrays out.

Nothing here holds a parameter, a configuration or a state; the letters of the shapes are those
of `jtransformer.shapes`. Options are keyword-only, `key=None` means deterministic, statistics
are computed in at least float32, and results have the dtype of their input.
"""

from jtransformer.functional.activations import (
    elu_plus_one,
    gelu,
    gelu_tanh,
    identity,
    relu,
    relu_squared,
    sigmoid,
    silu,
    tanh,
)
from jtransformer.functional.analysis import (
    SpectralNorm,
    jacobian_vector_product,
    layer_norm_jacobian,
    rms_norm_jacobian,
    spectral_norm,
    vector_jacobian_product,
)
from jtransformer.functional.attention import (
    attention_scores,
    attention_weights,
    dot_product_attention,
)
from jtransformer.functional.attention_backends import attention_backend
from jtransformer.functional.cache import KVCache, KVRead
from jtransformer.functional.dropout import dropout
from jtransformer.functional.embedding import embed, readout
from jtransformer.functional.feed_forward import (
    FFN_KINDS,
    FFNKind,
    feed_forward,
    gated_feed_forward,
)
from jtransformer.functional.initializers import (
    draw_deepnorm,
    draw_depth_scaled,
    draw_fan_in,
    draw_normal,
    draw_xavier,
)
from jtransformer.functional.latent_attention import latent_attention
from jtransformer.functional.linear import linear
from jtransformer.functional.linear_attention import (
    LinearAttentionState,
    linear_attention,
    linear_attention_step,
)
from jtransformer.functional.losses import (
    CrossEntropy,
    chunked_cross_entropy,
    cross_entropy,
)
from jtransformer.functional.masks import (
    causal_mask,
    combine_masks,
    cross_mask,
    padding_mask,
    prefix_mask,
    segment_mask,
    visible,
    wait_k_mask,
    window_mask,
)
from jtransformer.functional.norms import dynamic_tanh, layer_norm, rms_norm, scale_norm
from jtransformer.functional.placements import (
    PLACEMENTS,
    DeepNorm,
    DeepNormFactors,
    Placement,
    deepnorm,
)
from jtransformer.functional.position_bias import (
    alibi_bias,
    alibi_slopes,
    t5_bias,
    t5_bucket,
)
from jtransformer.functional.positions import (
    learned_positions,
    sinusoidal_embedding,
    sinusoidal_positions,
    token_positions,
)
from jtransformer.functional.query_key_norms import head_norm, width_norm
from jtransformer.functional.relative_attention import relative_attention, relative_bias
from jtransformer.functional.residual import parallel_residual, residual
from jtransformer.functional.rope import rope
from jtransformer.functional.rope_scaling import (
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    RopeScaling,
    YarnScaling,
    rope_frequencies,
)
from jtransformer.functional.sampling import (
    Emitted,
    emit,
    length_normalised,
    sample,
    sampling_log_probabilities,
)
from jtransformer.functional.visibility import Visibility

__all__ = [
    "FFN_KINDS",
    "PLACEMENTS",
    "CrossEntropy",
    "DeepNorm",
    "DeepNormFactors",
    "Emitted",
    "FFNKind",
    "KVCache",
    "KVRead",
    "LinearAttentionState",
    "LinearScaling",
    "Llama3Scaling",
    "NTKScaling",
    "Placement",
    "RopeScaling",
    "SpectralNorm",
    "Visibility",
    "YarnScaling",
    "alibi_bias",
    "alibi_slopes",
    "attention_backend",
    "attention_scores",
    "attention_weights",
    "causal_mask",
    "chunked_cross_entropy",
    "combine_masks",
    "cross_entropy",
    "cross_mask",
    "deepnorm",
    "dot_product_attention",
    "draw_deepnorm",
    "draw_depth_scaled",
    "draw_fan_in",
    "draw_normal",
    "draw_xavier",
    "dropout",
    "dynamic_tanh",
    "elu_plus_one",
    "embed",
    "emit",
    "feed_forward",
    "gated_feed_forward",
    "gelu",
    "gelu_tanh",
    "head_norm",
    "identity",
    "jacobian_vector_product",
    "latent_attention",
    "layer_norm",
    "layer_norm_jacobian",
    "learned_positions",
    "length_normalised",
    "linear",
    "linear_attention",
    "linear_attention_step",
    "padding_mask",
    "parallel_residual",
    "prefix_mask",
    "readout",
    "relative_attention",
    "relative_bias",
    "relu",
    "relu_squared",
    "residual",
    "rms_norm",
    "rms_norm_jacobian",
    "rope",
    "rope_frequencies",
    "sample",
    "sampling_log_probabilities",
    "scale_norm",
    "segment_mask",
    "sigmoid",
    "silu",
    "sinusoidal_embedding",
    "sinusoidal_positions",
    "spectral_norm",
    "t5_bias",
    "t5_bucket",
    "tanh",
    "token_positions",
    "vector_jacobian_product",
    "visible",
    "width_norm",
    "wait_k_mask",
    "window_mask",
]
