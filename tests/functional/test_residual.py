"""Tests for jtransformer.functional.residual."""

import functools
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer import functional as F

residual = at_once(F.residual)

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


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_null_neutral_settings_are_the_plain_sum_bit_for_bit(normal, dtype):
    (x,) = normal((B, T, D), dtype=dtype)
    plain = x + jnp.sin(x)
    neutral = dict(norm_in=F.identity, norm_branch=F.identity, norm_out=F.identity)
    scales = [(1.0, 1.0), (jnp.float32(1), jnp.ones(D)), (jnp.ones(D), jnp.float32(1))]
    for branch_scale, stream_scale in scales:
        found = residual(
            x, jnp.sin, **neutral, branch_scale=branch_scale, stream_scale=stream_scale
        )
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, plain)
    np.testing.assert_array_equal(residual(x, jnp.sin), plain)


def test_scales_per_channel_and_from_zero(normal):
    (x,) = normal((B, T, D))
    per_channel = jnp.arange(D, dtype=jnp.float32)
    found = residual(x, jnp.sin, branch_scale=per_channel)
    for d in range(D):
        np.testing.assert_allclose(found[..., d], x[..., d] + d * jnp.sin(x[..., d]), atol=1e-5)
    np.testing.assert_array_equal(residual(x, jnp.sin, branch_scale=jnp.zeros(())), x)
    np.testing.assert_array_equal(residual(x, jnp.sin, stream_scale=0.0), jnp.sin(x))
    slope = quickly(jax.grad(lambda scale: residual(x, jnp.sin, branch_scale=scale).sum()))(
        jnp.zeros(())
    )
    np.testing.assert_allclose(slope, jnp.sin(x).sum(), rtol=1e-5)


@pytest.mark.usefixtures("float64")
def test_a_residual_path_is_no_lower_bound_on_the_gradient(golden):
    # Ten to eighty layers of F = (a - 1) x multiply the gradient by a each; F = -x makes it 0.
    for factor, chain in golden("residual_chains").items():
        for depth, expected in chain.items():

            def stack(x, slope=float(factor) - 1, depth=int(depth)):
                for _ in range(depth):
                    x = residual(x, lambda h: slope * h)
                return x[0]

            slope = quickly(jax.grad(stack))(jnp.ones(1))
            np.testing.assert_allclose(slope, [expected], rtol=1e-12)


def test_a_branch_can_cancel_the_stream_exactly(normal):
    (x,) = normal((B, T, D))
    np.testing.assert_array_equal(residual(x, jnp.negative), jnp.zeros((B, T, D)))
    slope = quickly(jax.grad(lambda x: residual(x, jnp.negative).sum()))(x)
    np.testing.assert_array_equal(slope, jnp.zeros((B, T, D)))


@pytest.mark.usefixtures("float64")
def test_jacobians_of_pre_and_post(normal):
    (x,) = normal((D,), dtype=jnp.float64)
    (w,) = normal((D, D), dtype=jnp.float64)
    eye = np.eye(D)

    def sublayer(h):
        return F.linear(h, w)

    norm = functools.partial(F.layer_norm, epsilon=1e-5)
    jacobian_of_norm = functools.partial(F.layer_norm_jacobian, epsilon=1e-5)
    pre = quickly(jax.jacrev(lambda x: residual(x, sublayer, norm_in=norm)))(x)
    np.testing.assert_allclose(pre, eye + w.T @ jacobian_of_norm(x), atol=1e-12)
    post = quickly(jax.jacrev(lambda x: residual(x, sublayer, norm_out=norm)))(x)
    np.testing.assert_allclose(post, jacobian_of_norm(x + sublayer(x)) @ (eye + w.T), atol=1e-12)


def test_jacobians_multiply_last_layer_leftmost(normal):
    x, *kernels = normal(*[(D, D)] * 4)
    layers = [np.eye(D) + np.asarray(w, np.float64).T for w in kernels]

    def stack(x):
        for w in kernels:
            x = residual(x, lambda h, w=w: F.linear(h, w))
        return x

    expected = layers[2] @ layers[1] @ layers[0]
    np.testing.assert_allclose(quickly(jax.jacrev(stack))(x[0]), expected, atol=1e-4)
    assert not np.allclose(layers[0] @ layers[1] @ layers[2], expected, atol=1e-2)
    j1, j2, j3 = (layer - np.eye(D) for layer in layers)
    expanded = np.eye(D) + j1 + j2 + j3 + j2 @ j1 + j3 @ j1 + j3 @ j2 + j3 @ j2 @ j1
    np.testing.assert_allclose(expanded, expected, atol=1e-12)


