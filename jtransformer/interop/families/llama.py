"""Llama 1 to 3 (Touvron et al. 2023, Grattafiori et al. 2024).

Pre-RMSNorm, SwiGLU, rotary positions in halves, grouped key heads.
Reference: `LlamaForCausalLM`, https://github.com/huggingface/transformers.
"""

from collections.abc import Iterator
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.family import Family
from jtransformer.interop.reading import ConfigReader
from jtransformer.interop.rotary import read_rope, write_rope
from jtransformer.interop.rules import Rule, dense, norm, qkv, scale, table
from jtransformer.interop.words import GATES, word_of
from jtransformer.spec import DotProduct, Dropout, ModelSpec, RMSNorm, Rope, TokenHead


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    bias = config.flag("attention_bias", default=False)
    return ModelSpec(
        vocabulary=config.integer("vocab_size", default=32_000),
        key_value_heads=config.integer("num_key_value_heads", default=None),
        head_width=config.integer("head_dim", default=None),
        qkv_bias=bias,
        attention_out_bias=bias,
        ffn_width=config.integer("intermediate_size", default=11_008),
        ffn_bias=config.flag("mlp_bias", default=False),
        **read_shared(config, length=2048),
    )


def read_shared(config: ConfigReader, *, length: int) -> dict[str, Any]:
    """Reads the settings of a spec whose fields and defaults Llama and its kin have in common.

    Args:
        config: The config.
        length: `max_position_embeddings` where it is left out.
    """
    return {
        "width": config.integer("hidden_size", default=4096),
        "layers": config.integer("num_hidden_layers", default=32),
        "heads": config.integer("num_attention_heads", default=32),
        "ffn": config.choice("hidden_act", GATES, default="silu"),
        "norm": RMSNorm(epsilon=config.number("rms_norm_eps", default=1e-6)),
        "position": read_rope(config, length=length),
        "head": TokenHead(tied=config.flag("tie_word_embeddings", default=False)),
        "dropout": Dropout(attention=config.number("attention_dropout", default=0.0)),
        "initialization": "bert",
    }


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    return write_shared(spec) | {"attention_bias": spec.qkv_bias, "mlp_bias": spec.ffn_bias}


def write_shared(spec: ModelSpec) -> dict[str, Any]:
    """Writes the fields that Llama and its kin have in common."""
    return {
        "vocab_size": spec.vocabulary,
        "hidden_size": spec.width,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.K,
        "head_dim": spec.H,
        "hidden_act": word_of(GATES, spec),
        "intermediate_size": spec.ffn_width,
        "rms_norm_eps": of_kind(spec, "norm", RMSNorm).epsilon,
        "tie_word_embeddings": of_kind(spec, "head", TokenHead).tied,
        "attention_dropout": spec.dropout.attention,
    } | write_rope(of_kind(spec, "position", Rope))


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters, norms of queries and keys included where the spec has them."""
    tied = isinstance(spec.head, TokenHead) and spec.head.tied
    has_norms = isinstance(spec.attention, DotProduct) and spec.attention.query_key_norm != "none"
    yield table("model.embed_tokens", "embedding", copies=("lm_head",) if tied else ())
    for layer in range(spec.layers):
        theirs, ours = f"model.layers.{layer}", f"layer_{layer}"
        yield from norm(spec, f"{theirs}.input_layernorm", f"{ours}/attention_norm_in")
        for letter, name in zip("qkv", qkv(f"{ours}/attention"), strict=True):
            yield from dense(f"{theirs}.self_attn.{letter}_proj", name, bias=spec.qkv_bias)
            if has_norms and letter != "v":
                yield scale(f"{theirs}.self_attn.{letter}_norm", f"{name}_norm")
        yield from dense(
            f"{theirs}.self_attn.o_proj",
            f"{ours}/attention/out",
            bias=spec.attention_out_bias,
            inputs=2,
        )
        yield from norm(spec, f"{theirs}.post_attention_layernorm", f"{ours}/ffn_norm_in")
        for name in ("gate", "up", "down"):
            yield from dense(f"{theirs}.mlp.{name}_proj", f"{ours}/ffn/{name}", bias=spec.ffn_bias)
    yield from norm(spec, "model.norm", "final_norm")
    if not tied:
        yield from dense("lm_head", "head", bias=False)


LENGTH = {"max_position_embeddings": "bounds no rotary position"}
FREQUENCIES = r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"
"""Stored by old versions, and computed here."""

LLAMA = Family(
    name="llama",
    model_types=("llama",),
    architectures=("LlamaForCausalLM",),
    read=read,
    write=write,
    rules=rules,
    irrelevant=LENGTH | {"pretraining_tp": "computes the same in pieces"},
    buffers=(FREQUENCIES,),
    prefix="model.",
)
"""Llama."""
