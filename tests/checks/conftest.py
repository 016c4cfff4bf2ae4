"""A reader writes under JAX's own rules of promotion, which are not those of this project."""

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def usual_promotion(promotion):
    """Allows what JAX allows."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield
