"""Tests for jtransformer.accounting.memory and .rows."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import model_grid
import pytest

from jtransformer.accounting import memory, optimizer_numbers, parameters
from jtransformer.data import Batch
from jtransformer.modules import build
from jtransformer.spec import (
    Adafactor,
    Adam,
    AdamW,
    DataSpec,
    Lion,
    LossSpec,
    ModelSpec,
    Muon,
    OptimizerSpec,
    Precision,
    RunSpec,
    Sgd,
    TrainingSpec,
    presets,
)
from jtransformer.training.program import Program
from jtransformer.training.rules import direction
from jtransformer.training.schedules import hyperparameters

RULES = (
    AdamW(), Adam(), Lion(), Sgd(), Sgd(momentum=None), Muon(),
    Adafactor(factored_from=10), Adafactor(factored_from=20, scale_by_parameter=False),
)  # fmt: skip
SCANNED = ModelSpec(ffn="relu", layers=8, scan_layers=True)
LARGE = ModelSpec(width=256, heads=2, ffn_width=512, layers=3, vocabulary=300)


def remembered(rule, parameters):
    """Counts the numbers of a real state; its counters and constants are left out."""
    state = jax.eval_shape(direction(rule).init, parameters)
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return sum(
        math.prod(leaf.shape)
        for path, leaf in leaves
        if jnp.issubdtype(leaf.dtype, jnp.floating)
        and "ns_coeffs" not in jax.tree_util.keystr(path)
    )


def initialised(model):
    tokens = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    return jax.eval_shape(build(model).init, jax.random.key(0), tokens)["params"]


def check_rules(model):
    tree = initialised(model)
    for rule in RULES:
        assert optimizer_numbers(model, rule) == remembered(rule, tree), (rule, model)


def test_optimizer_numbers_are_those_of_the_real_states():
    for model in model_grid.models(31, seed=6)[:2]:
        check_rules(model)


@pytest.mark.slow
def test_optimizer_numbers_are_those_of_the_real_states_for_many_models():
    for model in (LARGE, *model_grid.models(31, seed=7)):
        check_rules(model)


def test_worked_rules():
    D, F, L, V = 256, 512, 3, 300
    total = parameters(LARGE).total
    matrices = L * (4 * D * D + 2 * D * F)
    assert optimizer_numbers(LARGE, AdamW()) == 2 * total
    assert optimizer_numbers(LARGE, Lion()) == optimizer_numbers(LARGE, Sgd()) == total
    assert optimizer_numbers(LARGE, Sgd(momentum=None)) == 0
    assert optimizer_numbers(LARGE, Muon()) == matrices + 2 * (total - matrices)
    # Six matrices a layer and the table by rows and columns, each with a placeholder; the norms
    # (two of scale and bias a layer, and one) whole, each with two.
    factored = L * (4 * (D + D + 1) + 2 * (D + F + 1)) + V + D + 1
    norms = (4 * L + 2) * (D + 2)
    assert optimizer_numbers(LARGE, Adafactor()) == factored + norms
    # Nothing is factored: every entry, and two placeholders for each parameter.
    assert optimizer_numbers(LARGE, Adafactor(factored_from=10**6)) == total + 2 * (10 * L + 3)


def test_parts_of_a_run():
    run = RunSpec(model=LARGE, training=TrainingSpec(batch_size=3))
    found, weights = memory(run), 4 * parameters(LARGE).total
    assert (found.parameters, found.gradients) == (weights, weights)
    assert (found.optimizer, found.average) == (2 * weights, 0)
    assert found.total == 4 * weights + found.activations


def changed(**parts):
    return memory(dataclasses.replace(presets.decoder_lm(), **parts))


def test_live_and_null_what_changes_the_memory():
    base = memory(presets.decoder_lm())
    averaged = changed(training=TrainingSpec(average_decay=0.9))
    assert averaged.average == base.parameters and averaged.total == base.total + base.parameters
    lion = changed(optimizer=OptimizerSpec(rule=Lion()))
    assert lion == dataclasses.replace(base, optimizer=base.parameters)
    double = changed(training=TrainingSpec(batch_size=32))
    assert double == dataclasses.replace(base, activations=2 * base.activations)
    assert changed(data=DataSpec(length=65)).activations > base.activations
    parts = changed(training=TrainingSpec(microbatches=4))
    quarter, twice = base.activations // 4, 2 * base.gradients
    assert parts == dataclasses.replace(base, activations=quarter, gradients=twice)
    chunked = changed(loss=LossSpec(chunk=100))
    assert chunked == dataclasses.replace(base, activations=chunked.activations)
    assert chunked.activations < base.activations
    rounded = changed(model=ModelSpec(precision=Precision(stream="bfloat16", ffn="bfloat16")))
    assert rounded == dataclasses.replace(base, activations=rounded.activations)
    assert rounded.activations < base.activations
    assert changed(seed=7, training=TrainingSpec(steps=999)) == base


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "parts", "least", "most"),
    [
        (SCANNED, {}, 0.95, 1.15),
        (SCANNED, dict(training=TrainingSpec(microbatches=4)), 0.95, 1.15),
        (dataclasses.replace(SCANNED, vocabulary=8192, layers=2), dict(loss=LossSpec(chunk=128)),
         0.95, 1.15),
        (ModelSpec(layers=4), {}, 1.2, 1.6),
        (
            ModelSpec(width=512, heads=4, ffn_width=2048, vocabulary=2048, scan_layers=True),
            dict(training=TrainingSpec(batch_size=4)),
            0.9,
            1.5,
        ),
    ],
    ids=["activations in a scan", "microbatches", "chunks", "activations in a loop", "parameters"],
)  # fmt: skip
def test_total_agrees_with_the_compiled_update(model, parts, least, most):
    """From 1.04 times (a scan, ReLU) to 1.41 (a loop, GELU); see the module of activations."""
    run = RunSpec(model=model, **parts)
    program = Program(run)
    state = jax.eval_shape(program.start, jax.random.key(0))
    rows = (run.training.batch_size, run.data.length)
    ids, weights = jnp.zeros(rows, jnp.int32), jnp.zeros(rows, jnp.float32)
    # As in tests/training: optax mixes dtypes.
    with jax.numpy_dtype_promotion("standard"):
        lowered = program.update.lower(state, Batch(ids, ids, weights), hyperparameters(run))
    found = lowered.compile().memory_analysis()
    # The state is donated: what comes out lies where it came in.
    taken = found.argument_size_in_bytes + found.temp_size_in_bytes
    taken += found.output_size_in_bytes - found.alias_size_in_bytes
    assert least < taken / memory(run).total < most
