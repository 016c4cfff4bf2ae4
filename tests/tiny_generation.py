"""Models that generate and are compiled in a moment, and their passes without a cache."""

import contextlib
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from quickly import quickly

from jtransformer.modules import build
from jtransformer.spec import ModelSpec, NoPosition, TokenHead

V = 11
TINY = ModelSpec(vocabulary=V, width=12, layers=1, heads=3, ffn_width=8, head=TokenHead(tied=False))


@contextlib.contextmanager
def compiled_quickly() -> Iterator[None]:
    """Makes programs cheap to compile and slow to run: those of a test run once."""
    name = "jax_disable_most_optimizations"
    before = jax.config.values[name]
    jax.config.update(name, True)
    yield
    jax.config.update(name, before)


def drawn(spec, deviation=0.6):
    """Returns parameters drawn at random, ones and zeros off their start too."""
    source = jnp.zeros((1, 2), jnp.int32) if spec.has_encoder else None
    init = functools.partial(build(spec).init, source=source)
    shapes = jax.eval_shape(init, jax.random.key(0), jnp.zeros((1, 2), jnp.int32))
    numbers = np.random.default_rng(0)

    def draw(path, leaf):
        start = 1.0 if path[-1].key == "scale" else 0.0
        return jnp.asarray(start + deviation * numbers.standard_normal(leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def padded(rows, length=None):
    """Returns rows of any lengths as one array, padding on the right, and what is real in it."""
    T = length or max(map(len, rows))
    tokens = np.array([[*row, *[0] * (T - len(row))] for row in rows], np.int32)
    return tokens, np.arange(T)[None] < np.array([len(row) for row in rows])[:, None]


def full_pass(spec, variables, rows, **inputs):
    """Returns the logits of rows of any lengths by one call without a cache."""
    tokens, valid = padded(rows)
    inputs = {name: jnp.asarray(value) for name, value in inputs.items()}

    @quickly
    def logits(tokens, valid):
        return build(spec).apply(variables, tokens, valid=valid, **inputs).logits

    return np.asarray(logits(tokens, valid))


SCRIPTED = ModelSpec(
    vocabulary=V,
    width=12,
    layers=1,
    heads=1,
    ffn_width=2,
    position=NoPosition(),
    head=TokenHead(tied=False),
)


def scripted(follows):
    """Returns parameters by which a token alone decides what follows it, not what stood before it.

    Both sublayers write nothing, so that the head sees the embedding of the newest token alone.

    Args:
        follows: For each token what follows it, and how surely; all others are alike unlikely.
    """
    parameters = jax.tree.map(jnp.zeros_like, drawn(SCRIPTED)["params"])
    table, kernel = np.zeros((V, 12), np.float32), np.zeros((12, V), np.float32)
    for token, after in follows.items():
        table[token, token] = 1.0
        for other, sure in after.items():
            kernel[token, other] = sure
    parameters["embedding"]["table"] = jnp.asarray(table)
    parameters["head"]["kernel"] = jnp.asarray(kernel)
    parameters["final_norm"]["scale"] = jnp.ones(12)
    return {"params": parameters}
