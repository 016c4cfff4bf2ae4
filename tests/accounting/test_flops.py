"""Tests for jtransformer.accounting.flops."""

import dataclasses
import inspect
import math

import jax
import jax.extend
import jax.numpy as jnp
import model_grid
import pytest

from jtransformer.accounting import flops, parameters
from jtransformer.accounting.costs import CHUNK, visible_pairs
from jtransformer.functional import visible
from jtransformer.functional.linear_attention import linear_attention
from jtransformer.modules import build
from jtransformer.spec import (
    Classifier,
    DotProduct,
    Encoder,
    EncoderDecoder,
    Learned,
    LinearAttention,
    ModelSpec,
    RMSNorm,
    Rope,
    Shaw,
    SpecError,
    TokenHead,
)

B, T, S = 2, 6, 5
MODELS = (
    ModelSpec(vocabulary=29, width=20, heads=5, ffn_width=33, layers=3),
    ModelSpec(vocabulary=31, width=12, heads=2, ffn_width=70, norm_placement="sandwich", ffn="glu",
              norm=RMSNorm(), position=Learned(max_length=T), head=TokenHead(tied=False)),
    ModelSpec(vocabulary=31, width=12, heads=4, key_value_heads=2, head_width=5, layers=1,
              stack=EncoderDecoder(encoder_layers=2), qkv_bias=True),
)  # fmt: skip


def matrix_products(jaxpr):
    """Adds up 2mkn over every matrix product of a program, as often as it is run."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            summed = math.prod(shape[axis] for axis in contracted)
            total += 2 * math.prod(equation.outvars[0].aval.shape) * summed
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            total += times * matrix_products(inner)
    return total


def forward(model, length=T, source_length=S):
    """A function of the parameters, and their shapes."""
    tokens = jnp.zeros((B, length), jnp.int32)
    source = jnp.zeros((B, source_length), jnp.int32)
    module = build(model)
    variables = jax.eval_shape(module.init, jax.random.key(0), tokens)
    arguments, given = model_grid.arguments_of(model, tokens, source=source)

    def answer(variables):
        output = module.apply(variables, *arguments, **given)
        return output.pooled if output.logits is None else output.logits

    return answer, variables


def check_forward(model, length=T, source_length=S):
    answer, variables = forward(model, length, source_length)
    counted = matrix_products(jax.make_jaxpr(answer)(variables).jaxpr)
    found = flops(model, length=length, source_length=source_length if model.has_encoder else None)
    assert found.forward * B * length == pytest.approx(counted, rel=1e-12), model


@pytest.mark.parametrize("model", MODELS, ids=["plain", "gated", "two stacks"])
def test_forward_and_training_equal_the_products_of_the_program(model):
    check_forward(model)
    answer, variables = forward(model)
    gradient = jax.grad(lambda variables: answer(variables).sum())
    counted = matrix_products(jax.make_jaxpr(gradient)(variables).jaxpr)
    found = flops(model, length=T, source_length=S if model.has_encoder else None)
    assert found.training * B * T == pytest.approx(counted, rel=1e-12)


def test_forward_equals_the_products_of_programs_of_every_kind():
    for model in model_grid.models(4, seed=3)[:4]:
        check_forward(model)


@pytest.mark.slow
def test_forward_equals_the_products_of_many_programs():
    for model in model_grid.models(60, seed=4):
        check_forward(model)


@pytest.mark.parametrize("length", [CHUNK + 7, 2 * CHUNK])
def test_linear_attention_reads_chunk_by_chunk(length):
    model = ModelSpec(width=12, heads=2, key_value_heads=1, layers=1, attention=LinearAttention())
    check_forward(model, length)


def test_chunk_is_that_of_the_function():
    assert inspect.signature(linear_attention).parameters["chunk_size"].default == CHUNK


def compiled(function, *arguments):
    """Returns how many operations XLA counts."""
    return jax.jit(function).lower(*arguments).compile().cost_analysis()["flops"]


@pytest.mark.parametrize(
    ("model", "most"),
    [
        (ModelSpec(width=256, heads=4, ffn_width=1024, ffn="relu", layers=1), 1.02),
        (ModelSpec(width=256, heads=4, ffn_width=512, ffn="relu", layers=1,
                   stack=EncoderDecoder(encoder_layers=1)), 1.02),
        pytest.param(
            ModelSpec(width=256, heads=4, key_value_heads=1, ffn_width=512, ffn="swiglu", layers=1,
                      norm=RMSNorm(), position=Rope()), 1.04, marks=pytest.mark.slow),
    ],
    ids=["decoder", "two stacks", "llama"],
)  # fmt: skip
def test_agrees_with_the_compiler(model, most):
    """XLA counts element-wise work as well: a few per cent at these widths, less at usual ones.

    Per token that is about 8 for each norm and entry of the stream, 5 for each score (softmax
    and mask), 1 for an entry of a ReLU and 10 of a SiLU, and 6 for each channel that turns.
    """
    length, source_length = 24, 20
    answer, variables = forward(model, length, source_length)
    own = flops(model, length=length, source_length=source_length if model.has_encoder else None)
    ratio = compiled(answer, variables) / (own.forward * B * length)
    assert 1 <= ratio < most


def test_worked_parts():
    parts = flops(ModelSpec(vocabulary=256, width=64, layers=2, ffn_width=256), length=64)
    assert parts.projections == 2 * 2 * 4 * 64 * 64
    assert parts.scores == 2 * 2 * 2 * 64 * 64
    assert parts.ffn == 2 * 2 * 2 * 64 * 256
    assert parts.head == 2 * 64 * 256
    assert parts.forward == 65536 + 32768 + 131072 + 32768
    assert parts.training == 3 * parts.forward
    assert parts.encoder == parts.cross_attention == parts.cross_scores == 0


def test_worked_source_is_paid_by_the_target():
    """The encoder runs over S tokens for T of the target; so do the memory's keys and values."""
    D, F, length, source = 16, 32, 4, 10
    stack = EncoderDecoder(encoder_layers=1)
    model = ModelSpec(width=D, ffn_width=F, layers=1, heads=2, stack=stack)
    parts = flops(model, length=length, source_length=source)
    per_token = 2 * 4 * D * D + 2 * 2 * D * F + 4 * D * source
    assert parts.encoder == source / length * per_token
    assert parts.encoder_scores == source / length * 4 * D * source
    assert parts.cross_attention == 2 * 2 * D * D * (1 + source / length)
    assert parts.cross_scores == 4 * D * source


