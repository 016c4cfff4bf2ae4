"""Tests that every field of a model spec does something, and its neutral value nothing."""

import dataclasses
import types
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spec_bounds import WITH_EPSILON
from tiny_model import T, V, needed, shapes_of

from jtransformer.modules import build, initialiser
from jtransformer.spec import (
    Classifier,
    DotProduct,
    Dropout,
    DynamicTanh,
    Embedder,
    Encoder,
    EncoderDecoder,
    FixedScale,
    LatentAttention,
    LayerNorm,
    LayerScale,
    Learned,
    LinearAttention,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    NoPosition,
    NTKScaling,
    Precision,
    RelativeBias,
    ReZero,
    RMSNorm,
    Rope,
    Shaw,
    Sinusoidal,
    T5Bias,
    Tagger,
    TokenHead,
    YarnScaling,
)

ONE = ModelSpec(vocabulary=V, width=12, layers=1, heads=3, ffn_width=8)


def of(**changes):
    return dataclasses.replace(ONE, **changes)


PARTS = ("stream", "attention", "ffn", "head")
ROPE, WINDOW, LATENT = of(position=Rope()), of(attention=DotProduct(window=2)), LatentAttention()
OWN_TABLE = EncoderDecoder(encoder_layers=1, share_embedding=False)
TWO_STACKS = of(stack=EncoderDecoder(encoder_layers=1))
LOCAL = dict(
    layers=2, attention=DotProduct(window=3, window_pattern="window,full"), position=Rope()
)
LATENT_ROPE = of(attention=LatentAttention(rotary_width=4), position=Rope())


def scaled(kind, **settings):
    return of(position=Rope(scaling=kind(**settings)))


