"""Phi 1, 1.5 and 2 (Gunasekar et al. 2023, Li et al. 2023).

Attention and feed-forward side by side behind one norm, half of each head turns, biases everywhere,
in the head too.
Reference: `PhiForCausalLM`, https://github.com/huggingface/transformers.
"""

from collections.abc import Iterator
from typing import Any

from jtransformer.interop.expressing import of_kind
from jtransformer.interop.families.llama import FREQUENCIES
from jtransformer.interop.family import Family
from jtransformer.interop.layouts import Flat
from jtransformer.interop.reading import ConfigReader
from jtransformer.interop.rotary import read_rope, write_rope
from jtransformer.interop.rules import Rule, dense, norm, qkv, table
from jtransformer.interop.words import ACTIVATIONS, word_of
from jtransformer.spec import Dropout, LayerNorm, ModelSpec, Rope, TokenHead


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    # A layer norm of queries and keys with a bias, which no spec has.
    config.only("qk_layernorm", False)
    return ModelSpec(
        vocabulary=config.integer("vocab_size", default=51_200),
        width=config.integer("hidden_size", default=2048),
        layers=config.integer("num_hidden_layers", default=24),
        heads=config.integer("num_attention_heads", default=32),
        key_value_heads=config.integer("num_key_value_heads", default=None),
        head_width=config.integer("head_dim", default=None),
        qkv_bias=True,
        attention_out_bias=True,
        ffn=config.choice("hidden_act", ACTIVATIONS, default="gelu_new"),
        ffn_width=config.integer("intermediate_size", default=8192),
        ffn_bias=True,
        norm=LayerNorm(epsilon=config.number("layer_norm_eps", default=1e-5)),
        sublayers="parallel_one_norm",
        position=read_rope(config, fraction=0.5, length=2048),
        head=TokenHead(tied=config.flag("tie_word_embeddings", default=False), bias=True),
        dropout=Dropout(
            embedding=config.number("embd_pdrop", default=0.0),
            attention=config.number("attention_dropout", default=0.0),
            residual=config.number("resid_pdrop", default=0.0),
        ),
        initialization="bert",
    )


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    rope = write_rope(of_kind(spec, "position", Rope))
    # A share that is left out would be a half.
    rope["rope_parameters"].setdefault("partial_rotary_factor", 1.0)
    found = {
        "vocab_size": spec.vocabulary,
        "hidden_size": spec.width,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.K,
        "hidden_act": word_of(ACTIVATIONS, spec),
        "intermediate_size": spec.ffn_width,
        "layer_norm_eps": of_kind(spec, "norm", LayerNorm).epsilon,
        "tie_word_embeddings": of_kind(spec, "head", TokenHead).tied,
        "embd_pdrop": spec.dropout.embedding,
        "attention_dropout": spec.dropout.attention,
        "resid_pdrop": spec.dropout.residual,
    }
    # No field of their class, but read where a config has it.
    if spec.heads * spec.H != spec.width:
        found["head_dim"] = spec.H
    return found | rope


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters."""
    tied = isinstance(spec.head, TokenHead) and spec.head.tied
    yield table("model.embed_tokens", "embedding", copies=("lm_head",) if tied else ())
    for layer in range(spec.layers):
        theirs, ours = f"model.layers.{layer}", f"layer_{layer}"
        yield from norm(spec, f"{theirs}.input_layernorm", f"{ours}/attention_norm_in")
        for letter, name in zip("qkv", qkv(f"{ours}/attention"), strict=True):
            yield from dense(f"{theirs}.self_attn.{letter}_proj", name, bias=True)
        yield from dense(f"{theirs}.self_attn.dense", f"{ours}/attention/out", bias=True, inputs=2)
        yield from dense(f"{theirs}.mlp.fc1", f"{ours}/ffn/in", bias=True)
        yield from dense(f"{theirs}.mlp.fc2", f"{ours}/ffn/out", bias=True)
    yield from norm(spec, "model.final_layernorm", "final_norm")
    if tied:
        yield Rule("lm_head.bias", ("head/bias",), Flat())
    else:
        yield from dense("lm_head", "head", bias=True)


PHI = Family(
    name="phi",
    model_types=("phi",),
    architectures=("PhiForCausalLM",),
    read=read,
    write=write,
    rules=rules,
    irrelevant={"max_position_embeddings": "bounds no rotary position"},
    buffers=(FREQUENCIES,),
    prefix="model.",
)
"""Phi 1, 1.5, 2."""
