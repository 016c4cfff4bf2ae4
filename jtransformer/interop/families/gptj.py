"""GPT-J (Wang and Komatsuzaki 2021).

Attention and feed-forward side by side behind one norm, neighbouring channels turned in a part of
each head, a head with biases.
Reference: `GPTJForCausalLM`, https://github.com/huggingface/transformers.
"""

import math
from collections.abc import Iterator
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.family import Family
from jtransformer.interop.layouts import Flat
from jtransformer.interop.reading import TRAINING, ConfigReader
from jtransformer.interop.rules import Rule, dense, norm, qkv, table
from jtransformer.interop.words import ACTIVATIONS, word_of
from jtransformer.spec import Dropout, LayerNorm, ModelSpec, Rope, TokenHead

SUMMARY = "belongs to a head that is not read"


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    config.only("rotary", True)
    config.only("scale_attn_weights", True)
    width = config.integer("n_embd", default=4096)
    heads = config.integer("n_head", default=16)
    rotary_width = config.integer("rotary_dim", default=64)
    if heads < 1 or width % heads:
        raise config.refusal("n_head", f"must divide n_embd={width}")
    if not 0 < rotary_width <= width // heads:
        raise config.refusal("rotary_dim", f"must lie in 2 … {width // heads}, a head's width")
    residual = config.number("resid_pdrop", default=0.0)
    return ModelSpec(
        vocabulary=config.integer("vocab_size", default=50_400),
        width=width,
        layers=config.integer("n_layer", default=28),
        heads=heads,
        ffn=config.choice("activation_function", ACTIVATIONS, default="gelu_new"),
        ffn_width=config.integer("n_inner", default=4 * width),
        ffn_bias=True,
        norm=LayerNorm(epsilon=config.number("layer_norm_epsilon", default=1e-5)),
        sublayers="parallel_one_norm",
        position=Rope(pairing="interleaved", rotary_fraction=_share(rotary_width, width // heads)),
        head=TokenHead(tied=config.flag("tie_word_embeddings", default=False), bias=True),
        dropout=Dropout(
            embedding=config.number("embd_pdrop", default=0.0),
            attention=config.number("attn_pdrop", default=0.0),
            residual=residual,
        ),
        initialization="bert",
    )


def _share(rotary_width: int, head_width: int) -> float:
    """Returns the share of a head whose product with its width is not rounded below `rotary_width`.

    The nearest quotient may be a little too small: 49 (1 / 49) is less than 1.
    """
    share = rotary_width / head_width
    return share if int(head_width * share) == rotary_width else math.nextafter(share, 1.0)


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    return {
        "vocab_size": spec.vocabulary,
        "n_embd": spec.width,
        "n_layer": spec.layers,
        "n_head": spec.heads,
        "n_inner": spec.ffn_width,
        "rotary_dim": int(spec.H * of_kind(spec, "position", Rope).rotary_fraction),
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
    for layer in range(spec.layers):
        theirs, ours = f"transformer.h.{layer}", f"layer_{layer}"
        yield from norm(spec, f"{theirs}.ln_1", f"{ours}/attention_norm_in")
        for letter, name in zip("qkv", qkv(f"{ours}/attention"), strict=True):
            yield from dense(f"{theirs}.attn.{letter}_proj", name, bias=False)
        yield from dense(f"{theirs}.attn.out_proj", f"{ours}/attention/out", bias=False, inputs=2)
        yield from dense(f"{theirs}.mlp.fc_in", f"{ours}/ffn/in", bias=True)
        yield from dense(f"{theirs}.mlp.fc_out", f"{ours}/ffn/out", bias=True)
    yield from norm(spec, "transformer.ln_f", "final_norm")
    if tied:
        yield Rule("lm_head.bias", ("head/bias",), Flat())
    else:
        yield from dense("lm_head", "head", bias=True)


GPTJ = Family(
    name="gptj",
    model_types=("gptj",),
    architectures=("GPTJForCausalLM",),
    read=read,
    write=write,
    rules=rules,
    irrelevant={
        "n_positions": "bounds a table that is computed",
        "n_ctx": "repeats n_positions",
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
"""GPT-J."""
