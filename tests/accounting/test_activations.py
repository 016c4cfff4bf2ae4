"""Tests for jtransformer.accounting.activations."""

import dataclasses

import jax
import jax.numpy as jnp
import model_grid
import pytest

from jtransformer.accounting import activation_bytes
from jtransformer.accounting.activations import BLOCKWISE_BEYOND
from jtransformer.functional.attention_backends import PLAIN_SCORES
from jtransformer.modules import build
from jtransformer.spec import (
    DotProduct,
    Dropout,
    Encoder,
    EncoderDecoder,
    LatentAttention,
    LinearAttention,
    ModelSpec,
    PrefixDecoder,
    RMSNorm,
    SpecError,
    TokenHead,
)

B, T = 4, 100
LAYERS = ModelSpec(vocabulary=64, width=64, heads=4, ffn_width=256, layers=3)


def by_layers(model, **sizes):
    """What one more layer keeps."""
    less, more = (model_grid.with_layers(model, layers) for layers in (2, 3))
    return activation_bytes(more, **sizes) - activation_bytes(less, **sizes)


@pytest.mark.parametrize(("width", "heads", "length"), [(1024, 16, 512), (64, 4, 100)])
def test_a_layer_is_that_of_korthikanti(width, heads, length):
    """B·T·D (34 + 5·N·T / D) bytes at two bytes a number, with dropout where they have it."""
    rows = 2
    dropout = Dropout(attention=0.1, residual=0.1)
    model = ModelSpec(width=width, heads=heads, ffn_width=4 * width, dropout=dropout)
    found = by_layers(model, length=length, rows=rows, bytes_per_number=2)
    assert found == rows * length * (34 * width + 5 * heads * length)


def test_of_which_everything_keeps_the_input_alone():
    model = dataclasses.replace(LAYERS, rematerialize="everything")
    found = by_layers(model, length=T, rows=B, bytes_per_number=2)
    assert found == 2 * B * T * 64


def test_elementwise_keeps_the_input_and_the_products():
    model = dataclasses.replace(LAYERS, rematerialize="elementwise")
    D, F, N = 64, 256, 4
    # Input; q, k, v; scores; read; branch; hidden; branch.
    found = by_layers(model, length=T, rows=B)
    assert found == 4 * B * T * (D + 3 * D + N * T + D + D + F + D)


def test_law_modes_keep_less_and_less():
    found = [
        activation_bytes(dataclasses.replace(LAYERS, layers=12, rematerialize=mode), length=T)
        for mode in ("nothing", "elementwise", "everything")
    ]
    assert found == sorted(found, reverse=True) and len(set(found)) == 3


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
    for name in ("length", "rows", "bytes_per_number"):
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [
        (dict(ffn="relu"), 0.95, 1.05),
        (dict(ffn="relu", rematerialize="elementwise"), 0.9, 1.05),
        (dict(ffn="relu", rematerialize="everything"), 0.99, 1.01),
        (dict(ffn="gelu", rematerialize="everything"), 0.99, 1.01),
        # The derivatives of these are taken step by step, and keep what each step needs.
        (dict(ffn="relu", norm=RMSNorm(), norm_placement="sandwich"), 1.2, 1.5),
        (dict(ffn="gelu"), 1.3, 1.7),
        (dict(ffn="swiglu"), 1.3, 1.7),
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
