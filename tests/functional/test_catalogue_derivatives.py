"""Every variant: derivatives in both modes against finite differences in double precision."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogue import CATALOGUE
from catalogue.row import draw, on_device

QUICKLY = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=CATALOGUE)
@pytest.mark.usefixtures("float64")
def test_derivatives_equal_finite_differences_in_both_modes(row):
    arrays, along = draw(row), draw(row, seed=1)
    step = 1e-6

    @QUICKLY
    def derivatives(arrays, along):
        out, forward = jax.jvp(row.call, arrays, along)
        upstream = jnp.cos(jnp.arange(out.size, dtype=out.dtype)).reshape(out.shape)
        pulled = jax.vjp(row.call, *arrays)[1](upstream)
        reverse = sum(jnp.vdot(*pair) for pair in zip(pulled, along, strict=True))
        return forward, reverse, jnp.vdot(upstream, forward)

    double = functools.partial(on_device, dtype=jnp.float64)
    forward, reverse, paired = derivatives(double(arrays), double(along))
    np.testing.assert_allclose(reverse, paired, rtol=1e-9)
    function = QUICKLY(row.call)
    ahead, behind = (
        np.asarray(
            function(*double(x + sign * step * d for x, d in zip(arrays, along, strict=True)))
        )
        for sign in (1, -1)
    )
    np.testing.assert_allclose(forward, (ahead - behind) / (2 * step), atol=2e-7, rtol=1e-6)
