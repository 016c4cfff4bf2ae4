"""BERT (Devlin et al. 2018): post-norm, learned positions, token types, a norm of the embeddings.

Reference: `BertForMaskedLM` and `BertModel`, https://github.com/huggingface/transformers. Its
pooler is read wherever it is stored; the head that tells whether two sentences follow one another,
with which the first checkpoints came, is not.
"""

from collections.abc import Iterator
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.family import Family
from jtransformer.interop.layouts import Flat
from jtransformer.interop.reading import ConfigReader
from jtransformer.interop.rules import Rule, dense, norm, table
from jtransformer.interop.words import ACTIVATIONS, word_of
from jtransformer.spec import (
    Dropout,
    Embedder,
    Encoder,
    LayerNorm,
    Learned,
    ModelSpec,
    TokenHead,
)
from jtransformer.spec.heads import Head
from jtransformer.spec.positions import Position

TOKENS, BARE = "BertForMaskedLM", "BertModel"
POOLER = "belongs to a pooler that no model has"
STATES = Embedder(pooling="first", unit_length=False)
"""The head of a model that has none: its states are what is asked for."""


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    position = Learned(max_length=config.integer("max_position_embeddings", default=512))
    vocabulary = config.integer("vocab_size", default=30_522)
    spec = read_encoder(config, vocabulary, position=position, head=read_head(config, BARE, "cls."))
    if isinstance(spec.head, TokenHead) and spec.ffn != "gelu":
        raise config.refusal("hidden_act", "acts in the head too, where there is gelu alone")
    return spec


def read_head(config: ConfigReader, bare: str, prefix: str) -> Head:
    """Reads which head there is.

    Args:
        config: The config.
        bare: Class of the model that has none.
        prefix: What the names of its tensors begin with, where the config names no class.
    """
    config.only("tie_word_embeddings", True)
    named = config.architecture
    if named == bare or (named is None and not any(n.startswith(prefix) for n in config.stored)):
        return STATES
    return TokenHead(bias=True, transform=True)


def read_encoder(
    config: ConfigReader, vocabulary: int, *, position: Position, head: Head
) -> ModelSpec:
    """Reads what RoBERTa has too.

    Args:
        config: The config.
        vocabulary: Its token ids.
        position: Its positions.
        head: Its head.
    """
    config.only("position_embedding_type", "absolute")
    dropout = config.number("hidden_dropout_prob", default=0.1)
    return ModelSpec(
        vocabulary=vocabulary,
        width=config.integer("hidden_size", default=768),
        layers=config.integer("num_hidden_layers", default=12),
        heads=config.integer("num_attention_heads", default=12),
        stack=Encoder(
            token_types=config.integer("type_vocab_size", default=2),
            pooler=any(name.endswith("pooler.dense.weight") for name in config.stored),
        ),
        qkv_bias=True,
        attention_out_bias=True,
        ffn=config.choice("hidden_act", ACTIVATIONS, default="gelu"),
        ffn_width=config.integer("intermediate_size", default=3072),
        ffn_bias=True,
        norm_placement="post",
        norm=LayerNorm(epsilon=config.number("layer_norm_eps", default=1e-12)),
        position=position,
        embedding_norm=True,
        head=head,
        dropout=Dropout(
            embedding=dropout,
            attention=config.number("attention_probs_dropout_prob", default=0.1),
            residual=dropout,
        ),
        initialization="bert",
    )


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    length = of_kind(spec, "position", Learned).max_length
    return write_encoder(spec, TOKENS, BARE) | {"max_position_embeddings": length}


def write_encoder(spec: ModelSpec, tokens: str, bare: str) -> dict[str, Any]:
    """Writes what RoBERTa has too.

    Args:
        spec: The model.
        tokens: Class of the model that scores tokens.
        bare: Class of the model without a head.
    """
    return {
        "architectures": [tokens if isinstance(spec.head, TokenHead) else bare],
        "vocab_size": spec.vocabulary,
        "hidden_size": spec.width,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "intermediate_size": spec.ffn_width,
        "hidden_act": word_of(ACTIVATIONS, spec),
        "type_vocab_size": of_kind(spec, "stack", Encoder).token_types,
        "layer_norm_eps": of_kind(spec, "norm", LayerNorm).epsilon,
        "hidden_dropout_prob": spec.dropout.residual,
        "attention_probs_dropout_prob": spec.dropout.attention,
    }


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters."""
    theirs = "cls.predictions"
    yield from encoder_rules(spec, "bert", f"{theirs}.decoder")
    if isinstance(spec.head, TokenHead):
        yield from dense(f"{theirs}.transform.dense", "head_transform", bias=True)
        yield from norm(spec, f"{theirs}.transform.LayerNorm", "head_norm")
        yield Rule(f"{theirs}.bias", ("head/bias",), Flat(), (f"{theirs}.decoder.bias",))


def encoder_rules(spec: ModelSpec, theirs: str, head: str) -> Iterator[Rule]:
    """Maps what RoBERTa has too.

    Args:
        spec: The model.
        theirs: Their module.
        head: Their module of the head's matrix, which is the table.
    """
    tied = isinstance(spec.head, TokenHead)
    embeddings = f"{theirs}.embeddings"
    yield table(f"{embeddings}.word_embeddings", "embedding", copies=(head,) if tied else ())
    yield table(f"{embeddings}.position_embeddings", "position")
    if isinstance(spec.stack, Encoder) and spec.stack.token_types:
        yield table(f"{embeddings}.token_type_embeddings", "token_type")
    yield from norm(spec, f"{embeddings}.LayerNorm", "embedding_norm")
    for layer in range(spec.layers):
        own, ours = f"{theirs}.encoder.layer.{layer}", f"layer_{layer}"
        for name in ("query", "key", "value"):
            yield from dense(f"{own}.attention.self.{name}", f"{ours}/attention/{name}", bias=True)
        output = f"{own}.attention.output"
        yield from dense(f"{output}.dense", f"{ours}/attention/out", bias=True, inputs=2)
        yield from norm(spec, f"{output}.LayerNorm", f"{ours}/attention_norm_out")
        yield from dense(f"{own}.intermediate.dense", f"{ours}/ffn/in", bias=True)
        yield from dense(f"{own}.output.dense", f"{ours}/ffn/out", bias=True)
        yield from norm(spec, f"{own}.output.LayerNorm", f"{ours}/ffn_norm_out")
    if isinstance(spec.stack, Encoder) and spec.stack.pooler:
        yield from dense(f"{theirs}.pooler.dense", "pooler", bias=True)


BERT = Family(
    name="bert",
    model_types=("bert",),
    architectures=(TOKENS, BARE, "BertForPreTraining"),
    read=read,
    write=write,
    rules=rules,
    irrelevant={
        "classifier_dropout": "belongs to a head that is not read",
        "directionality": "is shown, not computed",
        "pooler_fc_size": POOLER,
        "pooler_num_attention_heads": POOLER,
        "pooler_num_fc_layers": POOLER,
        "pooler_size_per_head": POOLER,
        "pooler_type": POOLER,
    },
    buffers=(r"bert\.embeddings\.position_ids", r"cls\.seq_relationship\.(weight|bias)"),
    prefix="bert.",
)
"""BERT."""
