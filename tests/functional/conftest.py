"""Fixtures of the functional tests: the worked numbers, and double precision."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

# Their subject is the compiled program: its memory, its products, its speed elsewhere.
OPTIMISED = {
    "test_attention_backends.py",
    "test_attention_blocks.py",
    "test_cache.py",
    "test_chunked_losses.py",
    "test_elsewhere.py",
    "test_tpu_attention.py",
}

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(request):
    """Compiles with few optimisations: thousands of tiny programs run once each here."""
    jax.config.update("jax_disable_most_optimizations", request.path.name not in OPTIMISED)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


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
