"""GPT-NeoX and Pythia (Black et al. 2022, Biderman et al. 2023).

Attention and feed-forward side by side with a norm each, rotary positions on a part of each head,
queries, keys and values joined head by head.
Reference: `GPTNeoXForCausalLM`, https://github.com/huggingface/transformers.
"""

from collections.abc import Iterator
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.family import Family
from jtransformer.interop.layouts import Transposed
from jtransformer.interop.reading import ConfigReader
from jtransformer.interop.rotary import read_rope, write_rope
from jtransformer.interop.rules import Rule, dense, joined, norm, qkv, table
from jtransformer.interop.words import ACTIVATIONS, word_of
from jtransformer.spec import Dropout, LayerNorm, ModelSpec, Rope, TokenHead


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    # Names that no version reads; the first files hold them.
    config.only("attention_probs_dropout_prob", 0, 0.0)
    config.only("hidden_dropout_prob", 0, 0.0)
    bias = config.flag("attention_bias", default=True)
    parallel = config.flag("use_parallel_residual", default=True)
    dropout = config.number("hidden_dropout", default=0.0)
    return ModelSpec(
        vocabulary=config.integer("vocab_size", default=50_432),
        width=config.integer("hidden_size", default=6144),
        layers=config.integer("num_hidden_layers", default=44),
        heads=config.integer("num_attention_heads", default=64),
        qkv_bias=bias,
        attention_out_bias=bias,
        ffn=config.choice("hidden_act", ACTIVATIONS, default="gelu"),
        ffn_width=config.integer("intermediate_size", default=24_576),
        ffn_bias=True,
        norm=LayerNorm(epsilon=config.number("layer_norm_eps", default=1e-5)),
        sublayers="parallel" if parallel else "sequential",
        position=read_rope(config, fraction=0.25, length=2048),
        head=TokenHead(tied=config.flag("tie_word_embeddings", default=False)),
        dropout=Dropout(
            embedding=dropout,
            attention=config.number("attention_dropout", default=0.0),
            residual=dropout,
        ),
        initialization="bert",
    )


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    rope = write_rope(of_kind(spec, "position", Rope))
    # A share that is left out would be a quarter.
    rope["rope_parameters"].setdefault("partial_rotary_factor", 1.0)
    return {
        "vocab_size": spec.vocabulary,
        "hidden_size": spec.width,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "attention_bias": spec.qkv_bias,
        "hidden_act": word_of(ACTIVATIONS, spec),
        "intermediate_size": spec.ffn_width,
        "layer_norm_eps": of_kind(spec, "norm", LayerNorm).epsilon,
        "use_parallel_residual": spec.sublayers == "parallel",
        "tie_word_embeddings": of_kind(spec, "head", TokenHead).tied,
        "hidden_dropout": spec.dropout.residual,
        "attention_dropout": spec.dropout.attention,
    } | rope


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters."""
    tied = isinstance(spec.head, TokenHead) and spec.head.tied
    # Files from before version 5 of the library call the head embed_out.
    heads = ("lm_head", "embed_out")
    yield table("gpt_neox.embed_in", "embedding", copies=heads if tied else ())
    for layer in range(spec.layers):
        theirs, ours = f"gpt_neox.layers.{layer}", f"layer_{layer}"
        yield from norm(spec, f"{theirs}.input_layernorm", f"{ours}/attention_norm_in")
        yield from joined(
            f"{theirs}.attention.query_key_value",
            qkv(f"{ours}/attention"),
            bias=spec.qkv_bias,
            grouped=True,
        )
        out = f"{ours}/attention/out"
        yield from dense(f"{theirs}.attention.dense", out, bias=spec.attention_out_bias, inputs=2)
        yield from norm(spec, f"{theirs}.post_attention_layernorm", f"{ours}/ffn_norm_in")
        yield from dense(f"{theirs}.mlp.dense_h_to_4h", f"{ours}/ffn/in", bias=True)
        yield from dense(f"{theirs}.mlp.dense_4h_to_h", f"{ours}/ffn/out", bias=True)
    yield from norm(spec, "gpt_neox.final_layer_norm", "final_norm")
    if not tied:
        yield Rule("lm_head.weight", ("head/kernel",), Transposed(), ("embed_out.weight",))


GPT_NEOX = Family(
    name="gpt_neox",
    model_types=("gpt_neox",),
    architectures=("GPTNeoXForCausalLM", "GPTNeoXModel"),
    read=read,
    write=write,
    rules=rules,
    irrelevant={
        "max_position_embeddings": "bounds no rotary position",
        "classifier_dropout": "belongs to a head that is not read",
        "is_decoder": "it is causal in any case",
    },
    aliases={"rotary_emb_base": "rope_theta", "rotary_pct": "partial_rotary_factor"},
    buffers=(
        r"gpt_neox\.layers\.\d+\.attention\.(bias|masked_bias)",
        r"gpt_neox\.layers\.\d+\.attention\.rotary_emb\.inv_freq",
    ),
    prefix="gpt_neox.",
)
"""GPT-NeoX, Pythia."""
