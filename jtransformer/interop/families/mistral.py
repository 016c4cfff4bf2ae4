"""Mistral (Jiang et al. 2023): Llama whose every layer sees a window, without biases.

Reference: `MistralForCausalLM`, https://github.com/huggingface/transformers.
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
from jtransformer.spec import DotProduct, ModelSpec


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    return ModelSpec(
        vocabulary=config.integer("vocab_size", default=32_000),
        key_value_heads=config.integer("num_key_value_heads", default=8, null=None),
        head_width=config.integer("head_dim", default=None),
        attention=DotProduct(window=config.integer("sliding_window", default=4096, null=None)),
        ffn_width=config.integer("intermediate_size", default=14_336),
        **read_shared(config, length=131_072),
    )


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    window = of_kind(spec, "attention", DotProduct).window
    return write_shared(spec) | {"sliding_window": window}


MISTRAL = Family(
    name="mistral",
    model_types=("mistral",),
    architectures=("MistralForCausalLM",),
    read=read,
    write=write,
    rules=rules,
    irrelevant=LENGTH,
    buffers=(FREQUENCIES,),
    prefix="model.",
)
"""Mistral."""
