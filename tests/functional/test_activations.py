"""Tests for jtransformer.functional.activations."""

import functools
import math
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer import functional as F


def normal_distribution(u):
    return 0.5 * math.erfc(-u / math.sqrt(2))


# Each as the paper writes it, for one float64 number.
REFERENCES = {
    "identity": lambda u: u,
    "relu": lambda u: u if u > 0 else 0.0,
    "relu_squared": lambda u: u**2 if u > 0 else 0.0,
    "gelu": lambda u: u * normal_distribution(u),
    "gelu_tanh": lambda u: u / 2 * (1 + math.tanh((2 / math.pi) ** 0.5 * (u + 0.044715 * u**3))),
    "sigmoid": lambda u: 1 / (1 + math.exp(-u)),
    "silu": lambda u: u / (1 + math.exp(-u)),
    "tanh": lambda u: (math.exp(2 * u) - 1) / (math.exp(2 * u) + 1),
}
ALL = pytest.mark.parametrize("name", list(REFERENCES))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu", "sigmoid"])
def test_worked_values(golden, name):
    figures = golden("activations")
    value = quickly(getattr(F, name))(jnp.array(figures["u"]))
    assert value.dtype == jnp.float64
    np.testing.assert_allclose(value, figures[name], atol=1e-14)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "sigmoid", "tanh"])
def test_worked_slopes(golden, name):
    figures = golden("activations")
    slope = quickly(jax.vmap(jax.grad(getattr(F, name))))(jnp.array(figures["u"]))
    np.testing.assert_allclose(slope, figures[f"{name}_grad"], atol=1e-14)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_slope_vanishes_left_of_zero(golden, name):
    where = golden("activations")[f"{name}_slope_zero"]
    assert abs(quickly(jax.grad(getattr(F, name)))(where)) < 1e-9


@pytest.mark.parametrize("name", ["relu", "relu_squared"])
def test_slope_at_zero_is_zero_in_both_modes(name):
    function, zero = getattr(F, name), jnp.zeros(())
    assert quickly(jax.grad(function))(zero) == 0
    assert quickly(functools.partial(jax.jvp, function))((zero,), (zero + 1,))[1] == 0


@pytest.mark.usefixtures("float64")
def test_live_the_two_gelu_forms_differ_as_published():
    u = jnp.linspace(-5, 5, 100_001)
    difference = np.abs(quickly(F.gelu)(u) - quickly(F.gelu_tanh)(u))
    np.testing.assert_allclose(np.max(difference), 4.73236e-4, rtol=1e-5)
    np.testing.assert_allclose(np.abs(u[np.argmax(difference)]), 2.699, atol=1e-3)
    np.testing.assert_allclose(F.gelu(jnp.array([1.0, 2.0])), [0.841344746, 1.954499736], atol=1e-9)
    tanh_form = F.gelu_tanh(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(tanh_form, [0.841191991, 1.954597694], atol=1e-9)


def test_silu_never_falls_below_its_minimum():
    assert F.silu(jnp.linspace(-50, 50, 10_001)).min() > -0.279


def test_gelu_keeps_its_digits_far_to_the_left():
    np.testing.assert_allclose(F.gelu(jnp.float32(-10.0)), REFERENCES["gelu"](-10.0), rtol=1e-4)


@ALL
def test_nan_is_not_hidden(name):
    assert np.isnan(quickly(getattr(F, name))(np.float32(np.nan)))


@ALL
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_is_finite_with_its_slope(name, dtype):
    u = jnp.array([-200.0, -41.0, 0.0, 41.0, 200.0], dtype)
    derivative = quickly(functools.partial(jax.jvp, getattr(F, name)))
    value, slope = derivative((u,), (np.ones_like(u),))
    assert value.dtype == dtype
    assert np.isfinite(value).all()
    assert np.isfinite(slope).all()


def test_integers_are_refused_where_precision_is_raised():
    with pytest.raises(ValueError, match="dtype=int32"):
        unwrap(F.gelu)(jnp.arange(3))
