"""Tests for jtransformer.interop.reading, rotary and expressing: what a config may say."""

import dataclasses

import pytest

from jtransformer.interop import choose, family_named, family_of
from jtransformer.interop.expressing import other_dropout, read_with, written
from jtransformer.interop.reading import ConfigReader
from jtransformer.spec import (
    DotProduct,
    Dropout,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    NTKScaling,
    PrefixDecoder,
    Rope,
    SpecError,
    YarnScaling,
    presets,
)

GPT2 = dict(model_type="gpt2", n_embd=20, n_layer=2, n_head=4)
LLAMA = dict(model_type="llama", hidden_size=24, num_attention_heads=6, num_hidden_layers=2)


def read(config, stored=()):
    return read_with(family_of(config), config, "config.json", frozenset(stored))


def reader(**fields):
    return ConfigReader(fields, "config.json")


def test_left_out_fields_have_the_defaults_of_their_class():
    spec = read({"model_type": "gpt2"})
    small = presets.gpt2_small()
    assert dataclasses.replace(spec, dropout=small.dropout) == small
    assert spec.dropout.residual == 0.1


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (GPT2 | {"n_layr": 3}, "n_layr=3"),
        (GPT2 | {"n_layer": "two"}, "n_layer = 'two' in config.json must be an integer"),
        (GPT2 | {"n_layer": True}, "must be an integer"),
        (GPT2 | {"layer_norm_epsilon": None, "n_head": []}, "n_head"),
        (GPT2 | {"tie_word_embeddings": 1}, "must be true or false"),
        (GPT2 | {"activation_function": "mish"}, "what can be read: 'gelu_new'"),
        (GPT2 | {"activation_function": ["relu"]}, "activation_function"),
        (GPT2 | {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        (GPT2 | {"scale_attn_weights": False}, "scale_attn_weights"),
        (GPT2 | {"add_cross_attention": True}, "add_cross_attention = True"),
        (GPT2 | {"pruned_heads": {"0": [1]}}, "pruned_heads"),
        (GPT2 | {"quantization_config": {"bits": 4}}, "quantization_config"),
        (GPT2 | {"auto_map": {"AutoModel": "code.Model"}}, "auto_map"),
        (GPT2 | {"hidden_size": 32}, "are one field with two values"),
        (GPT2 | {"n_head": 3}, "heads must divide the width"),
        (LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type = 'dynamic'"),
        (LLAMA | {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "'longrope'"),
        (LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "mscale": 0.7}}, "mscale"),
        (LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 8}}, "beta_f"),
        (LLAMA | {"rope_scaling": {"rope_type": "linear"}}, "factor is missing"),
        (LLAMA | {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "x": 1}}, "x=1"),
        (LLAMA | {"rope_scaling": "linear"}, "is no object"),
        (LLAMA | {"original_max_position_embeddings": 64}, "original_max_position_embeddings=64"),
        ({"model_type": "mamba"}, "model_type = 'mamba'"),
        ({}, "model_type = None"),
        (GPT2 | {"architectures": ["GPT2ForSequenceClassification"]}, "architectures"),
        (GPT2 | {"architectures": "GPT2LMHeadModel"}, "architectures"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(config, said):
    with pytest.raises(SpecError) as caught:
        read(config)
    assert said in str(caught.value)


def test_every_field_must_be_read():
    config = reader(one=1, two=2)
    config.integer("one")
    with pytest.raises(SpecError, match="two=2"):
        config.close()
    config.ignore("two")
    config.close()


def test_null_and_left_out_are_two_things():
    config = reader(one=None)
    assert config.integer("one", 8) == 8
    assert config.integer("one", 8, null=None) is None
    assert config.integer("two", 8, null=None) == 8
    with pytest.raises(SpecError, match="three is missing in config.json; add it"):
        config.integer("three")


def test_a_flag_is_no_number():
    config = reader(one=1)
    with pytest.raises(SpecError, match="not supported; what can be read: True"):
        config.only("one", True)


def test_a_scaling_has_the_default_length_where_none_is_given():
    config = LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}
    assert read(config).position == Rope(scaling=YarnScaling(factor=2.0, original_length=2048))


SCALED = {
    "linear": (dict(rope_type="linear", factor=3.0), LinearScaling(factor=3.0)),
    "older": (dict(type="linear", factor=3), LinearScaling(factor=3.0)),
    "llama3": (
        dict(
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=16,
        ),
        Llama3Scaling(factor=8.0, original_length=16),
    ),
    "yarn": (dict(rope_type="yarn", factor=4.0), YarnScaling(factor=4.0, original_length=2048)),
}


