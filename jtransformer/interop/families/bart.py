"""BART (Lewis et al. 2019): post-norm, learned positions counted from 2, a norm of the embeddings.

Reference: `BartForConditionalGeneration`, https://github.com/huggingface/transformers. Its logits
have a bias that is stored as a buffer.
"""

from collections.abc import Iterator
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.family import Family
from jtransformer.interop.layouts import Flat
from jtransformer.interop.reading import TRAINING, ConfigReader
from jtransformer.interop.rules import Rule, dense, norm, table
from jtransformer.interop.words import ACTIVATIONS, word_of
from jtransformer.spec import (
    Dropout,
    EncoderDecoder,
    LayerNorm,
    Learned,
    ModelSpec,
    SpecError,
    TokenHead,
)
from jtransformer.spec.positions import Position

FIRST = 2
"""Row of the first position; those before it belong to no token."""
EPSILON = 1e-5
"""Of every norm; no field says it."""
LOGITS_BIAS = "final_logits_bias"


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    config.only("tie_word_embeddings", True)
    config.only("normalize_embedding", True)
    config.only("static_position_embeddings", False)
    length = config.integer("max_position_embeddings", default=1024)
    return read_stacks(
        config,
        stack=EncoderDecoder(encoder_layers=config.integer("encoder_layers", default=12)),
        vocabulary=config.integer("vocab_size", default=50_265),
        position=Learned(max_length=length, first=FIRST),
        embedding_norm=True,
        head=TokenHead(bias=LOGITS_BIAS in config.stored),
    )


def read_stacks(
    config: ConfigReader,
    *,
    stack: EncoderDecoder,
    vocabulary: int,
    position: Position,
    embedding_norm: bool,
    head: TokenHead,
) -> ModelSpec:
    """Reads what Marian has too.

    Args:
        config: The config.
        stack: The depth of the encoder, and whose its table is.
        vocabulary: Token ids of the target.
        position: The positions.
        embedding_norm: Whether embeddings have a norm.
        head: The head.

    Raises:
        SpecError: If the stacks differ in what a model has once.
    """
    config.only("is_encoder_decoder", True)
    config.only("normalize_before", False)
    config.only("add_final_layer_norm", False)
    config.only("add_bias_logits", False)
    config.only("do_blenderbot_90_layernorm", False)
    for name in ("encoder_layerdrop", "decoder_layerdrop"):
        config.only(name, 0.0, 0)
    dropout = config.number("dropout", default=0.1)
    return ModelSpec(
        vocabulary=vocabulary,
        width=config.integer("d_model", default=1024),
        layers=config.integer("decoder_layers", default=12),
        heads=_of_both(config, "attention_heads", 16),
        stack=stack,
        qkv_bias=True,
        attention_out_bias=True,
        ffn=config.choice("activation_function", ACTIVATIONS, default="gelu"),
        ffn_width=_of_both(config, "ffn_dim", 4096),
        ffn_bias=True,
        norm_placement="post",
        norm=LayerNorm(epsilon=EPSILON),
        position=position,
        scale_embedding=config.flag("scale_embedding", default=False),
        embedding_norm=embedding_norm,
        head=head,
        dropout=Dropout(
            embedding=dropout,
            attention=config.number("attention_dropout", default=0.0),
            ffn=config.number("activation_dropout", default=0.0),
            residual=dropout,
        ),
        initialization="bert",
    )


def _of_both(config: ConfigReader, name: str, default: int) -> int:
    """Reads a size that the stacks have in common."""
    encoder = config.integer(f"encoder_{name}", default=default)
    decoder = config.integer(f"decoder_{name}", default=default)
    if encoder != decoder:
        raise config.refusal(
            f"decoder_{name}",
            f"differs from encoder_{name}={encoder}, and both stacks have one size here",
        )
    return decoder


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    length = of_kind(spec, "position", Learned).max_length
    return write_stacks(spec) | {"max_position_embeddings": length}


