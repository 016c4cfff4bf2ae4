"""BLOOM (BigScience Workshop 2022): ALiBi, a norm of the embeddings, tanh GELU.

Queries, keys and values are joined head by head; the feed-forward network is 4 times the width.
Reference: `BloomForCausalLM`, https://github.com/huggingface/transformers.
"""

from collections.abc import Iterator
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.family import Family
from jtransformer.interop.reading import SHOWN, ConfigReader
from jtransformer.interop.rules import Rule, dense, joined, norm, qkv, table
from jtransformer.spec import Alibi, Dropout, LayerNorm, ModelSpec, TokenHead

KERNEL = "chooses a kernel"


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    config.only("apply_residual_connection_post_layernorm", False)
    config.only("n_inner", None)
    # The slow form leaves the biases of two matrices out where there is more than one part.
    if config.integer("pretraining_tp", default=1) > 1:
        config.only("slow_but_exact", False)
    config.ignore("slow_but_exact")
    width = config.integer("hidden_size", default=64)
    return ModelSpec(
        vocabulary=config.integer("vocab_size", default=250_880),
        width=width,
        layers=config.integer("n_layer", default=2),
        heads=config.integer("n_head", default=8),
        qkv_bias=True,
        attention_out_bias=True,
        ffn="gelu_tanh",
        ffn_width=4 * width,
        ffn_bias=True,
        norm=LayerNorm(epsilon=config.number("layer_norm_epsilon", default=1e-5)),
        position=Alibi(),
        embedding_norm=True,
        head=TokenHead(tied=config.flag("tie_word_embeddings", default=True)),
        dropout=Dropout(
            attention=config.number("attention_dropout", default=0.0),
            residual=config.number("hidden_dropout", default=0.0),
        ),
        initialization="bert",
    )


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    return {
        "vocab_size": spec.vocabulary,
        "hidden_size": spec.width,
        "n_layer": spec.layers,
        "n_head": spec.heads,
        "layer_norm_epsilon": of_kind(spec, "norm", LayerNorm).epsilon,
        "tie_word_embeddings": of_kind(spec, "head", TokenHead).tied,
        "attention_dropout": spec.dropout.attention,
        "hidden_dropout": spec.dropout.residual,
    }


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters."""
    tied = isinstance(spec.head, TokenHead) and spec.head.tied
    yield table("transformer.word_embeddings", "embedding", copies=("lm_head",) if tied else ())
    yield from norm(spec, "transformer.word_embeddings_layernorm", "embedding_norm")
    for layer in range(spec.layers):
        theirs, ours = f"transformer.h.{layer}", f"layer_{layer}"
        attention = f"{theirs}.self_attention"
        yield from norm(spec, f"{theirs}.input_layernorm", f"{ours}/attention_norm_in")
        yield from joined(
            f"{attention}.query_key_value", qkv(f"{ours}/attention"), bias=True, grouped=True
        )
        yield from dense(f"{attention}.dense", f"{ours}/attention/out", bias=True, inputs=2)
        yield from norm(spec, f"{theirs}.post_attention_layernorm", f"{ours}/ffn_norm_in")
        yield from dense(f"{theirs}.mlp.dense_h_to_4h", f"{ours}/ffn/in", bias=True)
        yield from dense(f"{theirs}.mlp.dense_4h_to_h", f"{ours}/ffn/out", bias=True)
    yield from norm(spec, "transformer.ln_f", "final_norm")
    if not tied:
        yield from dense("lm_head", "head", bias=False)


BLOOM = Family(
    name="bloom",
    model_types=("bloom",),
    architectures=("BloomForCausalLM", "BloomModel"),
    read=read,
    write=write,
    rules=rules,
    irrelevant={
        "pretraining_pp": "divided its training among machines",
        "seq_length": "bounds no position",
        "offset_alibi": "shifts all scores of a query alike",
        "attention_softmax_in_fp32": "the softmax is in float32 in any case",
        "masked_softmax_fusion": KERNEL,
        "bias_dropout_fusion": KERNEL,
        "skip_bias_add": KERNEL,
        "skip_bias_add_qkv": KERNEL,
        "unk_token_id": SHOWN,
    },
    aliases={
        "n_embed": "hidden_size",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    prefix="transformer.",
)
"""BLOOM."""
