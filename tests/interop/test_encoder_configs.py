"""Configs of families with an encoder: published ones, and what is refused by name."""

import dataclasses
import re

import pytest
from interop.published_encoders import PUBLISHED
from interop.small_encoders import SIZES, read, small

from jtransformer import accounting
from jtransformer.interop import family_named, family_of
from jtransformer.interop.expressing import plain, written
from jtransformer.spec import (
    DotProduct,
    Embedder,
    Encoder,
    EncoderDecoder,
    LayerNorm,
    Learned,
    LinearScaling,
    ModelSpec,
    RMSNorm,
    Rope,
    Sinusoidal,
    SpecError,
    T5Bias,
    TokenHead,
    presets,
)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_have_their_parameters(name):
    fields, names, total = PUBLISHED[name]
    assert accounting.parameters(read(fields, names)).total == total


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("bert-base-uncased", presets.bert_base_mlm()),
        ("roberta-base", presets.roberta_base_mlm()),
        ("ModernBERT-base", presets.modernbert_base_mlm()),
        ("t5-small", presets.t5_small()),
        ("t5-v1_1-small", presets.t5_v1_1_small()),
        ("mt5-small", dataclasses.replace(presets.t5_v1_1_small(), vocabulary=250_112)),
        ("bart-base", presets.bart_base()),
        ("opus-mt-en-de", presets.opus_mt_en_de()),
    ],
)
def test_published_configs_are_the_presets(name, preset):
    assert plain(read(*PUBLISHED[name][:2])) == plain(preset)


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_is_written_is_read_as_the_same(name):
    fields, names, _ = PUBLISHED[name]
    spec = read(fields, names)
    assert plain(read(written(family_of(fields), spec), names)) == plain(spec)


REFUSED = [
    ("bert", "position_embedding_type", "relative_key"),
    ("bert", "tie_word_embeddings", False),
    ("bert", "hidden_act", "relu"),
    ("bert", "is_decoder", True),
    ("bert", "add_cross_attention", True),
    ("roberta", "max_position_embeddings", 2),
    ("modernbert", "attention_dropout", 0.1),
    ("modernbert", "classifier_activation", "silu"),
    ("modernbert", "hidden_activation", "quick_gelu"),
    ("modernbert", "layer_types", ["full_attention"]),
    ("modernbert", "global_attn_every_n_layers", 0),
    ("modernbert", "local_rope_theta", None),
    ("modernbert", "rope_scaling", dict(rope_type="yarn")),
    ("modernbert", "rope_parameters", 7),
    ("t5", "feed_forward_proj", "gated-swish"),
    ("t5", "is_encoder_decoder", False),
    ("mt5", "feed_forward_proj", "maxout"),
    ("bart", "tie_word_embeddings", False),
    ("bart", "decoder_attention_heads", 8),
    ("bart", "decoder_ffn_dim", 12),
    ("bart", "encoder_layerdrop", 0.1),
    ("bart", "normalize_before", True),
    ("bart", "normalize_embedding", False),
    ("bart", "add_final_layer_norm", True),
    ("bart", "num_hidden_layers", 3),
    ("marian", "static_position_embeddings", False),
    ("marian", "normalize_embedding", True),
    ("marian", "decoder_vocab_size", 47),
    ("marian", "tie_word_embeddings", False),
]


@pytest.mark.parametrize(("family", "field", "value"), REFUSED)
def test_error_what_no_spec_says_is_refused_by_name(family, field, value):
    names = frozenset(["cls.predictions.bias", "head.dense.weight"])
    read(small(family), names)
    # A field with another name is told under its own.
    own = family_named(family).aliases.get(field, field)
    with pytest.raises(SpecError, match=rf"^{own} = .*{re.escape(str(value))}"):
        read(small(family, **{field: value}), names)


@pytest.mark.parametrize(
    ("rope", "field"),
    [
        (dict(full_attention=dict(rope_type="yarn", rope_theta=5.0)), "rope_type"),
        (dict(full_attention=dict(rope_theta=5.0, factor=2.0)), "factor"),
        (dict(chunked_attention=dict(rope_theta=5.0)), "chunked_attention"),
    ],
)
def test_error_inside_of_the_bases_of_modernbert(rope, field):
    with pytest.raises(SpecError, match=rf"{field}.*rope_parameters|rope_parameters.*{field}"):
        read(small("modernbert", rope_parameters=rope))


@pytest.mark.parametrize("family", SIZES)
def test_error_unknown_fields_are_named(family):
    with pytest.raises(SpecError, match="swirl=3"):
        read(small(family, swirl=3))


@pytest.mark.parametrize(
    ("model_type", "architecture"),
    [
        ("bert", "BertForQuestionAnswering"),
        ("t5", "T5EncoderModel"),
        ("bart", "BartForSequenceClassification"),
    ],
)
def test_error_heads_that_are_not_read_are_named(model_type, architecture):
    with pytest.raises(SpecError, match=f"^architectures = .*{architecture}"):
        family_of({"model_type": model_type, "architectures": [architecture]})


ENCODER = dict(
    width=32,
    heads=4,
    layers=2,
    stack=Encoder(token_types=2),
    norm_placement="post",
    embedding_norm=True,
    qkv_bias=True,
    attention_out_bias=True,
    ffn_bias=True,
    position=Learned(max_length=9),
    head=Embedder(pooling="first", unit_length=False),
)
LOCAL = ENCODER | dict(
    stack=Encoder(),
    norm_placement="pre",
    first_norm=False,
    qkv_bias=False,
    attention_out_bias=False,
    ffn_bias=False,
    ffn="geglu",
    position=Rope(),
)
PAIR = ENCODER | dict(stack=EncoderDecoder(), head=TokenHead(), position=Learned(first=2))
SCALED = dict(
    width=20,
    heads=5,
    head_width=6,
    ffn="relu",
    stack=EncoderDecoder(),
    attention=DotProduct(scale=1.0),
    norm=RMSNorm(),
    position=T5Bias(),
    head=TokenHead(scale_down=True),
)
UNWRITABLE = [
    ("bert", "position.kind", ENCODER, dict(position=Sinusoidal())),
    ("bert", "position.learned.first", ENCODER, dict(position=Learned(first=2))),
    ("bert", "stack.encoder.token_types", ENCODER, dict(stack=Encoder())),
    ("bert", "norm.layer_norm.bias", ENCODER, dict(norm=LayerNorm(bias=False))),
    ("bert", "head.embedding.unit_length", ENCODER, dict(head=Embedder(pooling="first"))),
    ("bert", "hidden_act", ENCODER, dict(ffn="relu", head=TokenHead(bias=True, transform=True))),
    ("bert", "head.tokens.transform", ENCODER, dict(head=TokenHead(bias=True))),
    ("roberta", "position.learned.first", ENCODER, {}),
    ("modernbert", "first_norm", LOCAL, dict(first_norm=True)),
    (
        "modernbert",
        "position.rope.scaling.kind",
        LOCAL,
        dict(position=Rope(scaling=LinearScaling())),
    ),
    ("modernbert", "position.rope.pairing", LOCAL, dict(position=Rope(pairing="interleaved"))),
    ("modernbert", "ffn", LOCAL, dict(ffn="gelu")),
    ("t5", "attention.dot_product.scale", SCALED, dict(attention=DotProduct())),
    ("t5", "norm.kind", SCALED, dict(norm=LayerNorm())),
    ("t5", "ffn", SCALED, dict(ffn="geglu")),
    ("t5", "head.tokens.bias", SCALED, dict(head=TokenHead(bias=True, scale_down=True))),
    ("mt5", "head.tokens.scale_down", SCALED, {}),
    ("bart", "norm.layer_norm.epsilon", PAIR, dict(norm=LayerNorm(epsilon=1e-6))),
    ("bart", "position.learned.first", PAIR, dict(position=Learned())),
    (
        "bart",
        "stack.encoder_decoder.normalize_memory",
        PAIR,
        dict(stack=EncoderDecoder(normalize_memory=True)),
    ),
    (
        "marian",
        "position.sinusoidal.layout",
        PAIR | dict(embedding_norm=False),
        dict(position=Sinusoidal()),
    ),
    ("marian", "embedding_norm", PAIR, dict(position=Sinusoidal(layout="split"))),
]


@pytest.mark.parametrize(("family", "path", "fitting", "changes"), UNWRITABLE)
def test_error_what_a_family_lacks_is_named(family, path, fitting, changes):
    spec = ModelSpec(**(fitting | changes))
    with pytest.raises(SpecError, match=rf"^{path} = "):
        written(family_named(family), spec)


@pytest.mark.parametrize(
    ("family", "fitting"),
    [("bert", ENCODER), ("modernbert", LOCAL), ("t5", SCALED), ("bart", PAIR)],
)
def test_null_what_fits_a_family_is_written(family, fitting):
    """So that each refusal of the table above is for its own change."""
    assert written(family_named(family), ModelSpec(**fitting))
