"""Fixtures of the tests of modules."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from tiny_model import values_at

from jtransformer.modules import build, layers


@pytest.fixture
def run(monkeypatch):
    """Runs a model once, step by step, with parameters that depend on path and shape alone.

    Many small models share their steps, and so need no program each. `edit` may change a
    parameter, given its path and value.
    """
    plain = layers.initialiser

    def run(spec, tokens, *, edit=lambda names, value: value, **given):
        def start(spec, path, shape):
            del spec, shape

            def value(key, shape):
                del key
                return jnp.asarray(edit(list(path), values_at(path, shape)))

            return value

        monkeypatch.setattr(layers, "initialiser", start)
        out, variables = nn.Module.init_with_output(build(spec), jax.random.key(0), tokens, **given)
        monkeypatch.setattr(layers, "initialiser", plain)
        return out, variables

    jax.config.update("jax_disable_most_optimizations", True)
    yield run
    jax.config.update("jax_disable_most_optimizations", False)
