"""OPT (Zhang et al. 2022): learned positions that start in row 2 of their table, ReLU.

Norms before the sublayers in all published sizes but one. That one, 350m, looks its tokens up in a
table narrower than the stream, and is not read.
Reference: `OPTForCausalLM`, https://github.com/huggingface/transformers.
"""

from collections.abc import Iterator
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.family import Family
from jtransformer.interop.reading import ConfigReader
from jtransformer.interop.rules import Rule, dense, norm, qkv, table
from jtransformer.interop.words import ACTIVATIONS, word_of
from jtransformer.spec import Dropout, LayerNorm, Learned, ModelSpec, TokenHead

FIRST = 2
"""Row of the first position; the rows before it belong to none."""
EPSILON = 1e-5
"""That of every norm; no field says it."""


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    width = config.integer("hidden_size", default=768)
    config.only("word_embed_proj_dim", None, width)
    config.only("layer_norm_elementwise_affine", True)
    config.only("layerdrop", 0.0, 0)
    config.only("activation_dropout", 0.0, 0)
    bias = config.flag("enable_bias", default=True)
    before = config.flag("do_layer_norm_before", default=True)
    without_last = config.flag("_remove_final_layer_norm", default=False)
    return ModelSpec(
        vocabulary=config.integer("vocab_size", default=50_272),
        width=width,
        layers=config.integer("num_hidden_layers", default=12),
        heads=config.integer("num_attention_heads", default=12),
        qkv_bias=bias,
        attention_out_bias=bias,
        ffn=config.choice("activation_function", ACTIVATIONS, default="relu"),
        ffn_width=config.integer("ffn_dim", default=3072),
        ffn_bias=bias,
        norm_placement="pre" if before else "post",
        norm=LayerNorm(epsilon=EPSILON),
        final_norm=before and not without_last,
        position=Learned(
            max_length=config.integer("max_position_embeddings", default=2048), first=FIRST
        ),
        head=TokenHead(tied=config.flag("tie_word_embeddings", default=True)),
        dropout=Dropout(
            attention=config.number("attention_dropout", default=0.0),
            residual=config.number("dropout", default=0.1),
        ),
        initialization="bert",
    )


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    before = spec.norm_placement == "pre"
    return {
        "vocab_size": spec.vocabulary,
        "hidden_size": spec.width,
        "word_embed_proj_dim": spec.width,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "ffn_dim": spec.ffn_width,
        "max_position_embeddings": of_kind(spec, "position", Learned).max_length,
        "activation_function": word_of(ACTIVATIONS, spec),
        "enable_bias": spec.qkv_bias,
        "do_layer_norm_before": before,
        "_remove_final_layer_norm": before and not spec.has_final_norm,
        "tie_word_embeddings": of_kind(spec, "head", TokenHead).tied,
        "attention_dropout": spec.dropout.attention,
        "dropout": spec.dropout.residual,
    }


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters."""
    tied = isinstance(spec.head, TokenHead) and spec.head.tied
    slot = "norm_in" if spec.norm_placement == "pre" else "norm_out"
    yield table("model.decoder.embed_tokens", "embedding", copies=("lm_head",) if tied else ())
    yield table("model.decoder.embed_positions", "position")
    for layer in range(spec.layers):
        theirs, ours = f"model.decoder.layers.{layer}", f"layer_{layer}"
        for letter, name in zip("qkv", qkv(f"{ours}/attention"), strict=True):
            yield from dense(f"{theirs}.self_attn.{letter}_proj", name, bias=spec.qkv_bias)
        out = f"{ours}/attention/out"
        bias = spec.attention_out_bias
        yield from dense(f"{theirs}.self_attn.out_proj", out, bias=bias, inputs=2)
        yield from norm(spec, f"{theirs}.self_attn_layer_norm", f"{ours}/attention_{slot}")
        yield from dense(f"{theirs}.fc1", f"{ours}/ffn/in", bias=spec.ffn_bias)
        yield from dense(f"{theirs}.fc2", f"{ours}/ffn/out", bias=spec.ffn_bias)
        yield from norm(spec, f"{theirs}.final_layer_norm", f"{ours}/ffn_{slot}")
    if spec.has_final_norm:
        yield from norm(spec, "model.decoder.final_layer_norm", "final_norm")
    if not tied:
        yield from dense("lm_head", "head", bias=False)


OPT = Family(
    name="opt",
    model_types=("opt",),
    architectures=("OPTForCausalLM", "OPTModel"),
    read=read,
    write=write,
    rules=rules,
    irrelevant={"init_std": "initial values are not stored ones"},
    prefix="model.",
)
"""OPT."""
