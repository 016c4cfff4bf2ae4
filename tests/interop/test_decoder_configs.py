"""Configs of decoders: published ones, what is refused by name, and names of old checkpoints."""

import re

import numpy as np
import pytest
from interop.held import read_again, stored
from interop.published_decoders import PUBLISHED

from jtransformer import accounting
from jtransformer.interop import family_named, family_of
from jtransformer.interop.expressing import plain, read_with, written
from jtransformer.spec import (
    Alibi,
    DotProduct,
    LayerNorm,
    ModelSpec,
    RMSNorm,
    Rope,
    SpecError,
    TokenHead,
    presets,
)

SIZES = {
    "gemma": dict(hidden_size=20, num_attention_heads=6, num_key_value_heads=2, head_dim=8),
    "gemma2": dict(hidden_size=20, num_attention_heads=6, num_key_value_heads=2, head_dim=8),
    "gpt_neox": dict(hidden_size=32, num_attention_heads=4),
    "gptj": dict(n_embd=32, n_head=4, rotary_dim=4),
    "phi": dict(hidden_size=32, num_attention_heads=4),
    "opt": dict(hidden_size=32, num_attention_heads=4),
    "bloom": dict(hidden_size=32, n_head=4),
    "falcon": dict(hidden_size=32, num_attention_heads=4),
    "olmo2": dict(hidden_size=32, num_attention_heads=4),
}


def read(fields, stored=frozenset()) -> ModelSpec:
    return read_with(family_of(fields), fields, "config.json", stored)


def small(family: str, **changes):
    layers = "n_layer" if family in ("gptj", "bloom") else "num_hidden_layers"
    return {"model_type": family, "vocab_size": 53, layers: 2} | SIZES[family] | changes


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_have_their_parameters(name):
    fields, total = PUBLISHED[name]
    assert accounting.parameters(read(fields)).total == total


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("gemma-2b", presets.gemma_2b),
        ("pythia-160m", presets.pythia_160m),
        ("gpt-j-6b", presets.gpt_j_6b),
        ("olmo-2-1b", presets.olmo2_1b),
    ],
)
def test_published_configs_are_the_presets(name, preset):
    assert plain(read(PUBLISHED[name][0])) == plain(preset())


def test_settings_that_no_count_of_parameters_shows():
    gemma2, neox = (read(PUBLISHED[name][0]) for name in ("gemma-2-2b", "gpt-neox-20b"))
    assert gemma2.attention == DotProduct(
        scale=1 / 16, soft_cap=50.0, window=4096, window_pattern="window,full"
    )
    assert gemma2.head == TokenHead(soft_cap=30.0)
    assert (gemma2.ffn, neox.ffn) == ("geglu_tanh", "gelu_tanh")
    wirings = {name: read(PUBLISHED[name][0]).sublayers for name in PUBLISHED}
    assert wirings["falcon-7b"] == wirings["phi-1.5"] == "parallel_one_norm"
    assert wirings["falcon-40b"] == "parallel"


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_is_written_is_read_as_the_same(name):
    spec = read(PUBLISHED[name][0])
    family = family_of(PUBLISHED[name][0])
    assert plain(read(written(family, spec))) == plain(spec)


REFUSED = [
    ("gemma", "use_bidirectional_attention", True),
    ("gemma", "hidden_act", "quick_gelu"),
    ("gemma", "hidden_activation", "silu"),
    ("gemma2", "use_bidirectional_attention", True),
    ("gemma2", "sliding_window", None),
    ("gemma2", "layer_types", ["chunked_attention"] * 2),
    ("gemma2", "query_pre_attn_scalar", 0),
    ("gemma2", "sliding_window_size", 17),
    ("gpt_neox", "hidden_dropout_prob", 0.1),
    ("gpt_neox", "hidden_act", "quick_gelu"),
    ("gptj", "rotary", False),
    ("gptj", "rotary_dim", 12),
    ("gptj", "n_head", 3),
    ("gptj", "scale_attn_weights", False),
    ("phi", "qk_layernorm", True),
    ("opt", "word_embed_proj_dim", 16),
    ("opt", "layer_norm_elementwise_affine", False),
    ("opt", "layerdrop", 0.1),
    ("bloom", "apply_residual_connection_post_layernorm", True),
    ("bloom", "n_inner", 99),
    ("falcon", "alibi", True),
    ("falcon", "hidden_dropout", 0.1),
    ("falcon", "num_ln_in_parallel_attn", 2),
    ("olmo2", "hidden_act", "quick_gelu"),
]


@pytest.mark.parametrize(("family", "field", "value"), REFUSED)
def test_error_what_no_spec_says_is_refused_by_name(family, field, value):
    read(small(family))
    with pytest.raises(SpecError, match=rf"^{field} = .*{re.escape(str(value))}"):
        read(small(family, **{field: value}))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (dict(new_decoder_architecture=True, parallel_attn=False), "parallel_attn"),
        (dict(new_decoder_architecture=True, num_ln_in_parallel_attn=3), "num_ln_in_parallel_attn"),
        (dict(multi_query=False, num_kv_heads=2), "num_kv_heads"),
    ],
)
def test_error_forms_of_falcon_that_do_not_exist(changes, field):
    with pytest.raises(SpecError, match=f"^{field} = "):
        read(small("falcon", **changes))


def test_error_bloom_in_parts_that_leave_biases_out():
    read(small("bloom", slow_but_exact=True))
    read(small("bloom", pretraining_tp=4))
    with pytest.raises(SpecError, match="^slow_but_exact = True"):
        read(small("bloom", slow_but_exact=True, pretraining_tp=4))


