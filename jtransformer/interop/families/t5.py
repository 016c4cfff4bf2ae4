"""T5 1.0, T5 1.1 and mT5 (Raffel et al. 2019, Xue et al. 2020): relative bias, RMS norms.

Scores are not divided by the root of the head width, which their initial values allow for. T5 1.0
has one table for source, target and head, whose states are scaled down; 1.1 and mT5 have a head of
its own that is not. Which of the two a directory holds is not told by one field: version 5 of
transformers always writes tie_word_embeddings=true, and what is stored decides.
Reference: `T5ForConditionalGeneration`, `MT5ForConditionalGeneration`,
https://github.com/huggingface/transformers.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.family import Family
from jtransformer.interop.reading import ConfigReader
from jtransformer.interop.rules import Rule, dense, norm, table
from jtransformer.interop.words import word_of
from jtransformer.spec import (
    DotProduct,
    Dropout,
    EncoderDecoder,
    ModelSpec,
    RMSNorm,
    T5Bias,
    TokenHead,
)
from jtransformer.spec.model import Ffn

# The first word of each kind is the one that is written; gated-gelu means the tanh form.
WORDS: Mapping[str, Ffn] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "gated-gelu": "geglu_tanh",
    "gated-gelu_new": "geglu_tanh",
    "gated-relu": "reglu",
    "gated-silu": "swiglu",
}
"""What `feed_forward_proj` means."""
OWN_HEAD = "lm_head.weight"
T5_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 32_128,
    "d_ff": 2048,
    "num_layers": 6,
    "num_heads": 8,
    "feed_forward_proj": "relu",
}
MT5_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 250_112,
    "d_ff": 1024,
    "num_layers": 8,
    "num_heads": 6,
    "feed_forward_proj": "gated-gelu",
}
"""What the config classes have where a field is left out; in the other fields they agree."""


def read_t5(config: ConfigReader) -> ModelSpec:
    """Reads the spec of T5, whose head may be scaled."""
    scaled = config.flag(
        "scale_decoder_outputs", default=config.raw("tie_word_embeddings", None) is not False
    )
    # A tied head that is stored under both names is scaled, or it would not be known as tied.
    tied = _tied(config, OWN_HEAD not in config.stored or scaled)
    if scaled and not tied:
        raise config.refusal("scale_decoder_outputs", "belongs to a tied head alone")
    return _read(config, TokenHead(tied=tied, scale_down=scaled), T5_DEFAULTS)


def read_mt5(config: ConfigReader) -> ModelSpec:
    """Reads the spec of mT5, whose head is not scaled."""
    tied = _tied(config, OWN_HEAD not in config.stored)
    return _read(config, TokenHead(tied=tied), MT5_DEFAULTS)


def _tied(config: ConfigReader, otherwise: bool) -> bool:
    """Says whether the head is the table: not where the config denies it."""
    return config.flag("tie_word_embeddings", default=True) and otherwise


def _read(config: ConfigReader, head: TokenHead, defaults: Mapping[str, Any]) -> ModelSpec:
    def size(name: str) -> int:
        return config.integer(name, default=defaults[name])

    config.only("is_encoder_decoder", True)
    encoder_layers = size("num_layers")
    dropout = config.number("dropout_rate", default=0.1)
    return ModelSpec(
        vocabulary=size("vocab_size"),
        width=config.integer("d_model", default=512),
        layers=config.integer("num_decoder_layers", default=encoder_layers),
        heads=size("num_heads"),
        head_width=config.integer("d_kv", default=64),
        stack=EncoderDecoder(encoder_layers=encoder_layers),
        attention=DotProduct(scale=1.0),
        ffn=config.choice("feed_forward_proj", WORDS, default=defaults["feed_forward_proj"]),
        ffn_width=size("d_ff"),
        norm=RMSNorm(epsilon=config.number("layer_norm_epsilon", default=1e-6)),
        position=T5Bias(
            buckets=config.integer("relative_attention_num_buckets", default=32),
            max_distance=config.integer("relative_attention_max_distance", default=128),
        ),
        head=head,
        dropout=Dropout(embedding=dropout, attention=dropout, ffn=dropout, residual=dropout),
        initialization="t5",
    )


def write_t5(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config of T5."""
    head = of_kind(spec, "head", TokenHead)
    return _write(spec) | {"scale_decoder_outputs": head.scale_down}


