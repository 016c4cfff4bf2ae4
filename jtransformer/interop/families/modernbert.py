"""ModernBERT (Warner et al. 2024): pre-norm, a gate, rotary positions, local and global layers.

The norm of the embeddings is that of the first attention too. A local layer sees half of
`local_attention` to either side and has a rotary base of its own.
Reference: `ModernBertForMaskedLM` and `ModernBertModel`,
https://github.com/huggingface/transformers.
"""

from collections.abc import Iterator
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.families.bert import STATES
from jtransformer.interop.family import Family
from jtransformer.interop.layouts import Flat
from jtransformer.interop.reading import TRAINING, ConfigReader
from jtransformer.interop.rotary import (
    UNBOUNDED,
    WINDOWED,
    read_layer_types,
    windowed,
    windowed_layers,
    write_layer_types,
)
from jtransformer.interop.rules import Rule, dense, joined, norm, qkv, table
from jtransformer.interop.words import GATES, word_of
from jtransformer.spec import (
    DotProduct,
    Dropout,
    Encoder,
    LayerNorm,
    ModelSpec,
    NoScaling,
    Rope,
    SpecError,
    TokenHead,
)
from jtransformer.spec.heads import Head

TOKENS, BARE = "ModernBertForMaskedLM", "ModernBertModel"
ROPES = "rope_parameters"
OLD_BASES = {UNBOUNDED: ("global_rope_theta", 160_000.0), WINDOWED: ("local_rope_theta", 10_000.0)}
"""Older names of the two rotary bases, and what they are where none is given."""
CLASSIFIER, KERNEL = "belongs to a head that is not read", "chooses a kernel"


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    # It would drop what attention returns as well, and nothing of the feed-forward network.
    config.only("attention_dropout", 0.0, 0)
    bias, layers = config.flag("attention_bias", default=False), _layers(config)
    window = config.integer("local_attention", default=128) // 2 + 1
    return ModelSpec(
        vocabulary=config.integer("vocab_size", default=50_368),
        width=config.integer("hidden_size", default=768),
        layers=len(layers),
        heads=config.integer("num_attention_heads", default=12),
        stack=Encoder(),
        attention=DotProduct(**windowed(window, layers)),
        qkv_bias=bias,
        attention_out_bias=bias,
        ffn=config.choice("hidden_activation", GATES, default="gelu"),
        ffn_width=config.integer("intermediate_size", default=1152),
        ffn_bias=config.flag("mlp_bias", default=False),
        norm=LayerNorm(
            epsilon=config.number("norm_eps", default=1e-5),
            bias=config.flag("norm_bias", default=False),
        ),
        position=_rope(config, layers),
        embedding_norm=True,
        first_norm=False,
        head=_head(config),
        dropout=Dropout(
            embedding=config.number("embedding_dropout", default=0.0),
            ffn=config.number("mlp_dropout", default=0.0),
        ),
        initialization="bert",
    )


def _layers(config: ConfigReader) -> list[bool]:
    """Returns for each layer whether it is local."""
    count = config.integer("num_hidden_layers", default=22)
    every = config.integer("global_attn_every_n_layers", default=3)
    if every < 1:
        raise config.refusal("global_attn_every_n_layers", "must be at least 1")
    return read_layer_types(config, count, [layer % every > 0 for layer in range(count)])


def _rope(config: ConfigReader, layers: list[bool]) -> Rope:
    """Reads the rotary bases; one alone, where all layers are of one kind."""
    config.only("rope_scaling", None, {})
    given = config.raw(ROPES, default=None) or {}
    if not isinstance(given, dict) or not all(isinstance(one, dict) for one in given.values()):
        raise config.refusal(ROPES, "must hold an object for each type of layers")
    each = ConfigReader(given, f"{ROPES} of {config.where}")
    bases = {}
    for kind, (name, default) in OLD_BASES.items():
        old = config.raw(name, default)
        if old is None:
            raise config.refusal(name, "names no base; give the number")
        about = each.raw(kind, default={})
        inner = ConfigReader(about, f"{ROPES}.{kind} of {config.where}")
        inner.only("rope_type", "default")
        bases[kind] = inner.number("rope_theta", default=old)
        inner.close()
    each.close()
    theta, window_theta = bases[UNBOUNDED], bases[WINDOWED]
    if all(layers):
        return Rope(theta=window_theta)
    return Rope(
        theta=theta, window_theta=window_theta if any(layers) and theta != window_theta else None
    )


