"""Tests for jtransformer.accounting.parameters and .leaves."""

import collections
import dataclasses
import math

import jax
import jax.numpy as jnp
import model_grid
import pytest

from jtransformer.accounting import leaves, parameters
from jtransformer.accounting.leaves import ANY_LAYER
from jtransformer.modules import build
from jtransformer.spec import (
    Classifier,
    DotProduct,
    DynamicTanh,
    Embedder,
    Encoder,
    EncoderDecoder,
    LatentAttention,
    LayerNorm,
    LayerScale,
    Learned,
    LinearAttention,
    ModelSpec,
    NoPosition,
    RelativeBias,
    RMSNorm,
    Rope,
    ScaleNorm,
    Shaw,
    T5Bias,
    TokenHead,
)

BIASED = dict(qkv_bias=True, attention_out_bias=True, ffn_bias=True)
TWO_STACKS = EncoderDecoder(encoder_layers=2)


def shapes_of(model):
    """The paths and shapes of the initialised tree."""
    tokens = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    tree = jax.eval_shape(build(model).init, jax.random.key(0), tokens)["params"]
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(entry.key for entry in path): leaf.shape for path, leaf in found}


def counted_shapes(model):
    """The same from the accounting, every copy of a layer's parameter written out."""
    found = {}
    for leaf in leaves(model):
        for layer in range(leaf.first, leaf.first + leaf.copies):
            path = leaf.path.replace(ANY_LAYER, f"layer_{layer}")
            assert path not in found
            found[path] = leaf.shape
    return found


def component_of(path):
    """Reads from a path what it is part of, not asking the accounting."""
    words = [word for word in path.split("/") if word not in ("encoder", "decoder", "layers")]
    words = [word for word in words if not word.startswith("layer_")]
    if words[0] in ("embedding", "source_embedding", "token_type"):
        return "embedding"
    if {"position", "position_bias", "key_distance", "value_distance"} & set(words):
        return "position"
    if words[0] in ("pooler", "head", "head_transform", "head_norm"):
        return "head"
    if words[0].endswith("branch_scale"):
        return "branch_scales"
    return "norms" if "norm" in words[0] else words[0]


def check_against_the_tree(model):
    real = shapes_of(model)
    assert counted_shapes(model) == real, model
    counts = collections.Counter()
    for path, shape in real.items():
        counts[component_of(path)] += math.prod(shape)
    found = parameters(model)
    assert dataclasses.asdict(found) == dict.fromkeys(dataclasses.asdict(found), 0) | counts, model
    assert found.total == sum(math.prod(shape) for shape in real.values())


def test_every_leaf_and_component_is_that_of_the_initialised_tree():
    for model in model_grid.models(31)[::3]:
        check_against_the_tree(model)


@pytest.mark.slow
def test_every_leaf_and_component_is_that_of_the_tree_for_many_models():
    for model in model_grid.models(120, seed=1):
        check_against_the_tree(model)


@pytest.mark.parametrize(
    ("width", "ffn_width", "layer", "with_memory"),
    [(512, 2048, 3_152_384, 4_204_032), (768, 3072, 7_087_872, 9_451_776)],
)
def test_worked_biased_layers(width, ffn_width, layer, with_memory):
    sizes = dict(BIASED, width=width, ffn_width=ffn_width, heads=8, norm_placement="post")
    D, F = width, ffn_width
    assert 4 * D * D + 2 * D * F + F + 9 * D == layer
    assert 8 * D * D + 2 * D * F + F + 15 * D == with_memory
    for stack in ("encoder", "decoder"):
        assert layer_of(stack=stack, **sizes) == layer
    assert layer_of(stack="encoder_decoder", **sizes) == with_memory
    six = ModelSpec(stack=EncoderDecoder(encoder_layers=6), layers=6, **sizes)
    assert parameters(six).non_embedding == 6 * (layer + with_memory)


def layer_of(*, stack, **settings):
    """What a second layer adds to the stack that the head reads."""
    kinds = {"encoder": Encoder(), "encoder_decoder": EncoderDecoder(encoder_layers=1)}
    kind = {"stack": kinds[stack]} if stack in kinds else {}
    one, two = (parameters(ModelSpec(layers=n, **kind, **settings)) for n in (1, 2))
    return two.total - one.total


def test_worked_six_and_six():
    sizes = dict(BIASED, width=512, ffn_width=2048, heads=8, layers=6, norm_placement="post")
    model = ModelSpec(stack=EncoderDecoder(encoder_layers=6), ffn="relu", **sizes)
    assert parameters(model).non_embedding == 44_138_496


def test_worked_gated_layers():
    gated = dict(width=768, heads=12, ffn_width=2048, ffn="swiglu")
    gated |= dict(qkv_bias=True, attention_out_bias=True)
    assert layer_of(stack="decoder", **gated) == 7_084_032
    assert layer_of(stack="encoder_decoder", **gated) == 9_447_936
    llama = dict(width=512, heads=8, ffn_width=1376, ffn="swiglu", norm=RMSNorm())
    D, F = 512, 1376
    assert layer_of(stack="decoder", **llama) == 4 * D * D + 3 * D * F + 2 * D == 3_163_136


def test_worked_first_norm_and_bias_of_the_transform():
    """One norm of each stack is left out, of its first layer; nothing remains of one layer's."""
    D, normed = 64, dict(embedding_norm=True, norm_placement="sandwich", layers=3)
    for stacks, settings in ((1, {}), (2, dict(stack=EncoderDecoder(encoder_layers=1)))):
        with_norm, without = (
            ModelSpec(**normed, **settings, first_norm=first) for first in (True, False)
        )
        check_against_the_tree(without)
        assert parameters(with_norm).norms - parameters(without).norms == stacks * 2 * D
    heads = (TokenHead(transform=True, transform_bias=has_bias) for has_bias in (True, False))
    biased, plain = (parameters(ModelSpec(head=head)).head for head in heads)
    assert (biased - plain, plain) == (D, D * D + 2 * D)


