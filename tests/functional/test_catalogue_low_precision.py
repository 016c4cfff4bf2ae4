"""Every variant in bfloat16 and float16: its value, and the dtype that it returns."""

import jax.numpy as jnp
import numpy as np
import pytest
from catalogue import CATALOGUE
from catalogue.row import draw, on_device
from quickly import quickly
from thinned import thinned


@pytest.mark.parametrize("name", thinned(CATALOGUE, str, one_of=2))
def test_low_precision_stays_finite_and_keeps_its_dtype(name):
    row = CATALOGUE[name]
    arrays, function = draw(row), quickly(row.call)
    exact = np.asarray(row.reference(*arrays, **row.options))
    size = np.abs(exact).max()
    for dtype, tolerance in ((jnp.bfloat16, 0.04), (jnp.float16, 0.005)):
        out = function(*on_device(arrays, dtype))
        assert out.dtype == (dtype if row.keeps_dtype else jnp.float32)
        np.testing.assert_allclose(np.asarray(out, np.float32), exact, atol=tolerance * size)
