"""Tests for jtransformer.functional.residual."""

import functools
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jtransformer import functional as F

B, T, D = 2, 3, 5
FULL = dict(
    norm_in=functools.partial(F.layer_norm, epsilon=0.1),
    norm_branch=functools.partial(F.rms_norm, epsilon=0.2),
    norm_out=functools.partial(F.layer_norm, epsilon=0.3),
    branch_scale=0.7,
    stream_scale=1.3,
)


def reference_norm(x, epsilon, centre):
    x = x - x.mean(-1, keepdims=True) if centre else x
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)


def test_the_whole_formula(normal):
    (x,) = normal((B, T, D))
    x64 = np.asarray(x, np.float64)
    branch = reference_norm(np.sin(reference_norm(x64, 0.1, True)), 0.2, False)
    expected = reference_norm(1.3 * x64 + 0.7 * branch, 0.3, True)
    np.testing.assert_allclose(F.residual(x, jnp.sin, **FULL), expected, atol=1e-5)


@pytest.mark.parametrize("name", FULL)
def test_live_each_part_changes_the_output(normal, name):
    (x,) = normal((B, T, D))
    rest = {other: value for other, value in FULL.items() if other != name}
    assert not np.allclose(
        F.residual(x, jnp.sin, **rest), F.residual(x, jnp.sin, **FULL), atol=1e-3
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_null_neutral_settings_are_the_plain_sum_bit_for_bit(normal, dtype):
    (x,) = normal((B, T, D), dtype=dtype)
    plain = x + jnp.sin(x)
    neutral = dict(norm_in=F.identity, norm_branch=F.identity, norm_out=F.identity)
    scales = [(1.0, 1.0), (jnp.float32(1), jnp.ones(D)), (jnp.ones(D), jnp.float32(1))]
    for branch_scale, stream_scale in scales:
        found = F.residual(
            x, jnp.sin, **neutral, branch_scale=branch_scale, stream_scale=stream_scale
        )
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, plain)
    np.testing.assert_array_equal(F.residual(x, jnp.sin), plain)


def test_scales_per_channel_and_from_zero(normal):
    (x,) = normal((B, T, D))
    per_channel = jnp.arange(D, dtype=jnp.float32)
    found = F.residual(x, jnp.sin, branch_scale=per_channel)
    for d in range(D):
        np.testing.assert_allclose(found[..., d], x[..., d] + d * jnp.sin(x[..., d]), atol=1e-5)
    np.testing.assert_array_equal(F.residual(x, jnp.sin, branch_scale=jnp.zeros(())), x)
    np.testing.assert_array_equal(F.residual(x, jnp.sin, stream_scale=0.0), jnp.sin(x))
    slope = jax.grad(lambda scale: F.residual(x, jnp.sin, branch_scale=scale).sum())(jnp.zeros(()))
    np.testing.assert_allclose(slope, jnp.sin(x).sum(), rtol=1e-5)


@pytest.mark.usefixtures("float64")
def test_a_residual_path_is_no_lower_bound_on_the_gradient(golden):
    # Ten to eighty layers of F = (a - 1) x multiply the gradient by a each; F = -x makes it 0.
    for factor, chain in golden("residual_chains").items():
        for depth, expected in chain.items():

            def stack(x, slope=float(factor) - 1, depth=int(depth)):
                for _ in range(depth):
                    x = F.residual(x, lambda h: slope * h)
                return x[0]

            slope = jax.grad(stack)(jnp.ones(1))
            np.testing.assert_allclose(slope, [expected], rtol=1e-12)
    assert jax.grad(lambda x: F.residual(x, lambda h: -h)[0])(jnp.ones(1)) == 0


@pytest.mark.usefixtures("float64")
def test_jacobians_of_pre_and_post(normal):
    (x,) = normal((D,), dtype=jnp.float64)
    (w,) = normal((D, D), dtype=jnp.float64)
    eye = np.eye(D)

    def sublayer(h):
        return F.linear(h, w)

    norm = functools.partial(F.layer_norm, epsilon=1e-5)
    jacobian_of_norm = jax.jacrev(norm)
    pre = jax.jacrev(lambda x: F.residual(x, sublayer, norm_in=norm))(x)
    np.testing.assert_allclose(pre, eye + w.T @ jacobian_of_norm(x), atol=1e-12)
    post = jax.jacrev(lambda x: F.residual(x, sublayer, norm_out=norm))(x)
    np.testing.assert_allclose(post, jacobian_of_norm(x + sublayer(x)) @ (eye + w.T), atol=1e-12)


def test_jacobians_multiply_last_layer_leftmost(normal):
    x, *kernels = normal(*[(D, D)] * 4)
    layers = [np.eye(D) + np.asarray(w, np.float64).T for w in kernels]

    def stack(x):
        for w in kernels:
            x = F.residual(x, lambda h, w=w: F.linear(h, w))
        return x

    expected = layers[2] @ layers[1] @ layers[0]
    np.testing.assert_allclose(jax.jacrev(stack)(x[0]), expected, atol=1e-4)
    assert not np.allclose(layers[0] @ layers[1] @ layers[2], expected, atol=1e-2)


def test_a_branch_of_another_shape_is_named():
    with pytest.raises(ValueError, match=r"branch.shape=\(2, 3, 1\) for x.shape=\(2, 3, 5\)"):
        unwrap(F.residual)(jnp.ones((B, T, D)), lambda h: h[..., :1])