def write_mt5(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config of mT5."""
    return _write(spec)


def _write(spec: ModelSpec) -> dict[str, Any]:
    position = of_kind(spec, "position", T5Bias)
    stack = of_kind(spec, "stack", EncoderDecoder)
    return {
        "is_encoder_decoder": True,
        "vocab_size": spec.vocabulary,
        "d_model": spec.width,
        "d_kv": spec.H,
        "d_ff": spec.ffn_width,
        "num_layers": stack.encoder_layers,
        "num_decoder_layers": spec.layers,
        "num_heads": spec.heads,
        "feed_forward_proj": word_of(WORDS, spec),
        "layer_norm_epsilon": of_kind(spec, "norm", RMSNorm).epsilon,
        "relative_attention_num_buckets": position.buckets,
        "relative_attention_max_distance": position.max_distance,
        "dropout_rate": spec.dropout.residual,
        "tie_word_embeddings": of_kind(spec, "head", TokenHead).tied,
    }


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters."""
    stack = of_kind(spec, "stack", EncoderDecoder)
    tied = of_kind(spec, "head", TokenHead).tied
    copies = ("encoder.embed_tokens", "decoder.embed_tokens", *(("lm_head",) if tied else ()))
    yield table("shared", "embedding", copies=copies)
    yield from _stack_rules(spec, "encoder", stack.encoder_layers)
    yield from _stack_rules(spec, "decoder", spec.layers, cross=True)
    if not tied:
        yield from dense("lm_head", "head", bias=False)


def _stack_rules(
    spec: ModelSpec, stack: str, layers: int, *, cross: bool = False
) -> Iterator[Rule]:
    first = f"{stack}.block.0.layer.0.SelfAttention"
    yield table(f"{first}.relative_attention_bias", f"{stack}/position_bias")
    for layer in range(layers):
        theirs, ours = f"{stack}.block.{layer}.layer", f"{stack}/layer_{layer}"
        yield from _attention_rules(spec, f"{theirs}.0", "SelfAttention", f"{ours}/attention")
        if cross:
            name = f"{ours}/cross_attention"
            yield from _attention_rules(spec, f"{theirs}.1", "EncDecAttention", name)
        last = f"{theirs}.{2 if cross else 1}"
        yield from norm(spec, f"{last}.layer_norm", f"{ours}/ffn_norm_in")
        names = {"wi": "in", "wo": "out"}
        if spec.gated:
            names = {"wi_0": "gate", "wi_1": "up", "wo": "down"}
        for name, own in names.items():
            yield from dense(f"{last}.DenseReluDense.{name}", f"{ours}/ffn/{own}", bias=False)
    yield from norm(spec, f"{stack}.final_layer_norm", f"{stack}/final_norm")


def _attention_rules(spec: ModelSpec, theirs: str, name: str, ours: str) -> Iterator[Rule]:
    yield from norm(spec, f"{theirs}.layer_norm", f"{ours}_norm_in")
    for own in ("query", "key", "value"):
        yield from dense(f"{theirs}.{name}.{own[0]}", f"{ours}/{own}", bias=False)
    yield from dense(f"{theirs}.{name}.o", f"{ours}/out", bias=False, inputs=2)


T5 = Family(
    name="t5",
    model_types=("t5",),
    architectures=("T5ForConditionalGeneration", "T5WithLMHeadModel"),
    read=read_t5,
    write=write_t5,
    rules=rules,
    irrelevant={
        "initializer_factor": "initial values are not stored ones",
        "classifier_dropout": "belongs to a head that is not read",
        "dense_act_fn": "repeats feed_forward_proj",
        "is_gated_act": "repeats feed_forward_proj",
        "n_positions": "bounds no relative position",
        "output_past": "computes the same",
    },
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    },
    # Cross-attention of the first checkpoints has a table that nobody reads.
    buffers=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
)
"""T5, of both versions."""

MT5 = dataclasses.replace(
    T5,
    name="mt5",
    model_types=("mt5",),
    architectures=("MT5ForConditionalGeneration",),
    read=read_mt5,
    write=write_mt5,
)
"""mT5."""