def _head(config: ConfigReader) -> Head:
    tied = config.flag("tie_word_embeddings", default=True)
    bias = config.flag("decoder_bias", default=True)
    transform_bias = config.flag("classifier_bias", default=False)
    named = config.architecture
    if named == BARE or (named is None and "head.dense.weight" not in config.stored):
        config.ignore("classifier_activation")
        return STATES
    config.only("classifier_activation", "gelu")
    return TokenHead(tied=tied, bias=bias, transform=True, transform_bias=transform_bias)


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    rope, attention = of_kind(spec, "position", Rope), of_kind(spec, "attention", DotProduct)
    if rope.scaling != NoScaling():
        raise SpecError(
            "position.rope.scaling.kind", f"= {rope.scaling.kind!r} has no counterpart; use none."
        )
    layers = windowed_layers(spec)
    bases = {UNBOUNDED: rope.theta, WINDOWED: rope.window_theta or rope.theta}
    window = {} if attention.window is None else {"local_attention": 2 * (attention.window - 1)}
    head = spec.head
    if isinstance(head, TokenHead):
        window |= {
            "tie_word_embeddings": head.tied,
            "decoder_bias": head.bias,
            "classifier_bias": head.transform_bias,
        }
    return window | {
        "architectures": [TOKENS if isinstance(head, TokenHead) else BARE],
        "vocab_size": spec.vocabulary,
        "hidden_size": spec.width,
        "num_hidden_layers": len(layers),
        "num_attention_heads": spec.heads,
        "attention_bias": spec.qkv_bias,
        "attention_dropout": 0.0,
        "hidden_activation": word_of(GATES, spec),
        "intermediate_size": spec.ffn_width,
        "mlp_bias": spec.ffn_bias,
        "norm_eps": of_kind(spec, "norm", LayerNorm).epsilon,
        "norm_bias": of_kind(spec, "norm", LayerNorm).bias,
        "layer_types": write_layer_types(spec),
        ROPES: {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
        "embedding_dropout": spec.dropout.embedding,
        "mlp_dropout": spec.dropout.ffn,
    }


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters."""
    head = spec.head
    tied = isinstance(head, TokenHead) and head.tied
    embeddings = "model.embeddings"
    yield table(f"{embeddings}.tok_embeddings", "embedding", copies=("decoder",) if tied else ())
    yield from norm(spec, f"{embeddings}.norm", "embedding_norm")
    for layer in range(spec.layers):
        theirs, ours = f"model.layers.{layer}", f"layer_{layer}"
        if layer or spec.first_norm:
            yield from norm(spec, f"{theirs}.attn_norm", f"{ours}/attention_norm_in")
        yield from joined(f"{theirs}.attn.Wqkv", qkv(f"{ours}/attention"), bias=spec.qkv_bias)
        yield from dense(
            f"{theirs}.attn.Wo", f"{ours}/attention/out", bias=spec.attention_out_bias, inputs=2
        )
        yield from norm(spec, f"{theirs}.mlp_norm", f"{ours}/ffn_norm_in")
        gate, up = f"{ours}/ffn/gate", f"{ours}/ffn/up"
        yield from joined(f"{theirs}.mlp.Wi", (gate, up), bias=spec.ffn_bias)
        yield from dense(f"{theirs}.mlp.Wo", f"{ours}/ffn/down", bias=spec.ffn_bias)
    yield from norm(spec, "model.final_norm", "final_norm")
    if not isinstance(head, TokenHead):
        return
    yield from dense("head.dense", "head_transform", bias=head.transform_bias)
    yield from norm(spec, "head.norm", "head_norm")
    if not tied:
        yield from dense("decoder", "head", bias=head.bias)
    elif head.bias:
        yield Rule("decoder.bias", ("head/bias",), Flat())


MODERNBERT = Family(
    name="modernbert",
    model_types=("modernbert",),
    architectures=(TOKENS, BARE),
    read=read,
    write=write,
    rules=rules,
    irrelevant={
        "max_position_embeddings": "bounds no rotary position",
        "layer_norm_eps": "stands beside norm_eps, which is used",
        "position_embedding_type": "is of BERT, and not used",
        "initializer_cutoff_factor": "initial values are not stored ones",
        "cls_token_id": "belongs to the tokenizer",
        "sparse_prediction": TRAINING,
        "sparse_pred_ignore_index": TRAINING,
        "classifier_pooling": CLASSIFIER,
        "classifier_dropout": CLASSIFIER,
        "deterministic_flash_attn": KERNEL,
        "reference_compile": KERNEL,
        "repad_logits_with_grad": KERNEL,
    },
    unnamed=dict.fromkeys(f"{name}_token_id" for name in ("bos", "cls", "eos", "pad", "sep")),
    prefix="model.",
)
"""ModernBERT."""
