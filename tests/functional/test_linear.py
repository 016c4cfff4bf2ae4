"""Tests for jtransformer.functional.linear."""

import functools
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer import functional as F

linear = at_once(F.linear)

B, T, D, N, H = 2, 3, 12, 4, 5


def test_packed_projection_equals_separate_ones(normal):
    (x,) = normal((B, T, D))
    (kernels,) = normal((3, D, N, H))
    packed = linear(x, jnp.moveaxis(kernels, 0, 1))
    for index, kernel in enumerate(kernels):
        np.testing.assert_allclose(packed[:, :, index], linear(x, kernel), atol=1e-5)


def test_bias_of_several_axes_and_null_bias(normal):
    (x,) = normal((B, T, D))
    (kernel,) = normal((D, N, H))
    (bias,) = normal((N, H))
    without = linear(x, kernel)
    assert not np.allclose(linear(x, kernel, bias), without)
    np.testing.assert_array_equal(linear(x, kernel, jnp.zeros((N, H))), without)
    np.testing.assert_allclose(linear(0 * x, kernel, bias)[1, 2], bias)


def test_on_a_cpu_the_gradient_of_a_kernel_that_narrows_is_formed_as_its_transpose(normal):
    (x,) = normal((B, T, D))
    for width in (D - 1, D):
        (kernel,) = normal((D, width))

        def both(rows, x, kernel):
            def loss(x, kernel):
                return jnp.sum(jnp.sin(linear(x, kernel, rows=rows)))

            one = jnp.ones_like(kernel)
            slopes = jax.grad(loss, argnums=(0, 1))(x, kernel)
            return (
                loss(x, kernel),
                slopes,
                jax.jvp(lambda kernel: loss(x, kernel), (kernel,), (one,)),
            )

        programs = [functools.partial(both, rows) for rows in ("merged_cpu", "merged")]
        for pair in zip(*(jax.tree.leaves(quickly(f)(x, kernel)) for f in programs), strict=True):
            np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-5)
        barriers = ["optimization_barrier" in str(jax.make_jaxpr(f)(x, kernel)) for f in programs]
        assert barriers == [width < D, False]


def test_no_leading_axes(normal):
    (x,) = normal((B, D))
    (kernel,) = normal((D, H))
    np.testing.assert_allclose(linear(x[1], kernel), linear(x, kernel)[1], atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "axes", "message"),
    [
        (((B, T, D), (D + 1, H)), 1, r"x.shape=\(2, 3, 12\), kernel.shape=\(13, 5\), axes=1"),
        (((B, D), (D, H)), 2, "axes=2"),
        (((B, D), (D, H)), 0, "axes=0"),
        (((B, D), (D, H), (1,)), 1, r"\(5,\) of the kernel, got bias.shape=\(1,\)"),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes, axes, message):
    with pytest.raises(ValueError, match=message):
        unwrap(linear)(*(jnp.ones(shape) for shape in shapes), axes=axes)
