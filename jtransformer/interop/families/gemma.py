"""Gemma 1 and 2 (Gemma Team 2024, 2024b): gated tanh GELU, norms that store what is added to 1.

Gemma 2 adds norms on the branches, caps of scores and logits, and a window in every other layer.
Gemma 3 is not read: its norms of queries and keys store what is added to 1 too.
Reference: `GemmaForCausalLM` and `Gemma2ForCausalLM`,
https://github.com/huggingface/transformers.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.families.llama import FREQUENCIES, write_shared
from jtransformer.interop.family import Family
from jtransformer.interop.reading import GENERATION, ConfigReader
from jtransformer.interop.rotary import (
    read_layer_types,
    read_rope,
    windowed,
    windowed_layers,
    write_layer_types,
)
from jtransformer.interop.rules import Rule, dense, norm, qkv, table
from jtransformer.interop.words import GATES, word_of
from jtransformer.spec import DotProduct, Dropout, ModelSpec, RMSNorm, SpecError, TokenHead
from jtransformer.spec.model import Ffn

LEGACY_GATES: Mapping[str, Ffn] = {**GATES, "gelu": "geglu_tanh"}
"""Gemma's first files say "gelu" and mean its tanh form."""
IRRELEVANT = {
    "max_position_embeddings": "bounds no rotary position",
    "cache_implementation": GENERATION,
}


def read_gemma(config: ConfigReader) -> ModelSpec:
    """Reads the spec of Gemma 1."""
    ffn = config.choice("hidden_act", LEGACY_GATES, default="gelu_pytorch_tanh")
    _agree(config, "hidden_activation", ffn, LEGACY_GATES)
    return ModelSpec(
        width=config.integer("hidden_size", default=3072),
        layers=config.integer("num_hidden_layers", default=28),
        heads=config.integer("num_attention_heads", default=16),
        key_value_heads=config.integer("num_key_value_heads", default=16),
        ffn_width=config.integer("intermediate_size", default=24_576),
        ffn=ffn,
        **_common(config),
    )


def read_gemma2(config: ConfigReader) -> ModelSpec:
    """Reads the spec of Gemma 2."""
    ffn = config.choice("hidden_activation", GATES, default="gelu_pytorch_tanh")
    _agree(config, "hidden_act", ffn, GATES)
    layers = config.integer("num_hidden_layers", default=26)
    logit_cap = config.number("final_logit_softcapping", default=30.0, null=None)
    return ModelSpec(
        width=config.integer("hidden_size", default=2304),
        layers=layers,
        heads=config.integer("num_attention_heads", default=8),
        key_value_heads=config.integer("num_key_value_heads", default=4),
        attention=DotProduct(
            scale=_scale(config),
            soft_cap=config.number("attn_logit_softcapping", default=50.0, null=None),
            **_window(config, layers),
        ),
        ffn_width=config.integer("intermediate_size", default=9216),
        ffn=ffn,
        norm_placement="sandwich",
        **_common(config, logit_cap=logit_cap),
    )


def _common(config: ConfigReader, *, logit_cap: float | None = None) -> dict[str, Any]:
    config.only("use_bidirectional_attention", None, False)
    bias = config.flag("attention_bias", default=False)
    tied = config.flag("tie_word_embeddings", default=True)
    return {
        "vocabulary": config.integer("vocab_size", default=256_000),
        "head_width": config.integer("head_dim", default=256),
        "qkv_bias": bias,
        "attention_out_bias": bias,
        "norm": RMSNorm(epsilon=config.number("rms_norm_eps", default=1e-6), unit_offset=True),
        "position": read_rope(config, length=8192),
        "scale_embedding": True,
        "head": TokenHead(tied=tied, soft_cap=logit_cap),
        "dropout": Dropout(attention=config.number("attention_dropout", default=0.0)),
        "initialization": "bert",
    }


def _agree(config: ConfigReader, name: str, ffn: Ffn, gates: Mapping[str, Ffn]) -> None:
    """Checks the second of two fields for one activation, which many files have."""
    if config.choice(name, {None: ffn, **gates}, default=None) != ffn:
        raise config.refusal(name, "is not the other field's activation; keep one of them")