@pytest.mark.parametrize("window", [None, 1, 3, 7, 100])
@pytest.mark.parametrize("causal", [False, True])
def test_visible_pairs_are_those_of_the_mask(window, causal):
    for length in (1, 2, 7):
        positions = jnp.arange(length)[None]
        mask = visible(positions, positions, causal=causal, window=window)
        assert visible_pairs(length, window, causal=causal) == int(mask.sum())


def test_law_visible_scores_are_half_and_half_the_diagonal():
    for length in (1, 2, 7, 64):
        parts = flops(MODELS[0], length=length)
        assert parts.visible_scores * 2 * length == parts.scores * (length + 1)
        assert parts.forward_visible == parts.forward - parts.scores + parts.visible_scores
    encoder = flops(dataclasses.replace(MODELS[0], stack=Encoder()), length=9)
    assert encoder.visible_scores == encoder.scores


def test_law_a_pattern_of_windows_is_the_mean_of_its_layers():
    def scores(**settings):
        kind = DotProduct(**settings)
        return flops(ModelSpec(layers=2, attention=kind), length=16).visible_scores

    mixed = scores(window=4, window_pattern="window,full")
    assert 2 * mixed == scores(window=4) + scores()
    assert scores(window=16) == scores() == scores(window=99)


def test_law_without_scores_two_per_matrix_parameter():
    model = ModelSpec(
        vocabulary=64, width=16, head=TokenHead(tied=False), layers=3, ffn="geglu", ffn_width=9
    )
    parts, counts = flops(model, length=5), parameters(model)
    assert parts.forward_without_scores == 2 * (counts.attention + counts.ffn + counts.head)
    assert parts.training_without_scores == 3 * parts.forward_without_scores


def test_law_decoding_costs_the_forward_pass_of_the_last_token():
    """Of a plain decoder; where there is a source, what a cache keeps is not computed again."""
    parts = flops(MODELS[0], length=50)
    assert parts.decoding == parts.forward
    both = flops(MODELS[2], length=50, source_length=30)
    kept = both.cross_attention - 2 * 2 * 12 * 4 * 5
    assert both.decoding == pytest.approx(both.forward - both.encoder - kept)
    windowed = ModelSpec(attention=DotProduct(window=4))
    assert flops(windowed, length=50).decoding == flops(windowed, length=4).decoding
    state = ModelSpec(attention=LinearAttention())
    assert flops(state, length=50).decoding == flops(state, length=5).decoding
    assert flops(ModelSpec(stack=Encoder()), length=50).decoding == 0


@pytest.mark.parametrize(
    "change",
    [
        dict(vocabulary=512), dict(width=128), dict(layers=3), dict(ffn_width=300),
        dict(ffn="glu"), dict(key_value_heads=1), dict(head_width=8),
        dict(attention=LinearAttention()), dict(position=Shaw()), dict(head=Classifier()),
        dict(head=TokenHead(transform=True)), dict(stack=EncoderDecoder()),
    ],
    ids=str,
)  # fmt: skip
def test_live(change):
    assert flops(ModelSpec(**change), length=8).forward != flops(ModelSpec(), length=8).forward


def test_live_lengths():
    model = ModelSpec(stack=EncoderDecoder())
    found = {flops(model, length=8, source_length=s).forward for s in (7, 8, 9)}
    assert len(found) == 3
    assert flops(ModelSpec(), length=9).forward != flops(ModelSpec(), length=8).forward


def test_null_what_costs_nothing():
    plain = flops(ModelSpec(), length=8)
    for change in (dict(heads=1), dict(head=TokenHead(tied=False)), dict(qkv_bias=True)):
        assert flops(ModelSpec(**change), length=8) == plain
    model = ModelSpec(stack=EncoderDecoder())
    assert flops(model, length=8) == flops(model, length=8, source_length=8)


def test_error_lengths():
    with pytest.raises(SpecError, match="length must be at least 1, got 0"):
        flops(ModelSpec(), length=0)
    with pytest.raises(SpecError, match="length must not exceed 9223372036854775807"):
        flops(ModelSpec(), length=10**600)
    with pytest.raises(
        SpecError, match="source_length = 4 would do nothing with stack.kind 'decod"
    ):
        flops(ModelSpec(), length=4, source_length=4)
