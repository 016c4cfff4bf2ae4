"""Tests for the rules of jtransformer.training: as optax has them, and every number alive."""

import dataclasses

import descent
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jtransformer.spec import (
    Adafactor,
    Adam,
    AdamW,
    Lion,
    OptimizerSpec,
    Sgd,
)
from jtransformer.spec.optimizer import Rule

RATE = descent.RATE
RULES = {rule.kind: rule() for rule in Rule.__args__}


def tree(seed, *, scale=1.0):
    """A table and a layer with a plain matrix, one of heads, and a bias."""
    shapes = {
        "embedding": {"table": (7, 6)},
        "layer_0": {
            "attention": {"query": {"kernel": (6, 2, 5)}},
            "ffn": {"in": {"kernel": (6, 8), "bias": (8,)}},
        },
    }
    leaves, structure = jax.tree.flatten(shapes, is_leaf=lambda x: isinstance(x, tuple))
    generator = np.random.default_rng(seed)
    drawn = [scale * generator.normal(size=shape).astype(np.float32) for shape in leaves]
    return jax.tree.map(jnp.asarray, structure.unflatten(drawn))


PARAMETERS = tree(0)
GRADIENTS = [tree(seed, scale=0.1) for seed in (1, 2, 3)]


def updated(optimizer, gradients=GRADIENTS):
    return descent.updated(optimizer, PARAMETERS, gradients)


def spec_of(rule, **others):
    """Returns an optimizer without clip and decay, unless they are given; Adam has no decay."""
    numbers = {"gradient_clip": None, "weight_decay": 0.0} | others
    if isinstance(rule, Adam):
        numbers["weight_decay"] = 0.0
    return OptimizerSpec(**numbers, rule=rule)


def assert_equal(found, expected, **tolerance):
    compare = dict(rtol=1e-6, atol=1e-6) | tolerance
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **compare), found, expected)


def matrices(tree):
    return jax.tree_util.tree_map_with_path(
        lambda path, _: path[-1].key in ("kernel", "table"), tree
    )


DECAY = 0.3
OPTAX = {
    "adamw": (AdamW(), optax.adamw(RATE, 0.9, 0.95, 1e-8, weight_decay=DECAY, mask=matrices)),
    "adam": (Adam(beta2=0.99), optax.adam(RATE, 0.9, 0.99, 1e-8)),
    "lion": (Lion(), optax.lion(RATE, 0.9, 0.99, weight_decay=DECAY, mask=matrices)),
    "sgd": (
        Sgd(momentum=0.8),
        optax.chain(optax.trace(0.8), optax.add_decayed_weights(DECAY, matrices),
                    optax.scale(-RATE)),
    ),
    "sgd, nesterov": (
        Sgd(momentum=0.8, nesterov=True),
        optax.chain(optax.trace(0.8, nesterov=True), optax.add_decayed_weights(DECAY, matrices),
                    optax.scale(-RATE)),
    ),
    # optax does not multiply this decay by the rate.
    "adafactor": (
        Adafactor(),
        optax.adafactor(RATE, weight_decay_rate=RATE * DECAY, weight_decay_mask=matrices),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTAX)
def test_value_is_that_of_optax(name):
    rule, theirs = OPTAX[name]
    assert_equal(
        updated(spec_of(rule, weight_decay=DECAY)),
        descent.updated_by(theirs, PARAMETERS, GRADIENTS),
    )


@pytest.mark.parametrize(
    ("rule", "theirs"),
    [
        (Sgd(momentum=None), optax.sgd(RATE)),
        (Sgd(), optax.sgd(RATE, 0.9)),
        (Adam(), optax.adam(RATE)),
        (AdamW(), optax.adam(RATE, 0.9, 0.95)),
        (Adafactor(), optax.adafactor(RATE)),
    ],
    ids=["sgd", "momentum", "adam", "adamw", "adafactor"],
)
def test_null_without_decay_and_clip_it_is_the_plain_rule(rule, theirs):
    assert_equal(updated(spec_of(rule)), descent.updated_by(theirs, PARAMETERS, GRADIENTS))


@pytest.mark.parametrize("kind", [kind for kind in RULES if kind != "adam"])
def test_law_a_step_takes_rate_times_decay_off_every_matrix_and_nothing_else(kind):
    free, pulled = (
        updated(spec_of(RULES[kind], weight_decay=decay), GRADIENTS[:1]) for decay in (0.0, DECAY)
    )
    expected = jax.tree.map(
        lambda x, parameter, decays: x - RATE * DECAY * parameter * decays,
        free,
        PARAMETERS,
        matrices(PARAMETERS),
    )
    assert_equal(pulled, expected)


@pytest.mark.parametrize("kind", RULES)
def test_live_and_null_clip(kind):
    """Adam, Lion and Muon forget the size of a gradient, but not whether it changes."""
    gradients = [jax.tree.map(lambda x: 50 * x, GRADIENTS[0]), *GRADIENTS[1:]]
    free, wide, tight = (
        updated(spec_of(RULES[kind], gradient_clip=clip), gradients) for clip in (None, 1e6, 0.1)
    )
    assert_equal(free, wide, rtol=1e-7, atol=1e-7)
    assert not np.allclose(free["embedding"]["table"], tight["embedding"]["table"], atol=1e-4)


CHANGES = {
    "adamw": {"beta1": 0.5, "beta2": 0.5, "epsilon": 1.0},
    "adam": {"beta1": 0.5, "beta2": 0.5, "epsilon": 1.0},
    "adafactor": {
        "decay_rate": 0.3,
        "clipping_threshold": 0.5,
        "factored_from": 6,
        "scale_by_parameter": False,
    },
    "lion": {"beta1": 0.1, "beta2": 0.1},
    "sgd": {"momentum": 0.5, "nesterov": True},
    "muon": {"momentum": 0.5, "iterations": 2, "beta1": 0.5, "beta2": 0.5, "epsilon": 1.0},
}
FIELDS = [(kind, field.name) for kind in RULES for field in dataclasses.fields(RULES[kind])]


@pytest.fixture(scope="module")
def baselines():
    return {kind: updated(spec_of(rule)) for kind, rule in RULES.items()}


@pytest.mark.parametrize(("kind", "field"), FIELDS, ids=".".join)
def test_live_each_number_of_each_rule_changes_the_parameters(baselines, kind, field):
    changed = dataclasses.replace(RULES[kind], **{field: CHANGES[kind][field]})
    found = updated(spec_of(changed))
    differences = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), baselines[kind], found)
    assert max(jax.tree.leaves(differences)) > 1e-3


def test_null_without_a_threshold_adafactor_clips_nothing():
    free, wide = (
        updated(spec_of(Adafactor(clipping_threshold=threshold))) for threshold in (None, 1e6)
    )
    assert_equal(free, wide, rtol=2e-7, atol=1e-7)


@pytest.mark.parametrize("kind", RULES)
def test_law_an_update_against_the_gradient_is_a_descent(kind):
    """One update from rest moves every parameter against its gradient, if only on the whole."""
    moved = updated(spec_of(RULES[kind]), GRADIENTS[:1])
    along = jax.tree.map(
        lambda new, old, gradient: float(jnp.sum((new - old) * gradient)),
        moved,
        PARAMETERS,
        GRADIENTS[0],
    )
    assert max(jax.tree.leaves(along)) < 0