@pytest.mark.parametrize("form", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("name", SCALED)
def test_scaling_of_rotary_positions_has_two_forms(name, form):
    fields, expected = SCALED[name]
    base = {"rope_theta": 500.0}
    config = LLAMA | {"max_position_embeddings": 2048}
    config |= (
        {form: fields | base} if form == "rope_parameters" else base | {"rope_scaling": fields}
    )
    assert read(config).position == Rope(theta=500.0, scaling=expected)


QWEN = dict(
    model_type="qwen2",
    hidden_size=24,
    num_attention_heads=6,
    num_key_value_heads=2,
    num_hidden_layers=3,
)
WINDOW = dict(use_sliding_window=True, sliding_window=5)


@pytest.mark.parametrize(
    ("fields", "attention"),
    [
        (dict(sliding_window=5), DotProduct()),
        (WINDOW | dict(max_window_layers=28), DotProduct()),
        (WINDOW | dict(max_window_layers=0), DotProduct(window=5)),
        (
            WINDOW | dict(max_window_layers=2),
            DotProduct(window=5, window_pattern="full,full,window"),
        ),
        (
            WINDOW | dict(layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
            DotProduct(window=5, window_pattern="window,full"),
        ),
    ],
)
def test_windows_of_qwen_are_those_of_its_layers(fields, attention):
    assert read(QWEN | fields).attention == attention


def test_layers_with_a_window_need_one():
    names = ["sliding_attention"] * 3
    with pytest.raises(SpecError, match="need sliding_window in use"):
        read(QWEN | dict(layer_types=names))
    with pytest.raises(SpecError, match="for each of 3 layers"):
        read(QWEN | dict(layer_types=names[:2]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(norm_placement="post"), "norm_placement = 'post' cannot be expressed"),
        (dict(stream_scale=0.5), "stream_scale"),
        (dict(stack=PrefixDecoder()), "stack.kind"),
        (dict(attention=DotProduct(heads_off="0.1")), "heads_off"),
        (dict(ffn_bias=False), "ffn_bias"),
        (dict(ffn="swiglu"), "ffn = 'swiglu' has no counterpart"),
        (dict(position=Rope()), "position.kind = 'rope' has no counterpart"),
    ],
)
def test_what_a_family_cannot_express_is_refused_by_name(change, said):
    spec = dataclasses.replace(presets.gpt2_small(), **change)
    with pytest.raises(SpecError) as caught:
        written(family_named("gpt2"), spec)
    assert said in str(caught.value)


def test_a_scaling_without_counterpart_is_refused():
    spec = dataclasses.replace(presets.llama2_7b(), position=Rope(scaling=NTKScaling(factor=2.0)))
    with pytest.raises(SpecError, match="scaling.kind = 'ntk' has no counterpart"):
        written(family_named("llama"), spec)


@pytest.mark.parametrize(
    ("name", "family", "given", "said"),
    [
        ("gpt2_small", "gpt2", Dropout(ffn=0.2), ["dropout.ffn = 0.2 is 0.0 in the family gpt2"]),
        (
            "t5_small",
            "t5",
            Dropout(embedding=0.3, attention=0.1, ffn=0.1, residual=0.1),
            ["dropout.embedding = 0.3 is 0.1 in the family t5"],
        ),
        ("gpt2_small", "gpt2", Dropout(embedding=0.1, attention=0.2, residual=0.3), []),
    ],
)
def test_dropout_that_a_family_has_no_field_for_is_said(name, family, given, said):
    spec = dataclasses.replace(getattr(presets, name)(), dropout=given)
    chosen = family_named(family)
    assert list(other_dropout(chosen, spec, written(chosen, spec))) == said


def test_a_model_of_no_family_is_told_what_each_lacks():
    with pytest.raises(SpecError, match="No family can express this model.*gpt2: position.kind"):
        choose(ModelSpec(), None)


PUBLISHED = {
    "gpt2_small": "gpt2",
    "gpt2_xl": "gpt2",
    "llama2_7b": "llama",
    "llama3_8b": "llama",
    "qwen3_0_6b": "qwen3",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_is_written_as_its_family(name):
    family, config = choose(getattr(presets, name)(), None)
    assert family.name == PUBLISHED[name]
    assert config["model_type"] in family.model_types
