"""Tests for jtransformer.accounting.flops."""

import math

import jax
import jax.extend
import jax.numpy as jnp
import pytest

from jtransformer.accounting import flops, parameters
from jtransformer.modules import build
from jtransformer.spec import Learned, ModelSpec, RMSNorm

B, T = 2, 24
MODELS = (
    ModelSpec(vocabulary=29, width=20, heads=5, ffn_width=33, layers=3),
    ModelSpec(vocabulary=29, width=20, heads=4, ffn_width=33, layers=1, ffn="glu", tied_head=False),
    ModelSpec(vocabulary=31, width=12, heads=2, ffn_width=70, norm_placement="sandwich",
              norm=RMSNorm(), position=Learned(max_length=T), ffn="relu", attention_bias=True,
              ffn_bias=True),
)  # fmt: skip


def matrix_products(jaxpr):
    """Adds up 2mkn over every matrix product of a program, inner programs included."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            summed = math.prod(shape[axis] for axis in contracted)
            total += 2 * math.prod(equation.outvars[0].aval.shape) * summed
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            total += matrix_products(inner)
    return total


def forward(model):
    tokens = jnp.zeros((B, T), jnp.int32)
    module = build(model)
    variables = jax.eval_shape(module.init, jax.random.key(0), tokens)
    return (lambda variables, tokens: module.apply(variables, tokens).logits), (variables, tokens)


@pytest.mark.parametrize("model", MODELS)
def test_forward_equals_the_products_of_the_program(model):
    function, arguments = forward(model)
    counted = matrix_products(jax.make_jaxpr(function)(*arguments).jaxpr)
    assert flops(model, length=T).forward * B * T == counted


@pytest.mark.parametrize("model", MODELS)
def test_training_equals_the_products_of_the_gradient(model):
    function, arguments = forward(model)
    gradient = jax.grad(lambda *arguments: function(*arguments).sum())
    counted = matrix_products(jax.make_jaxpr(gradient)(*arguments).jaxpr)
    assert flops(model, length=T).training * B * T == counted


def test_agrees_with_the_compiler():
    """The compiler counts element-wise work as well: a few per cent at a small width."""
    model = ModelSpec(width=256, heads=4, ffn_width=1024, ffn="relu")
    function, arguments = forward(model)
    analysis = jax.jit(function).lower(*arguments).compile().cost_analysis()
    ratio = analysis["flops"] / (flops(model, length=T).forward * B * T)
    assert 1 <= ratio < 1.02


def test_worked_parts():
    parts = flops(ModelSpec(vocabulary=256, width=64, layers=2, ffn_width=256), length=64)
    assert parts.projections == 2 * 2 * 4 * 64 * 64
    assert parts.scores == 2 * 2 * 2 * 64 * 64
    assert parts.ffn == 2 * 2 * 2 * 64 * 256
    assert parts.head == 2 * 64 * 256
    assert parts.forward == 65536 + 32768 + 131072 + 32768
    assert parts.training == 3 * parts.forward


def test_law_causal_scores_are_those_of_the_visible_keys():
    for length in (1, 2, 7, 64):
        for model in MODELS:
            parts = flops(model, length=length)
            visible = sum(range(1, length + 1))
            # The query at position p sees p + 1 keys: 2D for the score and 2D for the read, each.
            assert parts.causal_scores * length == model.layers * 4 * model.width * visible
            assert parts.scores * length == model.layers * 4 * model.width * length**2


def test_law_without_scores_two_per_matrix_parameter():
    model = ModelSpec(vocabulary=64, width=16, tied_head=False, layers=3, ffn="geglu", ffn_width=9)
    parts, counts = flops(model, length=5), parameters(model)
    assert parts.forward - parts.scores == 2 * (counts.attention + counts.ffn + counts.head)


@pytest.mark.parametrize(
    "change",
    [dict(vocabulary=512), dict(width=128), dict(layers=3), dict(ffn_width=300), dict(ffn="glu")],
)
def test_live(change):
    assert flops(ModelSpec(**change), length=8).forward != flops(ModelSpec(), length=8).forward
    assert flops(ModelSpec(), length=9).forward != flops(ModelSpec(), length=8).forward


def test_null_heads_and_ties_cost_nothing():
    assert flops(ModelSpec(heads=1, tied_head=False), length=8) == flops(ModelSpec(), length=8)
