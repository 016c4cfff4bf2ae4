"""Tests for jtransformer.accounting.activations."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import model_grid
import pytest

from jtransformer.accounting import activation_bytes, parameters
from jtransformer.accounting.activations import BLOCKWISE_BEYOND
from jtransformer.functional.attention_backends import PLAIN_SCORES
from jtransformer.modules import build
from jtransformer.spec import (
    FLOAT_BYTES,
    DotProduct,
    Dropout,
    Encoder,
    EncoderDecoder,
    LatentAttention,
    LinearAttention,
    ModelSpec,
    Precision,
    PrefixDecoder,
    RMSNorm,
    SpecError,
    TokenHead,
)

B, T = 4, 100
LAYERS = ModelSpec(vocabulary=64, width=64, heads=4, ffn_width=256, layers=3)


BF16 = Precision(stream="bfloat16", attention="bfloat16", ffn="bfloat16", head="bfloat16")


def low(model):
    return dataclasses.replace(model, precision=BF16)


def by_layers(model, **sizes):
    """What one more layer keeps."""
    less, more = (model_grid.with_layers(model, layers) for layers in (2, 3))
    return activation_bytes(more, **sizes) - activation_bytes(less, **sizes)


@pytest.mark.parametrize(("width", "heads", "length"), [(1024, 16, 512), (64, 4, 100)])
def test_a_layer_is_that_of_korthikanti(width, heads, length):
    """B·T·D (34 + 5·N·T / D) bytes at two bytes a number, with dropout where they have it.

    Sixteen numbers and two masks, and two numbers and a mask of each weight; here the inputs of
    both norms are in float32, and so are the weights before their dropout.
    """
    rows = 2
    dropout = Dropout(attention=0.1, residual=0.1)
    model = ModelSpec(width=width, heads=heads, ffn_width=4 * width, dropout=dropout)
    found = by_layers(model, length=length, rows=rows)
    assert found == rows * length * ((4 * 16 + 2) * width + (4 * 2 + 1) * heads * length)
    found = by_layers(low(model), length=length, rows=rows)
    rounded = 2 * 12 * width**2
    assert found == rows * length * ((34 + 4) * width + (5 + 2) * heads * length) + rounded
    # Without what attention forms, which is what they compute again (sec. 5).
    again = dataclasses.replace(low(model), rematerialize="attention")
    assert by_layers(again, length=length, rows=rows) == rows * length * 38 * width + rounded


@pytest.mark.parametrize("make", [lambda model: model, low], ids=["float32", "bfloat16"])
def test_of_which_everything_keeps_the_input_alone(make):
    model = make(dataclasses.replace(LAYERS, rematerialize="everything"))
    size = FLOAT_BYTES[model.precision.stream]
    assert by_layers(model, length=T, rows=B) == size * B * T * 64


@pytest.mark.parametrize(
    ("part", "numbers"),
    [
        # Both layers' weights are rounded beside what they are rounded from.
        ("attention", 5 * 64 - 4 * T),
        ("ffn", 9 * 64),
        ("stream", 0),
        ("head", 0),
    ],
)
def test_a_part_in_bfloat16_keeps_half_and_its_matrices(part, numbers):
    model = dataclasses.replace(LAYERS, precision=Precision(**{part: "bfloat16"}))
    matrices = {"attention": 4 * 64 * 64, "ffn": 2 * 64 * 256}.get(part, 0)
    saved = by_layers(LAYERS, length=T, rows=B) - by_layers(model, length=T, rows=B)
    assert saved == 2 * (B * T * numbers - matrices)


def test_chunks_keep_the_logits_of_one():
    large = dataclasses.replace(LAYERS, vocabulary=5000)
    whole = activation_bytes(large, length=T, rows=B)
    chunked = activation_bytes(large, length=T, rows=B, chunk=50)
    # And the last states once more, dealt out.
    assert whole - chunked == 2 * 4 * 5000 * (B * T - 50) - 4 * B * T * 64
    assert activation_bytes(large, length=T, rows=B, chunk=B * T) == whole + 4 * B * T * 64


def test_elementwise_keeps_the_input_and_the_products():
    model = dataclasses.replace(LAYERS, rematerialize="elementwise")
    D, F, N = 64, 256, 4
    # Input; q, k, v; scores; read; branch; hidden; branch.
    found = by_layers(model, length=T, rows=B)
    assert found == 4 * B * T * (D + 3 * D + N * T + D + D + F + D)


@pytest.mark.parametrize("stack", [Encoder(), EncoderDecoder()])
def test_without_its_first_norm_a_stack_keeps_one_input_less(stack):
    normed = dataclasses.replace(LAYERS, stack=stack, embedding_norm=True)
    saved = {"nothing": 4 * B * T * 64, "everything": 0}
    for mode, bytes_of_stack in saved.items():
        model = dataclasses.replace(normed, rematerialize=mode)
        without = dataclasses.replace(model, first_norm=False)
        less = [activation_bytes(each, length=T, rows=B) for each in (model, without)]
        assert less[0] - less[1] == bytes_of_stack * (2 if model.has_encoder else 1)


def test_law_modes_keep_less_and_less():
    found = [
        activation_bytes(dataclasses.replace(LAYERS, layers=12, rematerialize=mode), length=T)
        for mode in ("nothing", "elementwise", "attention", "everything")
    ]
    # Scores are products, which "elementwise" keeps: these are rows of more tokens than a layer is
    # wide.
    assert found == sorted(found, reverse=True) and len(set(found)) == 4


def test_law_rows_count_in_proportion_and_scores_by_the_square():
    one, three = (activation_bytes(LAYERS, length=T, rows=rows) for rows in (1, 3))
    assert three == 3 * one
    once, twice, thrice = (by_layers(LAYERS, length=n * T) for n in (1, 2, 3))
    assert thrice - 2 * twice + once == 4 * 2 * 4 * T * T


def test_blocks_keep_no_weights():
    assert BLOCKWISE_BEYOND == PLAIN_SCORES
    rows = PLAIN_SCORES // (4 * 512 * 512)
    plain = by_layers(LAYERS, length=512, rows=rows)
    blocks = by_layers(LAYERS, length=512, rows=rows + 1)
    assert plain / rows - blocks / (rows + 1) == 4 * 4 * 512 * 512
    dropping = dataclasses.replace(LAYERS, dropout=Dropout(attention=0.1))
    more = by_layers(dropping, length=512, rows=rows + 1)
    assert more == (rows + 1) * (by_layers(LAYERS, length=512) + 5 * 4 * 512 * 512)


@pytest.mark.parametrize(
    "change",
    [
        dict(width=128), dict(ffn_width=260), dict(ffn="swiglu"), dict(key_value_heads=1),
        dict(layers=4), dict(vocabulary=99), dict(norm_placement="sandwich"),
        dict(norm_placement="none"), dict(sublayers="parallel"),
        dict(sublayers="parallel_one_norm"),
        dict(attention=LinearAttention()), dict(attention=LatentAttention()),
        dict(attention=DotProduct(query_key_norm="head")), dict(stack=EncoderDecoder()),
        dict(embedding_norm=True), dict(head=TokenHead(transform=True)), dict(final_norm=False),
        dict(dropout=Dropout(embedding=0.1)), dict(dropout=Dropout(attention=0.1)),
        dict(dropout=Dropout(ffn=0.1)), dict(dropout=Dropout(residual=0.1)),
    ],
    ids=str,
)  # fmt: skip
def test_live(change):
    model = dataclasses.replace(LAYERS, **change)
    assert activation_bytes(model, length=T) != activation_bytes(LAYERS, length=T)


@pytest.mark.parametrize(
    "change",
    [
        dict(qkv_bias=True), dict(stack=Encoder()), dict(stack=PrefixDecoder()),
        dict(scan_layers=True), dict(head=TokenHead(tied=False)), dict(norm_placement="post",
        final_norm=True), dict(key_value_heads=4),
    ],
    ids=str,
)  # fmt: skip
def test_null(change):
    model = dataclasses.replace(LAYERS, **change)
    assert activation_bytes(model, length=T) == activation_bytes(LAYERS, length=T)


def test_live_source():
    model = dataclasses.replace(LAYERS, stack=EncoderDecoder())
    short, long = (activation_bytes(model, length=T, source_length=s) for s in (10, 20))
    assert short < long
    assert activation_bytes(model, length=T) == activation_bytes(model, length=T, source_length=T)


def test_error_sizes():
    for name in ("length", "rows", "chunk"):
        with pytest.raises(SpecError, match=f"{name} must be at least 1, got 0"):
            activation_bytes(LAYERS, **{"length": 3, name: 0})


def temporary_bytes(model):
    """Returns what XLA sets aside for the gradient of a batch, beside arguments and results."""
    module = build(model)
    tokens = jnp.zeros((B, T), jnp.int32)
    variables = jax.eval_shape(module.init, jax.random.key(0), tokens)

    def loss(variables, tokens):
        logits = module.apply(variables, tokens).logits
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - logits[..., 0])

    lowered = jax.jit(jax.grad(loss)).lower(variables, tokens)
    return lowered.compile().memory_analysis().temp_size_in_bytes


def residual_bytes(model):
    """Returns what JAX hands from the forward pass to the backward pass of a batch."""
    module = build(model)
    tokens = jnp.zeros((B, T), jnp.int32)
    variables = jax.eval_shape(module.init, jax.random.key(0), tokens)

    def loss(variables):
        logits = module.apply(variables, tokens).logits.astype(jnp.float32)
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - logits[..., 0])

    def pulled(variables):
        return jax.tree.leaves(jax.vjp(loss, variables)[1])

    kept = jax.eval_shape(pulled, variables)
    found = sum(math.prod(x.shape) * x.dtype.itemsize for x in kept)
    # What a layer computes again it computes from its parameters, which are there anyway.
    again = model.rematerialize in ("elementwise", "everything")
    return found - 4 * parameters(model).total * again


@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [
        (dict(), 0.98, 1.02),
        (dict(rematerialize="attention"), 0.98, 1.02),
        (dict(rematerialize="elementwise"), 0.9, 1.02),
        (dict(rematerialize="everything"), 0.99, 1.01),
        (dict(precision=Precision(attention="bfloat16")), 0.95, 1.02),
    ],
    ids=str,
)
def test_a_layer_in_bfloat16_agrees_with_what_is_handed_to_the_backward_pass(settings, least, most):
    """XLA for the CPU widens every bfloat16, so that its memory says nothing of them."""
    model = dataclasses.replace(low(LAYERS), ffn="relu", scan_layers=True)
    model = dataclasses.replace(model, **settings)
    less, more = model_grid.with_layers(model, 4), model_grid.with_layers(model, 8)
    found = residual_bytes(more) - residual_bytes(less)
    estimate = [activation_bytes(each, length=T, rows=B) for each in (less, more)]
    assert least < found / (estimate[1] - estimate[0]) < most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [
        (dict(ffn="relu"), 0.95, 1.05),
        (dict(ffn="relu", rematerialize="elementwise"), 0.9, 1.05),
        (dict(ffn="relu", rematerialize="everything"), 0.99, 1.01),
        (dict(ffn="gelu", rematerialize="everything"), 0.99, 1.01),
        (dict(ffn="relu", rematerialize="attention"), 0.95, 1.05),
        # The derivatives of these are taken step by step, and keep what each step needs.
        (dict(ffn="relu", norm=RMSNorm(), norm_placement="sandwich"), 1.2, 1.5),
        (dict(ffn="gelu"), 1.0, 1.25),
        (dict(ffn="swiglu"), 1.15, 1.45),
    ],
    ids=str,
)
def test_a_layer_agrees_with_the_compiler(settings, least, most):
    """Of layers in a scan: in a loop XLA's CPU compiler undoes rematerialisation."""
    model = dataclasses.replace(LAYERS, **settings, scan_layers=True)
    less, more = model_grid.with_layers(model, 4), model_grid.with_layers(model, 8)
    found = temporary_bytes(more) - temporary_bytes(less)
    estimate = [activation_bytes(each, length=T, rows=B) for each in (less, more)]
    assert least < found / (estimate[1] - estimate[0]) < most