def test_a_branch_of_another_shape_is_named():
    with pytest.raises(ValueError, match=r"branch.shape=\(2, 3, 1\) for x.shape=\(2, 3, 5\)"):
        unwrap(F.residual)(jnp.ones((B, T, D)), lambda h: h[..., :1])


def test_pre_and_post_with_the_same_weights_are_two_functions(normal):
    x, w = normal((B, T, D), (D, D))
    pre, post = (
        residual(x, lambda h: F.linear(h, w), **{slot: F.layer_norm})
        for slot in ("norm_in", "norm_out")
    )
    assert jnp.abs(pre - post).max() > 0.5
    # Nor does a norm at the end, which a stack of pre sublayers has, make them one.
    assert jnp.abs(F.layer_norm(pre) - post).max() > 0.5


def test_an_uncorrelated_branch_adds_its_variance(normal):
    x, other = normal((500, 200), (500, 200))
    assert abs(np.corrcoef(np.ravel(x), np.ravel(other))[0, 1]) < 0.01
    found = residual(x, lambda h: 2 * other, stream_scale=3.0)
    np.testing.assert_allclose(jnp.var(found), 9 + 4, rtol=0.01)
    # A branch that is the stream itself adds its amplitude.
    np.testing.assert_allclose(jnp.var(residual(x, lambda h: 2 * h)), 9, rtol=0.01)


def test_rezero_starts_as_the_identity_and_moves_by_its_scale_alone(normal):
    x, w = normal((B, T, D), (D, D))

    def loss(scale, w):
        out = residual(x, lambda h: F.linear(h, w), norm_in=F.rms_norm, branch_scale=scale)
        return (out**2).sum(), out

    (slope, by_w), out = quickly(jax.grad(loss, argnums=(0, 1), has_aux=True))(jnp.zeros(()), w)
    np.testing.assert_array_equal(out, x)
    np.testing.assert_array_equal(by_w, jnp.zeros((D, D)))
    np.testing.assert_allclose(slope, (2 * x * F.linear(F.rms_norm(x), w)).sum(), rtol=1e-4)


@pytest.mark.parametrize("scale", [0.5, np.float64(0.5), 2.0])
def test_a_multiplier_keeps_the_dtype_of_the_stream(normal, scale):
    (x,) = normal((B, T, D), dtype=jnp.bfloat16)
    found = residual(x, jnp.tanh, branch_scale=scale, stream_scale=scale)
    assert found.dtype == jnp.bfloat16
    factor = jnp.bfloat16(scale)
    np.testing.assert_array_equal(found, factor * x + factor * jnp.tanh(x))


def test_dropout_acts_between_the_norm_of_the_branch_and_its_scale(normal, key):
    (x,) = normal((40, T, D))
    options = dict(norm_branch=F.layer_norm, branch_scale=0.5, dropout_rate=0.25)
    branch = np.asarray(residual(x, jnp.sin, stream_scale=0.0, key=key, **options))
    kept = branch != 0
    assert abs(kept.mean() - 0.75) < 0.04
    expected = 0.5 / 0.75 * np.asarray(F.layer_norm(jnp.sin(x)))
    np.testing.assert_allclose(branch[kept], expected[kept], rtol=1e-5)


def test_live_a_key_and_null_without_key_or_rate(normal, key):
    (x,) = normal((B, T, D))
    plain = residual(x, jnp.sin)
    np.testing.assert_array_equal(residual(x, jnp.sin, dropout_rate=0.5), plain)
    np.testing.assert_array_equal(residual(x, jnp.sin, dropout_rate=0.0, key=key), plain)
    one = residual(x, jnp.sin, dropout_rate=0.5, key=key)
    assert not np.allclose(one, plain)
    other = residual(x, jnp.sin, dropout_rate=0.5, key=jax.random.fold_in(key, 1))
    assert not np.allclose(one, other)
    with pytest.raises(ValueError, match=r"lie in \[0, 1\), got rate=1.0"):
        residual(x, jnp.sin, dropout_rate=1.0, key=key)


