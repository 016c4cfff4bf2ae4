"""Falcon (Almazrouei et al. 2023): attention and feed-forward side by side, few key heads.

The first form (7B) has one norm before both and one key head, or as many as query heads; the second
("new_decoder_architecture": 40B, 180B, 11B) any number of key heads, and one norm or two.
Falcon-RW's ALiBi is not read: its slopes are rounded to bfloat16 and divided by sqrt(H).
Reference: `FalconForCausalLM`, https://github.com/huggingface/transformers.
"""

from collections.abc import Iterator
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.family import Family
from jtransformer.interop.reading import ConfigReader
from jtransformer.interop.rotary import read_rope, write_rope
from jtransformer.interop.rules import Rule, dense, joined, norm, qkv, table
from jtransformer.interop.words import ACTIVATIONS, word_of
from jtransformer.spec import LayerNorm, ModelSpec, Rope, TokenHead
from jtransformer.spec.residual import Sublayers


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    config.only("alibi", False, None)
    config.only("apply_residual_connection_post_layernorm", False)
    # Theirs is drawn once for the sum of both branches.
    config.only("hidden_dropout", 0.0, 0, None)
    config.only("attention_dropout", 0.0, 0, None)
    width = config.integer("hidden_size", default=4544)
    heads = config.integer("num_attention_heads", default=71)
    sublayers, key_heads = _form(config, heads)
    bias = config.flag("bias", default=False)
    return ModelSpec(
        vocabulary=config.integer("vocab_size", default=65_024),
        width=width,
        layers=config.integer("num_hidden_layers", default=32),
        heads=heads,
        key_value_heads=key_heads,
        qkv_bias=bias,
        attention_out_bias=bias,
        ffn=config.choice("activation", ACTIVATIONS, default="gelu"),
        ffn_width=config.integer("ffn_hidden_size", default=4 * width),
        ffn_bias=bias,
        norm=LayerNorm(epsilon=config.number("layer_norm_epsilon", default=1e-5)),
        sublayers=sublayers,
        position=read_rope(config, length=2048),
        head=TokenHead(tied=config.flag("tie_word_embeddings", default=True)),
        initialization="bert",
    )


def _form(config: ConfigReader, heads: int) -> tuple[Sublayers, int]:
    """Reads how the sublayers are wired, and the number of key heads."""
    is_parallel = config.flag("parallel_attn", default=True)
    has_one_key_head = config.flag("multi_query", default=True)
    if config.flag("new_decoder_architecture", default=False):
        config.only("parallel_attn", True, None)
        config.only("num_ln_in_parallel_attn", None, 1, 2)
        norms = config.integer("num_ln_in_parallel_attn", default=2)
        key_heads = config.integer("num_kv_heads", default=heads)
        return "parallel" if norms == 2 else "parallel_one_norm", key_heads
    config.only("num_ln_in_parallel_attn", None, 1)
    if has_one_key_head:
        config.ignore("num_kv_heads")
    else:
        config.only("num_kv_heads", None, heads)
    wiring: Sublayers = "parallel_one_norm" if is_parallel else "sequential"
    return wiring, 1 if has_one_key_head else heads


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    is_grouped = spec.K not in (1, spec.heads)
    is_new = spec.sublayers == "parallel" or (is_grouped and spec.sublayers != "sequential")
    form: dict[str, Any] = {"new_decoder_architecture": is_new}
    if is_new:
        norms = 2 if spec.sublayers == "parallel" else 1
        form |= {"num_kv_heads": spec.K, "num_ln_in_parallel_attn": norms}
    else:
        form |= {"multi_query": spec.K == 1, "parallel_attn": spec.sublayers != "sequential"}
    return (
        {
            "vocab_size": spec.vocabulary,
            "hidden_size": spec.width,
            "num_hidden_layers": spec.layers,
            "num_attention_heads": spec.heads,
            "bias": spec.qkv_bias,
            "activation": word_of(ACTIVATIONS, spec),
            "ffn_hidden_size": spec.ffn_width,
            "layer_norm_epsilon": of_kind(spec, "norm", LayerNorm).epsilon,
            "tie_word_embeddings": of_kind(spec, "head", TokenHead).tied,
        }
        | form
        | write_rope(of_kind(spec, "position", Rope))
    )


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters."""
    tied = isinstance(spec.head, TokenHead) and spec.head.tied
    norms = {
        "parallel_one_norm": ("input_layernorm",),
        "parallel": ("ln_attn", "ln_mlp"),
        "sequential": ("input_layernorm", "post_attention_layernorm"),
    }[spec.sublayers]
    yield table("transformer.word_embeddings", "embedding", copies=("lm_head",) if tied else ())
    for layer in range(spec.layers):
        theirs, ours = f"transformer.h.{layer}", f"layer_{layer}"
        attention = f"{theirs}.self_attention"
        for their_norm, sublayer in zip(norms, ("attention", "ffn"), strict=False):
            yield from norm(spec, f"{theirs}.{their_norm}", f"{ours}/{sublayer}_norm_in")
        yield from joined(
            f"{attention}.query_key_value",
            qkv(f"{ours}/attention"),
            bias=spec.qkv_bias,
            grouped=True,
        )
        out = f"{ours}/attention/out"
        yield from dense(f"{attention}.dense", out, bias=spec.attention_out_bias, inputs=2)
        yield from dense(f"{theirs}.mlp.dense_h_to_4h", f"{ours}/ffn/in", bias=spec.ffn_bias)
        yield from dense(f"{theirs}.mlp.dense_4h_to_h", f"{ours}/ffn/out", bias=spec.ffn_bias)
    yield from norm(spec, "transformer.ln_f", "final_norm")
    if not tied:
        yield from dense("lm_head", "head", bias=False)


FALCON = Family(
    name="falcon",
    model_types=("falcon",),
    architectures=("FalconForCausalLM", "FalconModel"),
    read=read,
    write=write,
    rules=rules,
    irrelevant={
        "max_position_embeddings": "bounds no rotary position",
        "ff_factor": "ffn_hidden_size says it",
    },
    aliases={"n_embed": "hidden_size"},
    buffers=(r"transformer\.h\.\d+\.self_attention\.rotary_emb\.inv_freq",),
    prefix="transformer.",
)
"""Falcon."""
