"""Tests for jtransformer.functional.analysis."""

import functools
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer import functional as F

T, D, H = 3, 5, 4
BOTH = pytest.mark.parametrize(
    ("norm", "jacobian"),
    [(F.layer_norm, F.layer_norm_jacobian), (F.rms_norm, F.rms_norm_jacobian)],
    ids=["layer_norm", "rms_norm"],
)


def times(matrix):
    """The linear map whose Jacobian is the matrix."""
    matrix = jnp.asarray(matrix, jnp.float32)
    return lambda x: jnp.dot(matrix, x, precision="highest")


def with_singular_values(*values, rows=6, columns=5):
    generator = np.random.default_rng(1)
    left, right = (np.linalg.qr(generator.normal(size=(n, n)))[0] for n in (rows, columns))
    n = len(values)
    return left[:, :n] @ np.diag(values) @ right[:, :n].T


@pytest.mark.parametrize("shape", [(6, 5), (3, 5)])
def test_spectral_norm_is_the_largest_singular_value(key, shape):
    matrix = np.random.default_rng(0).normal(size=shape)
    _, s, directions = np.linalg.svd(matrix)
    found = quickly(lambda x: F.spectral_norm(times(matrix), x, key=key))(jnp.zeros(5))
    np.testing.assert_allclose(found.value, s[0], rtol=1e-6)
    assert found.residual < 1e-5
    np.testing.assert_allclose(abs(found.vector @ directions[0]), 1, rtol=1e-5)


def test_spectral_norm_of_a_sublayer_at_a_point(normal, key):
    x, w_in, w_out = normal((T, D), (D, 7), (7, D))

    def sublayer(x):
        return F.feed_forward(F.rms_norm(x), w_in, w_out, activation=F.relu)

    jacobian = np.asarray(quickly(jax.jacfwd(sublayer))(x)).reshape(T * D, T * D)
    found = quickly(lambda x: F.spectral_norm(sublayer, x, key=key, iterations=300))(x)
    np.testing.assert_allclose(found.value, np.linalg.norm(jacobian, 2), rtol=1e-5)
    assert found.vector.shape == x.shape
    stretched = F.jacobian_vector_product(sublayer, x, found.vector)
    np.testing.assert_allclose(jnp.linalg.norm(found.vector), 1, rtol=1e-6)
    np.testing.assert_allclose(jnp.linalg.norm(stretched), found.value, rtol=1e-6)


@pytest.mark.parametrize("iterations", [3, 50])
def test_the_residual_is_an_honest_measure(key, iterations):
    s = (1.0, 0.9, 0.3)
    found = F.spectral_norm(
        times(with_singular_values(*s)), jnp.zeros(5), key=key, iterations=iterations
    )
    assert found.value <= 1 + 1e-6
    distance = min(abs(one**2 / found.value**2 - 1) for one in s)
    assert distance <= found.residual + 1e-6
    # |J^T J v - value^2 v| / value^2, with the product formed in NumPy.
    matrix, v = with_singular_values(*s), np.asarray(found.vector, np.float64)
    square = float(found.value) ** 2
    expected = np.linalg.norm(matrix.T @ matrix @ v - square * v) / square
    np.testing.assert_allclose(found.residual, expected, atol=2e-6)
    if iterations == 3:
        assert found.residual > 0.05  # and so it tells that this is not the end
    if iterations == 50:
        assert found.residual < 1e-3
        np.testing.assert_allclose(found.value, 1, rtol=1e-6)


def test_a_zero_jacobian_has_norm_zero_and_no_nan(key):
    found = quickly(functools.partial(F.spectral_norm, lambda x: 0 * x + 3, key=key))(jnp.ones(5))
    assert found.value == found.residual == 0
    np.testing.assert_allclose(jnp.linalg.norm(found.vector), 1, rtol=1e-6)
    slope = quickly(
        jax.grad(lambda a: F.spectral_norm(lambda x: a * x, jnp.ones(5), key=key).value)
    )
    assert jnp.isfinite(slope(0.0))


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_neither_tiny_nor_huge_jacobians_leave_the_range(key, size):
    matrix = size * with_singular_values(1.0, 0.5)
    found = F.spectral_norm(times(matrix), jnp.zeros(5), key=key)
    np.testing.assert_allclose(found.value, size, rtol=1e-5)
    assert found.residual < 1e-5