# For every field: a spec, and the same spec with that field changed alone.
LIVE = {
    "ModelSpec.vocabulary": (ONE, of(vocabulary=V + 1)),
    "ModelSpec.width": (ONE, of(width=24)),
    "ModelSpec.layers": (ONE, of(layers=2)),
    "ModelSpec.heads": (ONE, of(heads=4)),
    "ModelSpec.key_value_heads": (ONE, of(key_value_heads=1)),
    "ModelSpec.head_width": (ONE, of(head_width=6)),
    "ModelSpec.stack": (ONE, of(stack=Encoder())),
    "ModelSpec.attention": (ONE, of(attention=LinearAttention())),
    "ModelSpec.qkv_bias": (ONE, of(qkv_bias=True)),
    "ModelSpec.attention_out_bias": (ONE, of(attention_out_bias=True)),
    "ModelSpec.ffn": (ONE, of(ffn="relu")),
    "ModelSpec.ffn_width": (ONE, of(ffn_width=9)),
    "ModelSpec.ffn_bias": (ONE, of(ffn_bias=True)),
    "ModelSpec.norm_placement": (ONE, of(norm_placement="post")),
    "ModelSpec.norm": (ONE, of(norm=RMSNorm())),
    "ModelSpec.final_norm": (ONE, of(final_norm=False)),
    "ModelSpec.sublayers": (ONE, of(sublayers="parallel")),
    "ModelSpec.stream_scale": (ONE, of(stream_scale=0.5)),
    "ModelSpec.branch_scale": (ONE, of(branch_scale=ReZero())),
    "ModelSpec.position": (ONE, of(position=NoPosition())),
    "ModelSpec.scale_embedding": (ONE, of(scale_embedding=True)),
    "ModelSpec.embedding_norm": (ONE, of(embedding_norm=True)),
    "ModelSpec.first_norm": (
        of(embedding_norm=True, norm=DynamicTanh()),
        of(embedding_norm=True, norm=DynamicTanh(), first_norm=False),
    ),
    "ModelSpec.head": (ONE, of(head=Tagger())),
    "ModelSpec.dropout": (ONE, of(dropout=Dropout(embedding=0.5))),
    "ModelSpec.precision": (ONE, of(precision=Precision(ffn="bfloat16"))),
    **{f"Precision.{part}": (ONE, of(precision=Precision(**{part: "bfloat16"}))) for part in PARTS},
    "Encoder.token_types": (of(stack=Encoder()), of(stack=Encoder(token_types=2))),
    "Encoder.pooler": (of(stack=Encoder()), of(stack=Encoder(pooler=True))),
    "EncoderDecoder.encoder_layers": (TWO_STACKS, of(stack=EncoderDecoder(encoder_layers=2))),
    "EncoderDecoder.share_embedding": (TWO_STACKS, of(stack=OWN_TABLE)),
    "EncoderDecoder.normalize_memory": (
        TWO_STACKS,
        of(stack=EncoderDecoder(encoder_layers=1, normalize_memory=True)),
    ),
    "DotProduct.scale": (ONE, of(attention=DotProduct(scale=1.0))),
    "DotProduct.soft_cap": (ONE, of(attention=DotProduct(soft_cap=1.0))),
    "DotProduct.query_key_norm": (ONE, of(attention=DotProduct(query_key_norm="head"))),
    "DotProduct.window": (ONE, WINDOW),
    "DotProduct.window_pattern": (
        of(layers=2, attention=DotProduct(window=2)),
        of(layers=2, attention=DotProduct(window=2, window_pattern="full,window")),
    ),
    "DotProduct.heads_off": (ONE, of(attention=DotProduct(heads_off="0.1"))),
    "LatentAttention.latent_width": tuple(
        of(attention=kind) for kind in (LATENT, LatentAttention(latent_width=9))
    ),
    "LatentAttention.rotary_width": (
        LATENT_ROPE,
        of(attention=LatentAttention(rotary_width=2), position=Rope()),
    ),
    "LatentAttention.value_width": tuple(
        of(attention=kind) for kind in (LATENT, LatentAttention(value_width=3))
    ),
    **{
        f"{kind.__name__}.epsilon": (of(norm=kind()), of(norm=kind(epsilon=9e-3)))
        for kind in WITH_EPSILON
    },
    "LayerNorm.bias": (ONE, of(norm=LayerNorm(bias=False))),
    "RMSNorm.unit_offset": (of(norm=RMSNorm()), of(norm=RMSNorm(unit_offset=True))),
    "FixedScale.value": (ONE, of(branch_scale=FixedScale(value=0.5))),
    "Dropout.embedding": (ONE, of(dropout=Dropout(embedding=0.5))),
    "Dropout.attention": (ONE, of(dropout=Dropout(attention=0.5))),
    "Dropout.ffn": (ONE, of(dropout=Dropout(ffn=0.5))),
    "Dropout.residual": (ONE, of(dropout=Dropout(residual=0.5))),
    "Sinusoidal.layout": (ONE, of(position=Sinusoidal(layout="split"))),
    "Learned.first": (
        of(position=Learned(max_length=9)),
        # A table of as many rows, read from another one on.
        of(position=Learned(max_length=7, first=2)),
    ),
    "Rope.theta": (ROPE, of(position=Rope(theta=2.0))),
    "Rope.window_theta": (of(**LOCAL), of(**LOCAL | {"position": Rope(window_theta=2.0)})),
    "Rope.pairing": (ROPE, of(position=Rope(pairing="interleaved"))),
    "Rope.rotary_fraction": (ROPE, of(position=Rope(rotary_fraction=0.5))),
    "Rope.scaling": (ROPE, scaled(LinearScaling)),
    "LinearScaling.factor": (scaled(LinearScaling), scaled(LinearScaling, factor=4.0)),
    "NTKScaling.factor": (scaled(NTKScaling), scaled(NTKScaling, factor=4.0)),
    "Llama3Scaling.factor": (
        scaled(Llama3Scaling, original_length=16),
        scaled(Llama3Scaling, original_length=16, factor=2.0),
    ),
    "Llama3Scaling.original_length": (
        scaled(Llama3Scaling, original_length=16),
        scaled(Llama3Scaling, original_length=8),
    ),
    "Llama3Scaling.low_frequency_factor": (
        scaled(Llama3Scaling, original_length=16),
        scaled(Llama3Scaling, original_length=16, low_frequency_factor=2.0),
    ),
    "Llama3Scaling.high_frequency_factor": (
        scaled(Llama3Scaling, original_length=16),
        scaled(Llama3Scaling, original_length=16, high_frequency_factor=9.0),
    ),
    "YarnScaling.factor": (scaled(YarnScaling), scaled(YarnScaling, factor=4.0)),
    "YarnScaling.original_length": (
        scaled(YarnScaling, original_length=16),
        scaled(YarnScaling, original_length=999),
    ),
    "T5Bias.buckets": (of(position=T5Bias(buckets=8)), of(position=T5Bias(buckets=4))),
    "T5Bias.max_distance": tuple(
        of(position=T5Bias(buckets=6, max_distance=most)) for most in (6, 99)
    ),
    "RelativeBias.max_distance": tuple(
        of(position=RelativeBias(max_distance=most)) for most in (2, 3)
    ),
    "Shaw.max_distance": (of(position=Shaw(max_distance=2)), of(position=Shaw(max_distance=3))),
    "Shaw.values": (of(position=Shaw()), of(position=Shaw(values=True))),
    "TokenHead.tied": (ONE, of(head=TokenHead(tied=False))),
    "TokenHead.bias": (ONE, of(head=TokenHead(bias=True))),
    "TokenHead.scale_down": (ONE, of(head=TokenHead(scale_down=True))),
    "TokenHead.soft_cap": (ONE, of(head=TokenHead(soft_cap=1.0))),
    "TokenHead.transform": (ONE, of(head=TokenHead(transform=True))),
    "TokenHead.transform_bias": tuple(
        of(head=TokenHead(transform=True, transform_bias=has_bias)) for has_bias in (True, False)
    ),
    "Classifier.classes": (of(head=Classifier()), of(head=Classifier(classes=3))),
    "Classifier.pooling": (of(head=Classifier()), of(head=Classifier(pooling="max"))),
    "Tagger.classes": (of(head=Tagger()), of(head=Tagger(classes=3))),
    "Embedder.pooling": (of(head=Embedder()), of(head=Embedder(pooling="last"))),
    "Embedder.embedding_width": (of(head=Embedder()), of(head=Embedder(embedding_width=5))),
    "Embedder.unit_length": (of(head=Embedder()), of(head=Embedder(unit_length=False))),
}
# Fields that say how many rows a table has, and nothing of those that are read.
SIZES = {
    "Learned.max_length": (of(position=Learned(max_length=T)), of(position=Learned(max_length=9))),
    "EncoderDecoder.source_vocabulary": (
        of(stack=OWN_TABLE),
        of(stack=dataclasses.replace(OWN_TABLE, source_vocabulary=V + 1)),
    ),
}
# Fields that decide how parameters start.
STARTS = {
    "ModelSpec.initialization": (ONE, of(initialization="bert")),
    "DynamicTanh.alpha": (of(norm=DynamicTanh()), of(norm=DynamicTanh(alpha=0.7))),
    "LayerScale.initial": (of(branch_scale=LayerScale()), of(branch_scale=LayerScale(initial=0.1))),
}
# Fields that decide how the same numbers are computed.
PROGRAMS = {
    "ModelSpec.scan_layers": (ONE, of(scan_layers=True)),
    "ModelSpec.rematerialize": (ONE, of(rematerialize="everything")),
}