def _scale(config: ConfigReader) -> float:
    inverse_square = config.integer("query_pre_attn_scalar", default=256)
    if inverse_square < 1:
        raise config.refusal("query_pre_attn_scalar", "must be at least 1")
    return inverse_square**-0.5


def _window(config: ConfigReader, layers: int) -> dict[str, Any]:
    alternating = [layer % 2 == 0 for layer in range(layers)]
    with_window = read_layer_types(config, layers, alternating)
    window = config.integer("sliding_window", default=4096, null=None)
    if window is None and any(with_window):
        raise config.refusal("sliding_window", "is needed by layers of sliding_attention")
    # What files before the library had the field call it.
    config.only("sliding_window_size", None, window)
    return windowed(window, with_window)


def write_gemma(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config of Gemma 1."""
    return write_shared(spec) | {"attention_bias": spec.qkv_bias}


def write_gemma2(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config of Gemma 2."""
    attention, head = of_kind(spec, "attention", DotProduct), of_kind(spec, "head", TokenHead)
    scale = spec.H**-0.5 if attention.scale is None else attention.scale
    inverse_square = max(1, round(scale**-2))
    if inverse_square**-0.5 != scale:
        raise SpecError(
            "attention.dot_product.scale",
            f"= {scale!r} is not n^-0.5 of a whole number n; {inverse_square} gives "
            f"{inverse_square**-0.5!r}.",
        )
    found = write_gemma(spec) | {
        "hidden_activation": word_of(GATES, spec),
        "query_pre_attn_scalar": inverse_square,
        "attn_logit_softcapping": attention.soft_cap,
        "final_logit_softcapping": head.soft_cap,
        "layer_types": write_layer_types(spec),
    }
    if any(windowed_layers(spec)):
        found["sliding_window"] = attention.window
    return found


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters of either."""
    tied = isinstance(spec.head, TokenHead) and spec.head.tied
    # The same name is the norm before the feed-forward network in one, behind attention in the
    # other.
    norms = {"input_layernorm": "attention_norm_in", "post_attention_layernorm": "ffn_norm_in"}
    if spec.norm_placement == "sandwich":
        norms = {
            "input_layernorm": "attention_norm_in",
            "post_attention_layernorm": "attention_norm_branch",
            "pre_feedforward_layernorm": "ffn_norm_in",
            "post_feedforward_layernorm": "ffn_norm_branch",
        }
    yield table("model.embed_tokens", "embedding", copies=("lm_head",) if tied else ())
    for layer in range(spec.layers):
        theirs, ours = f"model.layers.{layer}", f"layer_{layer}"
        for letter, name in zip("qkv", qkv(f"{ours}/attention"), strict=True):
            yield from dense(f"{theirs}.self_attn.{letter}_proj", name, bias=spec.qkv_bias)
        out = f"{ours}/attention/out"
        yield from dense(f"{theirs}.self_attn.o_proj", out, bias=spec.attention_out_bias, inputs=2)
        for name in ("gate", "up", "down"):
            yield from dense(f"{theirs}.mlp.{name}_proj", f"{ours}/ffn/{name}", bias=False)
        for their_norm, our_norm in norms.items():
            yield from norm(spec, f"{theirs}.{their_norm}", f"{ours}/{our_norm}")
    yield from norm(spec, "model.norm", "final_norm")
    if not tied:
        yield from dense("lm_head", "head", bias=False)


GEMMA = Family(
    name="gemma",
    model_types=("gemma",),
    architectures=("GemmaForCausalLM", "GemmaModel"),
    read=read_gemma,
    write=write_gemma,
    rules=rules,
    irrelevant=IRRELEVANT,
    buffers=(FREQUENCIES,),
    prefix="model.",
)
"""Gemma 1."""
GEMMA2 = Family(
    name="gemma2",
    model_types=("gemma2",),
    architectures=("Gemma2ForCausalLM", "Gemma2Model"),
    read=read_gemma2,
    write=write_gemma2,
    rules=rules,
    irrelevant=IRRELEVANT,
    buffers=(FREQUENCIES,),
    prefix="model.",
)
"""Gemma 2."""
