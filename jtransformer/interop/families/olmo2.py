"""OLMo 2 (OLMo Team 2024): norms on the branches alone, and over all queries and all keys.

Reference: `Olmo2ForCausalLM`, https://github.com/huggingface/transformers.
"""

from collections.abc import Iterator
from typing import Any

from jtransformer.interop.families.llama import FREQUENCIES, read_shared, write_shared
from jtransformer.interop.family import Family
from jtransformer.interop.reading import ConfigReader
from jtransformer.interop.rules import Rule, dense, norm, qkv, scale, table
from jtransformer.spec import DotProduct, ModelSpec, RMSNorm, TokenHead


def read(config: ConfigReader) -> ModelSpec:
    """Reads the spec."""
    bias = config.flag("attention_bias", default=False)
    own = {
        "vocabulary": config.integer("vocab_size", default=50_304),
        "key_value_heads": config.integer("num_key_value_heads", default=None),
        "head_width": config.integer("head_dim", default=None),
        "attention": DotProduct(query_key_norm="width"),
        "qkv_bias": bias,
        "attention_out_bias": bias,
        "ffn_width": config.integer("intermediate_size", default=11_008),
        "norm_placement": "branch",
        "norm": RMSNorm(epsilon=config.number("rms_norm_eps", default=1e-5)),
    }
    return ModelSpec(**(read_shared(config, length=2048) | own))


def write(spec: ModelSpec) -> dict[str, Any]:
    """Writes the config."""
    found = write_shared(spec) | {"attention_bias": spec.qkv_bias}
    # No field of their class, but read where a config has it.
    if spec.heads * spec.H == spec.width:
        del found["head_dim"]
    return found


def rules(spec: ModelSpec) -> Iterator[Rule]:
    """Maps the parameters."""
    tied = isinstance(spec.head, TokenHead) and spec.head.tied
    yield table("model.embed_tokens", "embedding", copies=("lm_head",) if tied else ())
    for layer in range(spec.layers):
        theirs, ours = f"model.layers.{layer}", f"layer_{layer}"
        attention = f"{theirs}.self_attn"
        for letter, name in zip("qkv", qkv(f"{ours}/attention"), strict=True):
            yield from dense(f"{attention}.{letter}_proj", name, bias=spec.qkv_bias)
        out = f"{ours}/attention/out"
        yield from dense(f"{attention}.o_proj", out, bias=spec.attention_out_bias, inputs=2)
        yield scale(f"{attention}.q_norm", f"{ours}/attention/query_norm")
        yield scale(f"{attention}.k_norm", f"{ours}/attention/key_norm")
        yield from norm(spec, f"{theirs}.post_attention_layernorm", f"{ours}/attention_norm_branch")
        for name in ("gate", "up", "down"):
            yield from dense(f"{theirs}.mlp.{name}_proj", f"{ours}/ffn/{name}", bias=False)
        yield from norm(spec, f"{theirs}.post_feedforward_layernorm", f"{ours}/ffn_norm_branch")
    yield from norm(spec, "model.norm", "final_norm")
    if not tied:
        yield from dense("lm_head", "head", bias=False)


OLMO2 = Family(
    name="olmo2",
    model_types=("olmo2",),
    architectures=("Olmo2ForCausalLM", "Olmo2Model"),
    read=read,
    write=write,
    rules=rules,
    irrelevant={"max_position_embeddings": "bounds no rotary position"},
    buffers=(FREQUENCIES,),
    prefix="model.",
)
"""OLMo 2."""
