"""Tests for jtransformer.functional.feed_forward."""

import functools
import math
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer import functional as F

B, T, D, FW = 2, 3, 4, 6

# What the name of a kind means, for one number, as the papers write it.
NONLINEARITIES = {
    "relu": lambda u: max(u, 0.0),
    "relu_squared": lambda u: max(u, 0.0) ** 2,
    "gelu": lambda u: 0.5 * u * math.erfc(-u / math.sqrt(2)),
    "gelu_tanh": lambda u: u / 2 * (1 + math.tanh((2 / math.pi) ** 0.5 * (u + 0.044715 * u**3))),
    "silu": lambda u: u / (1 + math.exp(-u)),
    "sigmoid": lambda u: 1 / (1 + math.exp(-u)),
    "identity": lambda u: u,
}
KINDS = {
    "relu": (False, "relu"),
    "relu_squared": (False, "relu_squared"),
    "gelu": (False, "gelu"),
    "gelu_tanh": (False, "gelu_tanh"),
    "silu": (False, "silu"),
    "swiglu": (True, "silu"),
    "geglu": (True, "gelu"),
    "geglu_tanh": (True, "gelu_tanh"),
    "reglu": (True, "relu"),
    "glu": (True, "sigmoid"),
    "bilinear": (True, "identity"),
}


def dense_reference(x, w_in, w_out, b_in, b_out, nonlinearity):
    """The sum over hidden units: what unit j writes when it reads x."""
    out = np.zeros((*x.shape[:-1], w_out.shape[1])) + b_out
    for index in np.ndindex(x.shape[:-1]):
        for j in range(w_in.shape[1]):
            out[index] += nonlinearity(x[index] @ w_in[:, j] + b_in[j]) * w_out[j]
    return out


def gated_reference(x, w_gate, w_up, w_down, b_gate, b_up, b_down, nonlinearity):
    out = np.zeros((*x.shape[:-1], w_down.shape[1])) + b_down
    for index in np.ndindex(x.shape[:-1]):
        for j in range(w_up.shape[1]):
            gate = nonlinearity(x[index] @ w_gate[:, j] + b_gate[j])
            out[index] += gate * (x[index] @ w_up[:, j] + b_up[j]) * w_down[j]
    return out


def test_the_table_of_kinds_is_complete_and_cannot_be_changed():
    assert dict(KINDS) == {
        name: (kind.gated, kind.activation.__name__) for name, kind in F.FFN_KINDS.items()
    }
    with pytest.raises(TypeError):
        F.FFN_KINDS["relu"] = F.FFN_KINDS["gelu"]


def test_defaults_are_gelu_and_silu(normal):
    x, w, w_down = normal((B, T, D), (D, FW), (FW, D))
    np.testing.assert_array_equal(
        F.feed_forward(x, w, w_down), F.feed_forward(x, w, w_down, activation=F.gelu)
    )
    np.testing.assert_array_equal(
        F.gated_feed_forward(x, w, w, w_down),
        F.gated_feed_forward(x, w, w, w_down, activation=F.silu),
    )


def test_without_a_nonlinearity_it_is_one_affine_map(normal):
    x, w_in, w_out, b_in, b_out = normal((B, T, D), (D, FW), (FW, D), (FW,), (D,))
    found = F.feed_forward(x, w_in, w_out, b_in, b_out, activation=F.identity)
    collapsed = F.linear(x, w_in @ w_out, b_in @ w_out + b_out)
    np.testing.assert_allclose(found, collapsed, atol=1e-5)


def test_jacobian_inside_a_relu_region(normal):
    x, w_in, w_out = normal((D,), (D, FW), (FW, D))
    jacobian = quickly(jax.jacrev(lambda x: F.feed_forward(x, w_in, w_out, activation=F.relu)))(x)
    active = np.asarray(x @ w_in > 0, float)
    expected = (np.asarray(w_in) * active @ np.asarray(w_out)).T
    np.testing.assert_allclose(jacobian, expected, atol=1e-5)


def test_gate_and_other_factor_are_not_exchangeable(normal):
    x, a, b, w_down = normal((B, T, D), (D, FW), (D, FW), (FW, D))
    assert not np.allclose(
        F.gated_feed_forward(x, a, b, w_down), F.gated_feed_forward(x, b, a, w_down)
    )
    bilinear = functools.partial(F.gated_feed_forward, activation=F.identity)
    np.testing.assert_allclose(bilinear(x, a, b, w_down), bilinear(x, b, a, w_down), atol=1e-5)


def test_positions_do_not_meet(normal):
    x, w_in, w_out = normal((B, T, D), (D, FW), (FW, D))
    out = F.feed_forward(x, w_in, w_out)
    moved = F.feed_forward(x.at[0, 1].add(1), w_in, w_out)
    np.testing.assert_array_equal(moved != out, jnp.zeros_like(out, bool).at[0, 1].set(True))


def test_null_and_live_biases(normal):
    x, w, w_down, b_in, b_out = normal((B, T, D), (D, FW), (FW, D), (FW,), (D,))
    dense, gated = F.feed_forward(x, w, w_down), F.gated_feed_forward(x, w, w, w_down)
    zero_in, zero_out = jnp.zeros(FW), jnp.zeros(D)
    np.testing.assert_array_equal(F.feed_forward(x, w, w_down, zero_in, zero_out), dense)
    for change in (dict(b_in=b_in), dict(b_out=b_out), dict(activation=F.relu)):
        assert not np.allclose(F.feed_forward(x, w, w_down, **change), dense)
    zeros = dict(b_gate=zero_in, b_up=zero_in, b_down=zero_out)
    np.testing.assert_array_equal(F.gated_feed_forward(x, w, w, w_down, **zeros), gated)
    changes = dict(b_gate=b_in), dict(b_up=b_in), dict(b_down=b_out), dict(activation=F.relu)
    for change in changes:
        assert not np.allclose(F.gated_feed_forward(x, w, w, w_down, **change), gated)


def test_a_kernel_that_does_not_fit_is_named():
    x = jnp.ones((B, T, D))
    with pytest.raises(ValueError, match=r"kernel.shape=\(5, 6\)"):
        unwrap(F.linear)(x, jnp.ones((5, FW)))