def write_stacks(spec: ModelSpec) -> dict[str, Any]:
    """Writes what Marian has too."""
    if of_kind(spec, "norm", LayerNorm).epsilon != EPSILON:
        raise SpecError(
            "norm.layer_norm.epsilon",
            f"= {of_kind(spec, 'norm', LayerNorm).epsilon} has no field; use {EPSILON}.",
        )
    return {
        "is_encoder_decoder": True,
        "vocab_size": spec.vocabulary,
        "d_model": spec.width,
        "encoder_layers": of_kind(spec, "stack", EncoderDecoder).encoder_layers,
        "decoder_layers": spec.layers,
        "encoder_attention_heads": spec.heads,
        "decoder_attention_heads": spec.heads,
        "encoder_ffn_dim": spec.ffn_width,
        "decoder_ffn_dim": spec.ffn_width,
        "activation_function": word_of(ACTIVATIONS, spec),
        "scale_embedding": spec.scale_embedding,
        "dropout": spec.dropout.residual,
        "attention_dropout": spec.dropout.attention,
        "activation_dropout": spec.dropout.ffn,
        "tie_word_embeddings": of_kind(spec, "head", TokenHead).tied,
    }


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters."""
    copies = ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    yield table("model.shared", "embedding", copies=copies)
    for stack in ("encoder", "decoder"):
        yield table(f"model.{stack}.embed_positions", f"{stack}/position")
        yield from norm(spec, f"model.{stack}.layernorm_embedding", f"{stack}/embedding_norm")
    yield from stack_rules(spec)
    yield from bias_rules(spec)


def bias_rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the bias of the logits, `[1, V]` there."""
    if isinstance(spec.head, TokenHead) and spec.head.bias:
        yield Rule(LOGITS_BIAS, ("head/bias",), Flat(leading=1))


def stack_rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the layers of both stacks, as Marian has them too."""
    stack = of_kind(spec, "stack", EncoderDecoder)
    sublayers = {"attention": "self_attn", "cross_attention": "encoder_attn"}
    for name, layers in (("encoder", stack.encoder_layers), ("decoder", spec.layers)):
        for layer in range(layers):
            theirs, ours = f"model.{name}.layers.{layer}", f"{name}/layer_{layer}"
            for own, other in sublayers.items():
                if own == "attention" or name == "decoder":
                    yield from _attention_rules(spec, f"{theirs}.{other}", f"{ours}/{own}")
            yield from dense(f"{theirs}.fc1", f"{ours}/ffn/in", bias=True)
            yield from dense(f"{theirs}.fc2", f"{ours}/ffn/out", bias=True)
            yield from norm(spec, f"{theirs}.final_layer_norm", f"{ours}/ffn_norm_out")


def _attention_rules(spec: ModelSpec, theirs: str, ours: str) -> Iterator[Rule]:
    for name in ("query", "key", "value"):
        yield from dense(f"{theirs}.{name[0]}_proj", f"{ours}/{name}", bias=True)
    yield from dense(f"{theirs}.out_proj", f"{ours}/out", bias=True, inputs=2)
    yield from norm(spec, f"{theirs}_layer_norm", f"{ours}_norm_out")


IRRELEVANT = {
    "_num_labels": "names classes",
    "init_std": "initial values are not stored ones",
    "classifier_dropout": TRAINING,
    "classif_dropout": TRAINING,
    "force_bos_token_to_be_generated": "steers generation",
    "extra_pos_embeddings": "repeats the row of the first position",
    "output_past": "computes the same",
}
"""Fields that do not change what is computed, as Marian has them too."""
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}

BART = Family(
    name="bart",
    model_types=("bart",),
    architectures=("BartForConditionalGeneration", "BartModel"),
    read=read,
    write=write,
    rules=rules,
    irrelevant=IRRELEVANT,
    aliases=ALIASES,
    buffers=(r"model\.(encoder|decoder)\.version",),
    prefix="model.",
)
"""BART."""