def test_worked_grouped_heads():
    """Queries and output keep their size; keys and values shrink with their heads."""
    D, N, K, H, L = 64, 8, 2, 8, 2
    model = ModelSpec(width=D, heads=N, key_value_heads=K, layers=L)
    assert parameters(model).attention == L * (2 * D * N * H + 2 * D * K * H)


def test_worked_latent_attention():
    D, N, H, C, Hr, Hv = 64, 4, 16, 24, 6, 10
    kind = LatentAttention(latent_width=C, rotary_width=Hr, value_width=Hv)
    model = ModelSpec(width=D, heads=N, layers=1, attention=kind, position=Rope())
    expected = D * N * (H + Hr) + D * C + C + D * Hr + C * N * (H + Hv) + N * Hv * D
    assert parameters(model).attention == expected


def test_worked_tables_of_positions():
    L, Le, N, D, H = 3, 2, 4, 64, 16
    stack = EncoderDecoder(encoder_layers=Le)

    def counted(position):
        return parameters(ModelSpec(layers=L, position=position, stack=stack)).position

    # Learned positions, and tables that bias the scores: one in each stack.
    assert counted(Learned(max_length=10, first=2)) == 2 * (10 + 2) * D
    assert counted(T5Bias(buckets=6)) == 2 * 6 * N
    assert counted(RelativeBias(max_distance=3)) == 2 * 7 * N
    # Vectors of distances: in each layer of each, none in cross-attention.
    assert counted(Shaw(max_distance=3)) == (L + Le) * 7 * H
    assert counted(Shaw(max_distance=3, values=True)) == (L + Le) * 7 * 2 * H


def test_law_the_count_does_not_depend_on_heads():
    for settings in (BIASED, dict(stack=TWO_STACKS), dict(attention=LinearAttention())):
        specs = [ModelSpec(width=60, heads=heads, **settings) for heads in (1, 2, 3, 4, 6, 12)]
        assert len({parameters(spec) for spec in specs}) == 1


def test_law_stacked_layers_have_the_parameters_of_the_loop():
    for model in model_grid.models(60, seed=2):
        if not model.first_norm:
            continue
        scanned, looped = (
            parameters(dataclasses.replace(model, scan_layers=scan)) for scan in (True, False)
        )
        assert scanned == looped


def test_non_embedding_is_what_lies_between_embeddings_and_head():
    model = ModelSpec(head=TokenHead(tied=False), position=Learned())
    counts = parameters(model)
    assert counts.non_embedding == counts.attention + counts.ffn + counts.norms
    more = dataclasses.replace(model, vocabulary=999, position=NoPosition(), head=Embedder())
    assert parameters(more).non_embedding == counts.non_embedding


@pytest.mark.parametrize(
    "change",
    [
        dict(vocabulary=18), dict(width=16), dict(layers=3), dict(ffn_width=257), dict(ffn="glu"),
        dict(key_value_heads=2), dict(head_width=8), dict(stack=TWO_STACKS),
        dict(stack=Encoder(token_types=2)), dict(stack=Encoder(pooler=True)),
        dict(attention=LatentAttention()), dict(attention=DotProduct(query_key_norm="head")),
        dict(norm_placement="sandwich"), dict(norm_placement="post"), dict(norm=RMSNorm()),
        dict(norm=LayerNorm(bias=False)), dict(norm=ScaleNorm()), dict(norm=DynamicTanh()),
        dict(final_norm=False), dict(sublayers="parallel_one_norm"),
        dict(branch_scale=LayerScale()), dict(embedding_norm=True),
        dict(qkv_bias=True), dict(attention_out_bias=True),
        dict(ffn_bias=True), dict(position=Learned()), dict(position=T5Bias()),
        dict(head=TokenHead(tied=False)), dict(head=TokenHead(bias=True)),
        dict(head=TokenHead(transform=True)), dict(head=Classifier()),
        dict(head=TokenHead(transform=True, transform_bias=False)),
    ],
    ids=str,
)  # fmt: skip
def test_live_what_changes_the_count(change):
    assert parameters(ModelSpec(**change)).total != parameters(ModelSpec()).total


@pytest.mark.parametrize(
    "change",
    [
        dict(ffn="relu"), dict(position=NoPosition()), dict(position=Rope()),
        dict(scale_embedding=True), dict(initialization="gpt2"), dict(heads=1),
        dict(norm=LayerNorm(epsilon=1e-3)), dict(norm_placement="branch"), dict(final_norm=True),
        dict(key_value_heads=4), dict(head_width=16), dict(stream_scale=0.5),
        dict(sublayers="parallel"), dict(attention=LinearAttention()), dict(stack=Encoder()),
        dict(attention=DotProduct(window=3, soft_cap=1.0, scale=1.0, heads_off="0.1")),
        dict(head=TokenHead(scale_down=True, soft_cap=3.0)), dict(rematerialize="everything"),
    ],
    ids=str,
)  # fmt: skip
def test_null_what_does_not(change):
    assert parameters(ModelSpec(**change)) == parameters(ModelSpec())


def test_counts_are_exact_integers_at_any_size():
    counts = parameters(ModelSpec(width=2**40, heads=1, ffn_width=2**42, layers=1000))
    assert counts.ffn == 1000 * 2 * 2**82 and isinstance(counts.total, int)
