"""Tests for jtransformer.functional.norms."""

from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jtransformer.functional.norms import layer_norm, rms_norm

B, T, D = 2, 3, 7
BOTH = pytest.mark.parametrize("norm", [layer_norm, rms_norm])


def reference(norm, x, scale, bias, epsilon):
    """One position after the other, in float64."""
    out = np.zeros(x.shape)
    for index in np.ndindex(x.shape[:-1]):
        row = np.asarray(x[index], np.float64)
        if norm is layer_norm:
            row = row - sum(row) / len(row)
        out[index] = row / (sum(row**2) / len(row) + epsilon) ** 0.5
    return out * np.asarray(scale, np.float64) + np.asarray(bias, np.float64)


@BOTH
@pytest.mark.parametrize("epsilon", [1e-5, 0.5])
def test_matches_loops(normal, norm, epsilon):
    x = 3 + 2 * normal((B, T, D))[0]
    scale, bias = normal((D,), (D,))
    affine = (scale, bias) if norm is layer_norm else (scale,)
    expected = reference(norm, x, scale, bias if norm is layer_norm else 0, epsilon)
    np.testing.assert_allclose(norm(x, *affine, epsilon=epsilon), expected, atol=1e-5)


@pytest.mark.usefixtures("float64")
@BOTH
def test_worked_values(golden, norm):
    cases = golden("norms")["cases"]
    assert len(cases) > 10
    for case in cases:
        out = norm(jnp.array(case["x"], float), epsilon=case["epsilon"])
        np.testing.assert_allclose(out, case[norm.__name__], atol=1e-9, err_msg=str(case))


@BOTH
def test_worked_values_in_float32(golden, norm):
    for case in golden("norms")["cases"]:
        out = norm(jnp.array(case["x"], jnp.float32), epsilon=case["epsilon"])
        np.testing.assert_allclose(out, case[norm.__name__], atol=2e-6, err_msg=str(case))


