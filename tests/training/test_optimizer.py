"""Tests for jtransformer.training.optimizer: a known step, and who is decayed."""

import descent
import jax
import jax.numpy as jnp
import numpy as np
import optax

from jtransformer.spec import OptimizerSpec
from jtransformer.training import decayed


def test_decay_is_decoupled_and_spares_norms_and_biases():
    # Known figures: parameter 1, gradient 1e-3, rate 0.1, decay 0.1, one step.
    names = {"kernel": (2, 2), "table": (2, 2), "bias": (2,), "scale": (12, 8)}
    parameters = {name: jnp.ones(shape) for name, shape in names.items()}
    gradient = jax.tree.map(lambda leaf: 1e-3 * jnp.ones_like(leaf), parameters)
    optimizer = OptimizerSpec(weight_decay=0.1, gradient_clip=None)
    after = descent.updated(optimizer, parameters, [gradient])
    for name in ("kernel", "table"):
        np.testing.assert_allclose(after[name] - 1, -0.109998, atol=2e-6)
    for name in ("bias", "scale"):
        np.testing.assert_allclose(after[name] - 1, -0.099999, atol=2e-6)
    assert decayed(parameters) == {"kernel": True, "table": True, "bias": False, "scale": False}


def test_null_no_decay_and_no_clip_is_adam_to_the_bit():
    parameters = {"kernel": jnp.array([1.0, -2.0, 3.0])}
    gradients = [{"kernel": jnp.array([10.0, 20.0, -5.0])}]
    optimizer = OptimizerSpec(weight_decay=0.0, gradient_clip=None)
    ours = descent.updated(optimizer, parameters, gradients)
    theirs = descent.updated_by(optax.adam(0.1, 0.9, 0.95, 1e-8), parameters, gradients)
    np.testing.assert_array_equal(ours["kernel"], theirs["kernel"])