@pytest.mark.parametrize("family", SIZES)
def test_error_unknown_fields_are_named(family):
    with pytest.raises(SpecError, match="swirl=3"):
        read(small(family, swirl=3))


@pytest.mark.parametrize("model_type", ["gemma3_text", "gemma3", "RefinedWeb"])
def test_error_kin_that_is_not_read_is_named(model_type):
    with pytest.raises(SpecError, match=rf"^model_type = '{model_type}' .*gemma2"):
        family_of({"model_type": model_type})


BASE = ModelSpec(vocabulary=53, width=32, layers=2, heads=4, ffn_width=20)
UNWRITABLE = [
    ("gptj", "position.rope.theta", dict(position=Rope(theta=500.0, pairing="interleaved"))),
    ("gptj", "position.rope.pairing", dict(position=Rope())),
    ("gpt_neox", "position.rope.pairing", dict(position=Rope(pairing="interleaved"))),
    ("gpt_neox", "key_value_heads", dict(position=Rope(), key_value_heads=2)),
    ("opt", "norm.layer_norm.epsilon", dict(norm=LayerNorm(epsilon=1e-6))),
    ("opt", "norm_placement", dict(norm_placement="sandwich")),
    ("bloom", "ffn_width", dict(position=Alibi(), embedding_norm=True)),
    ("falcon", "key_value_heads", dict(position=Rope(), key_value_heads=2)),
    ("phi", "sublayers", dict(position=Rope())),
    ("olmo2", "attention.dot_product.query_key_norm", dict(norm=RMSNorm(), position=Rope())),
    ("gemma", "norm.rms_norm.unit_offset", dict(norm=RMSNorm(), position=Rope())),
    ("gemma2", "attention.dot_product.scale", dict(attention=DotProduct(scale=0.3))),
    ("gemma2", "attention.dot_product.scale", dict(attention=DotProduct(scale=2.0))),
]


@pytest.mark.parametrize(("family", "path", "changes"), UNWRITABLE)
def test_error_what_a_family_lacks_is_named(family, path, changes):
    fitting = {
        "gptj": dict(ffn_bias=True, sublayers="parallel_one_norm"),
        "gpt_neox": dict(ffn_bias=True, qkv_bias=True, attention_out_bias=True),
        "opt": dict(ffn="relu", position=presets.gpt2_small().position),
        "bloom": dict(ffn="gelu_tanh", ffn_bias=True, qkv_bias=True, attention_out_bias=True),
        "phi": dict(ffn_bias=True, qkv_bias=True, attention_out_bias=True),
        "olmo2": dict(ffn="swiglu", norm_placement="branch"),
        "gemma": dict(ffn="geglu_tanh", scale_embedding=True),
        "gemma2": dict(ffn="geglu_tanh", norm=RMSNorm(unit_offset=True), position=Rope()),
    }.get(family, {})
    spec = ModelSpec(**({f: getattr(BASE, f) for f in ("width", "heads")} | fitting | changes))
    with pytest.raises(SpecError, match=rf"^{path} = "):
        written(family_named(family), spec)


def without(prefix):
    return lambda name: name.removeprefix(prefix)


OLD = [
    ("gpt_neox", lambda name: name.replace("lm_head.", "embed_out.")),
    ("bloom", without("transformer.")),
    ("opt", without("model.")),
    ("falcon", without("transformer.")),
    ("gemma", without("model.")),
]


@pytest.mark.parametrize(("family", "rename"), OLD)
def test_names_of_old_and_headless_checkpoints(family, rename):
    spec = read(small(family))
    leaves, tensors = stored(family, spec)
    renamed = {rename(name): array for name, array in tensors.items()}
    assert renamed.keys() != tensors.keys()
    found = read_again(family, spec, renamed)
    assert found.keys() == leaves.keys()
    for path, array in leaves.items():
        np.testing.assert_array_equal(found[path], array)


BUFFERS = {
    "gpt_neox": ["attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"],
    "gptj": ["attn.bias", "attn.masked_bias"],
}


@pytest.mark.parametrize("family", BUFFERS)
def test_buffers_of_old_checkpoints_are_no_parameters(family):
    spec = read(small(family))
    leaves, tensors = stored(family, spec)
    layer = {"gpt_neox": "gpt_neox.layers.1", "gptj": "transformer.h.1"}[family]
    tensors |= {f"{layer}.{name}": np.zeros((1, 1, 4, 4)) for name in BUFFERS[family]}
    assert read_again(family, spec, tensors).keys() == leaves.keys()
    tensors[f"{layer}.attention.swirl"] = np.zeros(3)
    with pytest.raises(SpecError, match=r"has besides .*swirl"):
        read_again(family, spec, tensors)


def test_every_rotary_width_of_gptj_survives():
    """A share of 2 / 98 times 98 is 1.999…, which would turn one channel less."""
    for head_width in (6, 64, 98, 196, 256):
        for rotary_width in range(2, head_width + 1, 2):
            fields = dict(n_embd=head_width, n_head=1, rotary_dim=rotary_width)
            spec = read(small("gptj", **fields))
            assert isinstance(spec.position, Rope)
            assert int(spec.H * spec.position.rotary_fraction) == rotary_width


def test_a_tied_head_may_keep_its_biases():
    spec = read(small("gptj", tie_word_embeddings=True))
    assert spec.head == TokenHead(tied=True, bias=True)
