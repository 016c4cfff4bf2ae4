"""GPT-2 (Radford et al. 2019): pre-norm, learned positions, fused queries, keys and values.

Its matrices are stored [inputs, outputs], unlike everyone else's.
Reference: `GPT2LMHeadModel`, https://github.com/huggingface/transformers.
"""

from collections.abc import Iterator
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.family import Family
from jtransformer.interop.layouts import Straight
from jtransformer.interop.reading import TRAINING, ConfigReader
from jtransformer.interop.rules import Rule, dense, joined, norm, qkv, table
from jtransformer.interop.words import ACTIVATIONS, word_of
from jtransformer.spec import Dropout, LayerNorm, Learned, ModelSpec, TokenHead

SUMMARY = "belongs to a head that is not read"


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    config.only("scale_attn_weights", True)
    config.only("scale_attn_by_inverse_layer_idx", False)
    width = config.integer("n_embd", default=768)
    return ModelSpec(
        vocabulary=config.integer("vocab_size", default=50_257),
        width=width,
        layers=config.integer("n_layer", default=12),
        heads=config.integer("n_head", default=12),
        qkv_bias=True,
        attention_out_bias=True,
        ffn=config.choice("activation_function", ACTIVATIONS, default="gelu_new"),
        ffn_width=config.integer("n_inner", default=4 * width),
        ffn_bias=True,
        norm=LayerNorm(epsilon=config.number("layer_norm_epsilon", default=1e-5)),
        position=Learned(max_length=config.integer("n_positions", default=1024)),
        head=TokenHead(tied=config.flag("tie_word_embeddings", default=True)),
        dropout=Dropout(
            embedding=config.number("embd_pdrop", default=0.1),
            attention=config.number("attn_pdrop", default=0.1),
            residual=config.number("resid_pdrop", default=0.1),
        ),
        initialization="gpt2",
    )


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    return {
        "vocab_size": spec.vocabulary,
        "n_embd": spec.width,
        "n_layer": spec.layers,
        "n_head": spec.heads,
        "n_inner": spec.ffn_width,
        "n_positions": of_kind(spec, "position", Learned).max_length,
        "activation_function": word_of(ACTIVATIONS, spec),
        "layer_norm_epsilon": of_kind(spec, "norm", LayerNorm).epsilon,
        "tie_word_embeddings": of_kind(spec, "head", TokenHead).tied,
        "embd_pdrop": spec.dropout.embedding,
        "attn_pdrop": spec.dropout.attention,
        "resid_pdrop": spec.dropout.residual,
    }


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters."""
    tied = isinstance(spec.head, TokenHead) and spec.head.tied
    yield table("transformer.wte", "embedding", copies=("lm_head",) if tied else ())
    yield table("transformer.wpe", "position")
    for layer in range(spec.layers):
        theirs, ours = f"transformer.h.{layer}", f"layer_{layer}"
        yield from norm(spec, f"{theirs}.ln_1", f"{ours}/attention_norm_in")
        yield from joined(
            f"{theirs}.attn.c_attn", qkv(f"{ours}/attention"), bias=True, matrix=Straight
        )
        yield from dense(
            f"{theirs}.attn.c_proj", f"{ours}/attention/out", bias=True, inputs=2, matrix=Straight
        )
        yield from norm(spec, f"{theirs}.ln_2", f"{ours}/ffn_norm_in")
        yield from dense(f"{theirs}.mlp.c_fc", f"{ours}/ffn/in", bias=True, matrix=Straight)
        yield from dense(f"{theirs}.mlp.c_proj", f"{ours}/ffn/out", bias=True, matrix=Straight)
    yield from norm(spec, "transformer.ln_f", "final_norm")
    if not tied:
        yield from dense("lm_head", "head", bias=False)


GPT2 = Family(
    name="gpt2",
    model_types=("gpt2",),
    architectures=("GPT2LMHeadModel", "GPT2Model"),
    read=read,
    write=write,
    rules=rules,
    irrelevant={
        "n_ctx": "repeats n_positions",
        "reorder_and_upcast_attn": "scores are in float32 in any case",
        "summary_type": SUMMARY,
        "summary_use_proj": SUMMARY,
        "summary_activation": SUMMARY,
        "summary_proj_to_labels": SUMMARY,
        "summary_first_dropout": TRAINING,
    },
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    buffers=(r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",),
    prefix="transformer.",
)
"""GPT-2."""
