"""Every variant in double precision: its value, and its derivatives in both modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogue import CATALOGUE
from catalogue.row import draw, on_device
from quickly import quickly

STEP = 1e-6


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=CATALOGUE)
@pytest.mark.usefixtures("float64")
def test_value_equals_a_reference_and_derivatives_finite_differences(row):
    arrays, along = draw(row), draw(row, seed=1)

    # One program for all of it: compiling takes the time here.
    @quickly
    def everything(arrays, along, beside):
        out, forward = jax.jvp(row.call, arrays, along)
        upstream = jnp.cos(jnp.arange(out.size, dtype=out.dtype)).reshape(out.shape)
        pulled = jax.vjp(row.call, *arrays)[1](upstream)
        reverse = sum(jnp.vdot(*pair) for pair in zip(pulled, along, strict=True))
        return (
            out,
            forward,
            reverse,
            jnp.vdot(upstream, forward),
            jax.lax.map(lambda each: row.call(*each), beside),
        )

    shifted = [np.stack([x + STEP * d, x - STEP * d]) for x, d in zip(arrays, along, strict=True)]
    given = [on_device(each, jnp.float64) for each in (arrays, along, shifted)]
    out, forward, reverse, paired, (ahead, behind) = map(np.asarray, everything(*given))
    expected = np.asarray(row.reference(*arrays, **row.options))
    assert out.dtype == np.float64
    size = np.abs(expected).max()
    np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-12 + 1e-10 * size)
    np.testing.assert_allclose(reverse, paired, rtol=1e-9)
    np.testing.assert_allclose(forward, (ahead - behind) / (2 * STEP), atol=2e-7, rtol=1e-6)
