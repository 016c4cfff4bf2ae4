"""Tests for jtransformer.training.averages: a bias-corrected mean along training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jtransformer.training import average

STEPS = 7
STEP = jax.jit(average)


def means(decay, values):
    """Returns the mean behind each update, as a run has it."""
    mean, found = {"w": jnp.full(values[0].shape, 123.0)}, []
    for t, value in enumerate(values, start=1):
        mean = STEP(mean, {"w": jnp.asarray(value)}, jnp.asarray(t), jnp.float32(decay))
        found.append(np.asarray(mean["w"]))
    return found


@pytest.fixture
def values():
    return np.random.default_rng(0).normal(size=(STEPS, 3, 2)).astype(np.float32)


@pytest.mark.parametrize("decay", [0.1, 0.5, 0.99, 0.9999])
def test_value_weights_fall_with_age_and_sum_to_one(values, decay):
    for t, found in enumerate(means(decay, values), start=1):
        weights = decay ** np.arange(t - 1, -1, -1, dtype=np.float64)
        expected = np.tensordot(weights / weights.sum(), values[:t].astype(np.float64), axes=1)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_law_equal_parameters_are_their_own_mean_and_initial_values_have_no_part():
    same = np.ones((STEPS, 2), np.float32)
    for found in means(0.9, same):
        np.testing.assert_allclose(found, 1.0, rtol=1e-6)


def test_law_near_one_it_is_the_plain_mean(values):
    np.testing.assert_allclose(means(0.999999, values)[-1], values.mean(axis=0), atol=1e-5)


def test_null_a_decay_of_almost_nothing_is_the_newest(values):
    for found, value in zip(means(1e-30, values), values, strict=True):
        np.testing.assert_array_equal(found, value)
