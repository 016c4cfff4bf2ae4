"""Every variant: its value, compiled and mapped as well, and in low precision."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogue import CATALOGUE
from catalogue.row import draw, on_device

# Half the time of compiling; where the compiled code itself is tested, it is not used.
QUICKLY = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
EVERY = pytest.mark.parametrize("row", CATALOGUE.values(), ids=CATALOGUE)


@EVERY
@pytest.mark.usefixtures("float64")
def test_equals_an_independent_reference_in_double_precision(row):
    arrays = draw(row)
    expected = np.asarray(row.reference(*arrays, **row.options))
    out = np.asarray(QUICKLY(row.call)(*on_device(arrays, jnp.float64)))
    assert out.dtype == np.float64
    np.testing.assert_allclose(
        out, expected, rtol=1e-9, atol=1e-12 + 1e-10 * np.abs(expected).max()
    )


@EVERY
def test_compiled_and_mapped_equals_an_eager_loop(row):
    runs = draw(row, copies=(2,))
    loop = [np.asarray(row.call(*on_device(run[r] for run in runs))) for r in range(2)]
    mapped = jax.jit(jax.vmap(row.call))(*on_device(runs))
    np.testing.assert_allclose(mapped, np.stack(loop), atol=1e-5)


@EVERY
def test_low_precision_stays_finite_and_keeps_its_dtype(row):
    arrays = draw(row)
    function = QUICKLY(row.call)
    exact = np.asarray(function(*on_device(arrays)))
    size = np.abs(exact).max()
    for dtype, tolerance in ((jnp.bfloat16, 0.04), (jnp.float16, 0.005)):
        out = function(*on_device(arrays, dtype))
        assert out.dtype == (dtype if row.keeps_dtype else jnp.float32)
        np.testing.assert_allclose(np.asarray(out, np.float32), exact, atol=tolerance * size)