@pytest.mark.usefixtures("float64")
@BOTH
def test_worked_jacobian_and_gradients(golden, norm):
    figures = golden("norm_jacobians")
    x, scale, upstream = (jnp.array(figures[name]) for name in ("x", "gamma", "upstream"))
    epsilon, name = figures["epsilon"], norm.__name__
    for jacobian in (jax.jacfwd, jax.jacrev):
        found = jacobian(lambda x: norm(x, scale, epsilon=epsilon))(x)
        np.testing.assert_allclose(found, figures[f"{name}_jacobian"], atol=1e-12)
    affine = (scale, jnp.zeros(5)) if norm is layer_norm else (scale,)
    _, pull = jax.vjp(lambda *args: norm(*args, epsilon=epsilon), x, *affine)
    gradients = dict(zip(("vjp", "scale_grad", "bias_grad"), pull(upstream), strict=False))
    for what, gradient in gradients.items():
        np.testing.assert_allclose(gradient, figures[f"{name}_{what}"], atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_second_derivatives_of_the_own_rule(normal):
    x, direction = normal((D,), (D,), dtype=jnp.float64)

    def squared(x):
        return jnp.sum(layer_norm(x) ** 3)

    step = 1e-5
    ahead, behind = (jax.grad(squared)(x + sign * step * direction) for sign in (1, -1))
    along = jax.jvp(jax.grad(squared), (x,), (direction,))[1]
    np.testing.assert_allclose(along, (ahead - behind) / (2 * step), atol=1e-6)


def test_all_ones_is_in_the_kernel_of_the_layer_norm_jacobian(normal):
    (x,) = normal((D,))
    assert jnp.abs(jax.jvp(layer_norm, (x,), (jnp.ones(D),))[1]).max() < 1e-6
    assert jnp.abs(jax.jvp(rms_norm, (x,), (jnp.ones(D),))[1]).max() > 1e-2


def test_only_layer_norm_ignores_a_shift(normal):
    (x,) = normal((B, T, D))
    np.testing.assert_allclose(layer_norm(x + 8), layer_norm(x), atol=1e-5)
    assert not np.allclose(rms_norm(x + 8), rms_norm(x), atol=0.1)


@BOTH
def test_scale_of_the_input_is_ignored_but_for_its_sign(normal, norm):
    (x,) = normal((B, T, D))
    np.testing.assert_allclose(norm(100 * x), norm(x), atol=1e-4)
    np.testing.assert_array_equal(norm(-x), -norm(x))


def test_variance_of_activations_with_a_large_mean():
    x = jnp.array([40_000.0, 40_001.0, 40_002.0, 40_003.0])
    expected = [-1.341635, -0.447212, 0.447212, 1.341635]
    np.testing.assert_allclose(layer_norm(x, epsilon=1e-5), expected, atol=1e-6)
    noise = np.random.RandomState(0).randn(64)
    out = layer_norm(jnp.array(100 + 0.01 * noise, jnp.float32), epsilon=1e-6)
    np.testing.assert_allclose(jnp.std(out), 0.99558, atol=2e-4)
    np.testing.assert_allclose(layer_norm(jnp.array([10_001.0, 9_999.0])), [1.0, -1.0], atol=1e-5)


@pytest.mark.parametrize(
    ("epsilon", "first"), [(1e-12, -1.341640), (1e-6, -1.0), (1e-5, -0.447214)]
)
def test_live_epsilon_matters_for_small_activations(epsilon, first):
    x = jnp.array([0.0, 1e-3, 2e-3, 3e-3])
    np.testing.assert_allclose(layer_norm(x, epsilon=epsilon)[0], first, atol=1e-5)


def test_epsilon_is_inside_the_root():
    x = jnp.full(4, 1e-3)
    np.testing.assert_allclose(rms_norm(x, epsilon=1e-5), np.full(4, 0.301511), atol=1e-6)


def test_rms_norm_takes_off_no_mean():
    out = rms_norm(jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.ones(4), epsilon=1e-6)
    np.testing.assert_allclose(out, [0.365148, 0.730297, 1.095445, 1.460593], atol=1e-6)


def test_epsilon_cannot_be_taken_for_a_size():
    with pytest.raises(TypeError, match="positional"):
        unwrap(layer_norm)(jnp.ones(4), None, None, 12)
    with pytest.raises(TypeError, match="positional"):
        unwrap(rms_norm)(jnp.ones(4), None, 12)


@BOTH
def test_constant_and_zero_vectors(norm):
    for epsilon in (1e-12, 1e-5):
        np.testing.assert_array_equal(norm(jnp.zeros(4), epsilon=epsilon), jnp.zeros(4))
    assert jnp.isnan(norm(jnp.zeros(4), epsilon=0.0)).all()
    np.testing.assert_array_equal(layer_norm(jnp.full(4, 5.0)), jnp.zeros(4))
    gradient = jax.grad(lambda x: norm(x).sum())(jnp.zeros(4))
    assert jnp.isfinite(gradient).all()


@BOTH
def test_null_identity_parameters(normal, norm):
    (x,) = normal((B, T, D))
    np.testing.assert_array_equal(norm(x, jnp.ones(D)), norm(x))
    np.testing.assert_array_equal(layer_norm(x, jnp.ones(D), jnp.zeros(D)), layer_norm(x))


@pytest.mark.parametrize(
    ("norm", "change"),
    [
        (layer_norm, dict(scale=jnp.full(D, 2.0))),
        (layer_norm, dict(bias=jnp.full(D, 2.0))),
        (layer_norm, dict(epsilon=0.1)),
        (rms_norm, dict(scale=jnp.full(D, 2.0))),
        (rms_norm, dict(epsilon=0.1)),
    ],
)
def test_live_each_knob_changes_the_output(normal, norm, change):
    (x,) = normal((B, T, D))
    assert not np.allclose(norm(x), norm(x, **change))


@BOTH
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_statistics_are_float32(norm, dtype):
    # Squares of 400 overflow float16, and bfloat16 sums of 512 of them stop growing.
    x = jnp.where(jnp.arange(512) % 2 == 0, 400, -400).astype(dtype)
    out = norm(x, jnp.ones(512, dtype))
    assert out.dtype == dtype
    np.testing.assert_array_equal(jnp.abs(out), jnp.ones(512, dtype))


@BOTH
def test_wrong_arguments_are_named(norm):
    x = jnp.ones((B, T, D))
    with pytest.raises(ValueError, match="at least 0, got epsilon=-0.1"):
        norm(x, epsilon=-0.1)
    with pytest.raises(ValueError, match=r"got scale.shape=\(1,\) for x.shape=\(2, 3, 7\)"):
        unwrap(norm)(x, jnp.ones(1))
    with pytest.raises(ValueError, match="dtype=int32"):
        unwrap(norm)(jnp.ones(4, jnp.int32))
