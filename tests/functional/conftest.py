"""Fixtures of the functional tests: the worked numbers, and double precision."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


@pytest.fixture
def golden():
    """Reads a file of worked numbers, computed independently in float64."""
    return lambda name: json.loads((GOLDEN / f"{name}.json").read_text())


@pytest.fixture
def normal():
    """Draws arrays of the given shapes; NumPy does, since JAX compiles for each shape anew."""
    generator = np.random.default_rng(0)

    def draw(*shapes, dtype=jnp.float32):
        return [jnp.asarray(generator.normal(size=shape), dtype) for shape in shapes]

    return draw


@pytest.fixture
def float64():
    """Runs the test in double precision."""
    with jax.enable_x64(True):
        yield
