"""Qwen2 (Yang et al. 2024) and Qwen3 (Qwen Team 2025): Llama with other biases or norms.

Qwen2 has biases on queries, keys and values; Qwen3 has norms of queries and keys instead. The
first `max_window_layers` layers see all, the others a window, if it is in use.
Reference: `Qwen2ForCausalLM`, `Qwen3ForCausalLM`, https://github.com/huggingface/transformers.
"""

from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.families.llama import (
    FREQUENCIES,
    LENGTH,
    read_shared,
    rules,
    write_shared,
)
from jtransformer.interop.family import Family
from jtransformer.interop.reading import ConfigReader
from jtransformer.interop.rotary import (
    read_layer_types,
    windowed,
    windowed_layers,
    write_layer_types,
)
from jtransformer.spec import DotProduct, ModelSpec


def read_qwen2(config: ConfigReader) -> ModelSpec:
    """Reads the spec of Qwen2."""
    return ModelSpec(
        head_width=config.integer("head_dim", default=None),
        qkv_bias=True,
        attention=DotProduct(**_window(config)),
        **_read_both(config),
    )


def read_qwen3(config: ConfigReader) -> ModelSpec:
    """Reads the spec of Qwen3."""
    bias = config.flag("attention_bias", default=False)
    return ModelSpec(
        head_width=config.integer("head_dim", default=128),
        qkv_bias=bias,
        attention_out_bias=bias,
        attention=DotProduct(query_key_norm="head", **_window(config)),
        **_read_both(config),
    )


def _read_both(config: ConfigReader) -> dict[str, Any]:
    return read_shared(config, length=32_768) | {
        "vocabulary": config.integer("vocab_size", default=151_936),
        "key_value_heads": config.integer("num_key_value_heads", default=32, null=None),
        "ffn_width": config.integer("intermediate_size", default=22_016),
    }


def _window(config: ConfigReader) -> dict[str, Any]:
    layers = config.integer("num_hidden_layers", default=32)
    in_use = config.flag("use_sliding_window", default=False)
    window = config.integer("sliding_window", default=4096, null=None)
    first = config.integer("max_window_layers", default=28)
    window = window if in_use else None
    by_depth = [window is not None and layer >= first for layer in range(layers)]
    with_window = read_layer_types(config, layers, by_depth)
    if window is None and any(with_window):
        raise config.refusal(
            "layer_types", "has layers of sliding_attention, which need sliding_window in use"
        )
    return windowed(window, with_window)


def write_qwen2(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config of Qwen2."""
    return _write_both(spec)


def write_qwen3(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config of Qwen3."""
    return _write_both(spec) | {"attention_bias": spec.qkv_bias}


def _write_both(spec: ModelSpec) -> dict[str, Any]:
    window = of_kind(spec, "attention", DotProduct).window
    layers = windowed_layers(spec)
    return write_shared(spec) | {
        "use_sliding_window": window is not None,
        "sliding_window": window,
        # Layers before the first that has the window; `layer_types` decides.
        "max_window_layers": layers.index(True) if any(layers) else spec.layers,
        "layer_types": write_layer_types(spec),
    }


QWEN2 = Family(
    name="qwen2",
    model_types=("qwen2",),
    architectures=("Qwen2ForCausalLM",),
    read=read_qwen2,
    write=write_qwen2,
    rules=rules,
    irrelevant=LENGTH,
    buffers=(FREQUENCIES,),
    prefix="model.",
)
"""Qwen2."""
QWEN3 = Family(
    name="qwen3",
    model_types=("qwen3",),
    architectures=("Qwen3ForCausalLM",),
    read=read_qwen3,
    write=write_qwen3,
    rules=rules,
    irrelevant=LENGTH,
    buffers=(FREQUENCIES,),
    prefix="model.",
)
"""Qwen3."""
