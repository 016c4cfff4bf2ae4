"""Tests for jtransformer.training.optimizer: rates by update, and who is decayed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jtransformer.spec import Constant, OptimizerSpec, RunSpec, TrainingSpec, WarmupCosine
from jtransformer.training import adamw, decayed, hyperparameters, learning_rate

RUN = RunSpec(
    optimizer=OptimizerSpec(learning_rate=0.1),
    schedule=WarmupCosine(warmup_steps=4, final_fraction=0.1),
    training=TrainingSpec(steps=10),
)


def rates(run):
    hyper, cosine = hyperparameters(run), isinstance(run.schedule, WarmupCosine)
    updates = range(1, run.training.steps + 1)
    return [float(learning_rate(jnp.asarray(t), hyper, cosine=cosine)) for t in updates]


def test_warmup_cosine_equals_optax_counted_from_one():
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 4, 10, 0.01)
    np.testing.assert_allclose(rates(RUN), [schedule(t) for t in range(1, 11)], rtol=1e-5)


def test_first_peak_and_last_rate():
    found = rates(RUN)
    np.testing.assert_allclose([found[0], found[3], found[9]], [0.025, 0.1, 0.01], rtol=1e-6)


@pytest.mark.parametrize("warmup", [0, 1, 10])
def test_boundary_warmups(warmup):
    run = dataclasses.replace(RUN, schedule=WarmupCosine(warmup_steps=warmup, final_fraction=0.0))
    found = rates(run)
    assert np.all(np.isfinite(found)) and found[0] > 0
    assert np.isclose(max(found), 0.1, rtol=0.03)


def test_constant_stays_after_its_warmup():
    run = dataclasses.replace(RUN, schedule=Constant(warmup_steps=2))
    np.testing.assert_allclose(rates(run), [0.05] + [0.1] * 9, rtol=1e-6)


@pytest.mark.parametrize(
    "schedule",
    [
        WarmupCosine(warmup_steps=5, final_fraction=0.1),
        WarmupCosine(warmup_steps=4, final_fraction=0.2),
        Constant(warmup_steps=4),
    ],
    ids=str,
)
def test_live_each_schedule_setting_changes_the_rates(schedule):
    assert not np.allclose(rates(RUN), rates(dataclasses.replace(RUN, schedule=schedule)))


def updated(optimizer, gradient, parameters, rate=0.1):
    run = dataclasses.replace(RUN, optimizer=optimizer)
    transformation = adamw(optimizer, hyperparameters(run), jnp.asarray(rate))
    state = transformation.init(parameters)
    updates, _ = transformation.update(gradient, state, parameters)
    return optax.apply_updates(parameters, updates)


def test_decay_is_decoupled_and_spares_norms_and_biases():
    # Known figures: parameter 1, gradient 1e-3, rate 0.1, decay 0.1, one step.
    names = {"kernel": (2, 2), "table": (2, 2), "bias": (2,), "scale": (12, 8)}
    parameters = {name: jnp.ones(shape) for name, shape in names.items()}
    gradient = jax.tree.map(lambda leaf: 1e-3 * jnp.ones_like(leaf), parameters)
    after = updated(OptimizerSpec(weight_decay=0.1, gradient_clip=None), gradient, parameters)
    for name in ("kernel", "table"):
        np.testing.assert_allclose(after[name] - 1, -0.109998, atol=2e-6)
    for name in ("bias", "scale"):
        np.testing.assert_allclose(after[name] - 1, -0.099999, atol=2e-6)
    assert decayed(parameters) == {"kernel": True, "table": True, "bias": False, "scale": False}


CHANGES = {
    "weight_decay": 0.2,
    "beta1": 0.5,
    "beta2": 0.5,
    "epsilon": 1e-2,
    "gradient_clip": 0.01,
}


@pytest.mark.parametrize("field", CHANGES)
def test_live_each_optimizer_setting_changes_the_second_update(field):
    def twice(optimizer):
        run = dataclasses.replace(RUN, optimizer=optimizer)
        transformation = adamw(optimizer, hyperparameters(run), jnp.asarray(0.1))
        parameters = {"kernel": jnp.ones(3)}
        state = transformation.init(parameters)
        for gradient in ([1.0, 2.0, -1.0], [0.1, -0.2, 0.1]):
            gradient = {"kernel": jnp.array(gradient)}
            updates, state = transformation.update(gradient, state, parameters)
            parameters = optax.apply_updates(parameters, updates)
        return parameters["kernel"]

    changed = dataclasses.replace(RUN.optimizer, **{field: CHANGES[field]})
    assert not np.allclose(twice(RUN.optimizer), twice(changed), atol=1e-5)
    assert set(CHANGES) | {"learning_rate"} == {
        item.name for item in dataclasses.fields(OptimizerSpec)
    }


def test_null_no_decay_and_no_clip_is_adam():
    parameters = {"kernel": jnp.array([1.0, -2.0, 3.0])}
    gradient = {"kernel": jnp.array([10.0, 20.0, -5.0])}
    ours = updated(OptimizerSpec(weight_decay=0.0, gradient_clip=None), gradient, parameters)
    adam = optax.adam(0.1, 0.9, 0.95, 1e-8)
    updates, _ = adam.update(gradient, adam.init(parameters), parameters)
    theirs = optax.apply_updates(parameters, updates)
    np.testing.assert_array_equal(ours["kernel"], theirs["kernel"])


def test_a_clip_above_the_norm_changes_nothing():
    parameters = {"kernel": jnp.array([1.0, -2.0, 3.0])}
    gradient = {"kernel": jnp.array([0.1, 0.2, -0.5])}
    free = updated(OptimizerSpec(gradient_clip=None), gradient, parameters)
    clipped = updated(OptimizerSpec(gradient_clip=100.0), gradient, parameters)
    np.testing.assert_array_equal(free["kernel"], clipped["kernel"])