def test_spectral_norm_maps_over_a_batch_and_has_a_gradient(normal, key):
    x, w = normal((3, D), (D, D))

    def size(w, x):
        return F.spectral_norm(lambda h: F.linear(jnp.tanh(h), w), x, key=key, iterations=200).value

    slopes = 1 - np.tanh(np.asarray(x)) ** 2
    expected = [np.linalg.norm(np.diag(row) @ np.asarray(w), 2) for row in slopes]
    found = quickly(jax.vmap(size, (None, 0)))(w, x)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # The slope of the largest singular value in its matrix is u v^T.
    left, _, right = np.linalg.svd(np.asarray(w))
    slope = quickly(jax.grad(size))(w, jnp.zeros(D))
    np.testing.assert_allclose(slope, np.outer(left[:, 0], right[0]), atol=1e-4)


def test_low_precision_gives_a_float32_value(normal, key):
    (w,) = normal((D, D))
    w = w.astype(jnp.bfloat16)
    found = F.spectral_norm(lambda x: F.linear(x, w), jnp.zeros(D, jnp.bfloat16), key=key)
    assert (found.value.dtype, found.vector.dtype) == (jnp.float32, jnp.bfloat16)
    np.testing.assert_allclose(found.value, np.linalg.norm(np.asarray(w, np.float64), 2), rtol=0.01)


@pytest.mark.usefixtures("float64")
@BOTH
def test_worked_jacobians(golden, norm, jacobian):
    figures = golden("norm_jacobians")
    x, scale = (jnp.array(figures[name]) for name in ("x", "gamma"))
    found = jacobian(x, scale, epsilon=figures["epsilon"])
    np.testing.assert_allclose(found, figures[f"{norm.__name__}_jacobian"], atol=1e-12)
    pulled = jnp.array(figures["upstream"]) @ found
    np.testing.assert_allclose(pulled, figures[f"{norm.__name__}_vjp"], atol=1e-12)


@BOTH
def test_directions_that_a_norm_does_not_see(normal, norm, jacobian):
    (x,) = normal((D,))
    np.testing.assert_allclose(jacobian(x, epsilon=0.0) @ x, np.zeros(D), atol=1e-5)
    ones_size = jnp.abs(jacobian(x) @ jnp.ones(D)).max()
    assert (ones_size < 1e-6) == (norm is F.layer_norm)


@BOTH
def test_jacobians_of_long_vectors_do_not_overflow_and_keep_half_precision(normal, norm, jacobian):
    (x,) = normal((D,))
    np.testing.assert_allclose(1e15 * jacobian(1e15 * x), jacobian(x, epsilon=0.0), atol=1e-5)
    half = jacobian(x.astype(jnp.bfloat16), jnp.ones(D, jnp.bfloat16))
    assert half.dtype == jnp.bfloat16
    np.testing.assert_allclose(half, jacobian(x), atol=0.03)


def test_a_product_of_spectral_norms_only_bounds_that_of_the_chain(normal, key):
    x, *kernels = normal((D,), *[(D, D)] * 3)

    def stack(kernels, x):
        for w in kernels:
            x = F.residual(x, lambda h, w=w: F.linear(h, w), norm_in=F.layer_norm)
        return x

    @quickly
    def size(kernels, x):
        return F.spectral_norm(functools.partial(stack, kernels), x, key=key, iterations=200).value

    bound = 1.0
    for depth, w in enumerate(kernels):
        bound *= size([w], stack(kernels[:depth], x))
    chain = size(kernels, x)
    assert chain < 0.9 * bound
    assert chain > 0


def test_a_norm_shrinks_what_lies_beside_its_input_by_its_length(normal, key):
    (x,) = normal((D,))
    found = F.spectral_norm(functools.partial(F.rms_norm, epsilon=0.0), x, key=key)
    np.testing.assert_allclose(found.value, D**0.5 / jnp.linalg.norm(x), rtol=1e-5)


def test_wrong_arguments_are_named(key):
    x = jnp.ones((T, D))
    with pytest.raises(ValueError, match=r"tangent .* x, got float32\(3, 4\) for float32\(3, 5\)"):
        unwrap(F.jacobian_vector_product)(jnp.sin, x, jnp.ones((T, H)))
    with pytest.raises(ValueError, match=r"tangent .* x, got bfloat16\(3, 5\) for float32"):
        F.jacobian_vector_product(jnp.sin, x, x.astype(jnp.bfloat16))
    with pytest.raises(ValueError, match=r"cotangent .* function\(x\), got float32\(5,\) for"):
        F.vector_jacobian_product(jnp.sin, x, jnp.ones(D))
    with pytest.raises(ValueError, match="at least 1, got iterations=0"):
        F.spectral_norm(jnp.sin, x, key=key, iterations=0)
    for jacobian in (F.layer_norm_jacobian, F.rms_norm_jacobian):
        with pytest.raises(ValueError, match="at least 0, got epsilon=-1.0"):
            jacobian(x, epsilon=-1.0)
        with pytest.raises(ValueError, match=r"got scale.shape=\(1,\) for x.shape=\(3, 5\)"):
            unwrap(jacobian)(x, jnp.ones(1))