def kinds_within(cls):
    """Yields a spec class and every spec class among the choices of its fields."""
    yield cls
    for hint in typing.get_type_hints(cls).values():
        for option in typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,):
            if dataclasses.is_dataclass(option):
                yield from kinds_within(option)


def test_every_field_of_every_kind_has_a_case():
    fields = {
        f"{cls.__name__}.{field.name}"
        for cls in kinds_within(ModelSpec)
        for field in dataclasses.fields(cls)
    }
    assert {*LIVE, *SIZES, *STARTS, *PROGRAMS} == fields


ANSWERS = {}


def answer(run, spec, **given):
    """Returns scores and what is pooled, from one run of each spec."""
    if (spec, *given) not in ANSWERS:
        tokens = jax.random.randint(jax.random.key(1), (2, T), 0, V)
        out, _ = run(spec, tokens, **needed(spec, jax.random.key(2)), **given)
        scores = out.pooled if out.logits is None else out.logits
        ANSWERS[spec, *given] = scores, out.pooled
    return ANSWERS[spec, *given]


@pytest.mark.parametrize("name", LIVE)
def test_live_each_field_changes_the_output(run, name):
    given = {"key": jax.random.key(3)} if "ropout" in name else {}
    (before, pooled), (after, other) = (answer(run, spec, **given) for spec in LIVE[name])
    if name == "Encoder.pooler":
        assert pooled is None and other is not None
        return
    assert before.shape != after.shape or not np.allclose(before, after, atol=1e-4)


@pytest.mark.parametrize("name", SIZES)
def test_live_each_size_changes_a_table(name):
    before, after = (jax.tree.map(jnp.shape, shapes_of(spec)) for spec in SIZES[name])
    assert before != after


@pytest.mark.parametrize("name", STARTS)
def test_live_each_start_differs(name):
    starts = []
    for spec in STARTS[name]:
        leaves = jax.tree_util.tree_leaves_with_path(shapes_of(spec)["params"])
        starts.append(
            {
                (names := tuple(entry.key for entry in path)): initialiser(spec, names, leaf.shape)
                for path, leaf in leaves
            }
        )
    assert starts[0].keys() == starts[1].keys()
    assert starts[0] != starts[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_live_each_program_differs(name):
    programs = []
    for spec in PROGRAMS[name]:
        tokens, model = jnp.zeros((1, T), jnp.int32), build(spec)
        programs.append(str(jax.make_jaxpr(model.apply)(shapes_of(spec), tokens)))
    assert programs[0] != programs[1]


FFNS = typing.get_args(typing.get_type_hints(ModelSpec)["ffn"])


@pytest.mark.parametrize("ffn", FFNS)
def test_live_every_network_is_another_function(run, ffn):
    ours, _ = answer(run, of(ffn=ffn))
    for other in set(FFNS) - {ffn}:
        assert not np.array_equal(ours, answer(run, of(ffn=other))[0])
