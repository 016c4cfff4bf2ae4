"""Configs of families with an encoder: published ones, refusals, old checkpoints, known faults."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interop.held import read_again, stored
from interop.published_encoders import PUBLISHED

from jtransformer import accounting
from jtransformer import functional as F
from jtransformer.interop import family_named, family_of
from jtransformer.interop.expressing import plain, read_with, written
from jtransformer.interop.mapping import nested
from jtransformer.modules import build
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

SIZES = {
    "bert": dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=2),
    "roberta": dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=2),
    "modernbert": dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=2),
    "t5": dict(d_model=20, d_kv=6, num_heads=5, num_layers=2),
    "mt5": dict(d_model=20, d_kv=6, num_heads=5, num_layers=2),
    "bart": dict(d_model=32, encoder_layers=2, decoder_layers=1),
    "marian": dict(d_model=32, encoder_layers=2, decoder_layers=1),
}


def read(fields, stored=frozenset()) -> ModelSpec:
    return read_with(family_of(fields), fields, "config.json", stored)


def small(family: str, **changes):
    return {"model_type": family, "vocab_size": 53} | SIZES[family] | changes


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


def test_the_head_of_t5_is_told_by_what_is_stored():
    """Version 5 of transformers writes tie_word_embeddings=true for every T5."""
    own, none = frozenset(["lm_head.weight"]), frozenset(["shared.weight"])
    tied_scaled = TokenHead(tied=True, scale_down=True)
    cases: list = [
        ({}, none, tied_scaled),
        ({}, own, tied_scaled),  # Then both must hold one table, which loading checks.
        (dict(tie_word_embeddings=False), own, TokenHead(tied=False)),
        (dict(tie_word_embeddings=True, scale_decoder_outputs=False), own, TokenHead(tied=False)),
        (dict(tie_word_embeddings=True, scale_decoder_outputs=False), none, TokenHead()),
    ]
    for changes, names, head in cases:
        assert read(small("t5", **changes), names).head == head, changes
    with pytest.raises(SpecError, match="^scale_decoder_outputs = True"):
        read(small("t5", tie_word_embeddings=False, scale_decoder_outputs=True), own)
    assert read(small("mt5"), own).head == TokenHead(tied=False)
    assert read(small("mt5"), none).head == TokenHead(tied=True)


def test_error_a_head_of_its_own_that_is_missing():
    spec = read(small("t5", tie_word_embeddings=False))
    _, tensors = stored("t5", spec)
    del tensors["lm_head.weight"]
    with pytest.raises(SpecError, match=r"lacks lm_head\.weight"):
        read_again("t5", spec, tensors)


def test_the_first_checkpoint_of_bert():
    """It says gamma and beta, and holds what no reader of a head for masked tokens asks for."""
    names = frozenset(["bert.pooler.dense.weight", "cls.predictions.bias"])
    spec = read(small("bert", architectures=["BertForPreTraining"]), names)
    assert isinstance(spec.stack, Encoder) and spec.stack.pooler
    leaves, tensors = stored("bert", spec)
    old = {
        re.sub(
            r"(LayerNorm\.)weight$", r"\1gamma", re.sub(r"(LayerNorm\.)bias$", r"\1beta", name)
        ): x
        for name, x in tensors.items()
    }
    assert "bert.embeddings.LayerNorm.gamma" in old
    old |= {
        "cls.seq_relationship.weight": np.zeros((2, 32)),
        "cls.seq_relationship.bias": np.zeros(2),
        "bert.embeddings.position_ids": np.arange(512)[None],
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
    }
    found = read_again("bert", spec, old)
    assert found.keys() == leaves.keys()
    for path, array in leaves.items():
        np.testing.assert_array_equal(found[path], array)
    old["cls.predictions.decoder.weight"] = 1 + old["cls.predictions.decoder.weight"]
    with pytest.raises(SpecError, match=r"cls\.predictions\.decoder\.weight"):
        read_again("bert", spec, old)


@pytest.mark.parametrize(
    ("family", "architecture", "prefix"),
    [
        ("bert", "BertModel", "bert."),
        ("roberta", "RobertaModel", "roberta."),
        ("modernbert", "ModernBertModel", "model."),
        ("bart", "BartModel", "model."),
    ],
)
def test_names_of_headless_checkpoints(family, architecture, prefix):
    spec = read(small(family, architectures=[architecture]), frozenset(["pooler.dense.weight"]))
    leaves, tensors = stored(family, spec)
    assert all(name.startswith(prefix) for name in tensors)
    bare = {name.removeprefix(prefix): array for name, array in tensors.items()}
    found = read_again(family, spec, bare)
    for path, array in leaves.items():
        np.testing.assert_array_equal(found[path], array)


def test_tables_of_marian_that_pickled_files_hold_more_than_once():
    spec = read(small("marian"), frozenset(["final_logits_bias"]))
    leaves, tensors = stored("marian", spec)
    for name in ("lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
        tensors[f"{name}.weight"] = tensors["model.shared.weight"]
    tensors["model.encoder.embed_positions.weight"] = np.zeros((512, 32))
    assert read_again("marian", spec, tensors).keys() == leaves.keys()
    assert tensors["final_logits_bias"].shape == (1, 53)


def test_known_fault_pos_11_roberta_counts_from_the_padding_id_plus_1():
    spec = read(small("roberta", max_position_embeddings=10))
    assert spec.position == Learned(max_length=8, first=2)
    ids = np.array([[0, 5, 6, 2, 1, 1]])
    counted = np.asarray(F.token_positions(jnp.asarray(ids != 1)))[0, :4] + spec.position.first
    assert counted.tolist() == [2, 3, 4, 5]
    leaves, _ = stored("roberta", spec)
    assert leaves["position/table"].shape == (10, 32)
    variables = jax.eval_shape(lambda: build(spec).init(jax.random.key(0), jnp.asarray(ids)))
    with pytest.raises(ValueError, match="9 tokens are more than"):
        jax.eval_shape(build(spec).apply, variables, jnp.zeros((1, 9), jnp.int32))


def apply(spec, leaves, tokens):
    variables = {"params": nested(leaves)}
    return build(spec).apply(
        variables, tokens, source=tokens, intermediates=["decoder/layer_0/stream"]
    )


@pytest.mark.parametrize(("changes", "ratio"), [({}, 4.0), (dict(tie_word_embeddings=False), 1.0)])
def test_known_faults_tie_01_and_norm_09_logits_of_t5(changes, ratio):
    """The head is scaled by width^-0.5 where it is tied alone; the norm takes no mean off."""
    fields = small("t5", d_model=16, num_layers=1, **changes)
    spec = read(fields, frozenset(["lm_head.weight"]))
    tokens = jnp.array([[3, 7]])
    leaves = {path: np.asarray(x, np.float32) for path, x in stored("t5", spec)[0].items()}
    call = jax.jit(lambda leaves, tokens: apply(spec, leaves, tokens))
    found = call(leaves, tokens)
    kept = found.intermediates or {}
    last = np.asarray(kept["decoder/layer_0/stream"], np.float64)
    scales = leaves["decoder/final_norm/scale"]
    states = last / np.sqrt((last**2).mean(-1, keepdims=True) + 1e-6) * scales
    np.testing.assert_allclose(found.hidden, states, rtol=2e-5, atol=2e-5)
    own_head = spec.head == TokenHead(tied=False)
    matrix = leaves["head/kernel"] if own_head else leaves["embedding/table"].T
    np.testing.assert_allclose(states @ matrix, found.logits * ratio, rtol=1e-3, atol=1e-4)


def test_known_fault_hf_03_scores_of_t5_are_not_scaled():
    assert read(small("t5", d_kv=4)).attention == DotProduct(scale=1.0)