def test_parallel_sublayers_read_the_same_stream(normal):
    (x,) = normal((B, T, D))
    shared = F.parallel_residual(x, (jnp.sin, jnp.cos), norms_in=F.layer_norm)
    h = F.layer_norm(x)
    np.testing.assert_allclose(shared, x + jnp.sin(h) + jnp.cos(h), atol=1e-6)
    own = F.parallel_residual(x, (jnp.sin, jnp.cos), norms_in=(F.layer_norm, F.rms_norm))
    np.testing.assert_allclose(own, x + jnp.sin(h) + jnp.cos(F.rms_norm(x)), atol=1e-6)
    assert not np.allclose(own, shared, atol=1e-2)
    one_by_one = residual(x, jnp.sin, norm_in=F.layer_norm)
    one_by_one = residual(one_by_one, jnp.cos, norm_in=F.layer_norm)
    assert not np.allclose(one_by_one, shared, atol=1e-2)


def test_null_one_parallel_sublayer_is_residual_bit_for_bit(normal):
    (x,) = normal((B, T, D))
    several = {"norm_in": "norms_in", "norm_branch": "norms_branch"}
    renamed = {several.get(name, name): value for name, value in FULL.items()}
    each = dict(norms_in=[FULL["norm_in"]], norms_branch=[FULL["norm_branch"]])
    for options in (renamed, renamed | each):
        found = quickly(functools.partial(F.parallel_residual, sublayers=[jnp.sin], **options))(x)
        np.testing.assert_array_equal(found, residual(x, jnp.sin, **FULL))


def test_a_shared_norm_is_computed_once(normal):
    (x,) = normal((B, T, D))
    calls = []

    def norm(h):
        calls.append(h)
        return F.rms_norm(h)

    F.parallel_residual(x, (jnp.sin, jnp.cos), norms_in=norm)
    assert len(calls) == 1
    F.parallel_residual(x, (jnp.sin, jnp.cos), norms_in=(norm, None))
    assert len(calls) == 2


def test_jacobians_of_parallel_sublayers_add_and_have_no_product(normal):
    x, v, w = normal((D,), (D, D), (D, D))
    both = [lambda h, kernel=kernel: F.linear(h, kernel) for kernel in (v, w)]
    found = quickly(jax.jacrev(lambda x: F.parallel_residual(x, both)))(x)
    np.testing.assert_allclose(found, np.eye(D) + np.asarray(v + w).T, atol=1e-5)


def test_each_parallel_branch_drops_entries_of_its_own(normal, key):
    (x,) = normal((40, T, D))
    one = jnp.ones((40, T, D))
    found = F.parallel_residual(
        x, [lambda h: one, lambda h: one], stream_scale=0.0, dropout_rate=0.5, key=key
    )
    # With one key for both no entry would be kept by exactly one of them.
    np.testing.assert_allclose(
        [(found == kept).mean() for kept in (0, 2, 4)], [0.25, 0.5, 0.25], atol=0.06
    )


def test_wrong_parallel_sublayers_are_named():
    x = jnp.ones((B, T, D))
    with pytest.raises(ValueError, match="at least one sublayer, got none"):
        F.parallel_residual(x, [])
    with pytest.raises(ValueError, match="norms_in must hold .* got 1 norms for 2 sublayers"):
        F.parallel_residual(x, [jnp.sin, jnp.cos], norms_in=[F.rms_norm])
    with pytest.raises(ValueError, match="norms_branch must hold .* got 3 norms for 2 sublayers"):
        F.parallel_residual(x, [jnp.sin, jnp.cos], norms_branch=[F.rms_norm] * 3)
    with pytest.raises(ValueError, match=r"branch.shape=\(2, 3, 1\) for x.shape=\(2, 3, 5\)"):
        unwrap(F.parallel_residual)(x, [jnp.sin, lambda h: h[..., :1]])
