"""A model small enough to be compiled in a test, and its start."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from jtransformer.modules import build
from jtransformer.spec import Learned, ModelSpec, NoPosition, RMSNorm

B, T, V = 2, 7, 11
BASE = ModelSpec(vocabulary=V, width=12, layers=2, heads=3, ffn_width=20)
VARIANTS = {
    "pre": BASE,
    "post": dataclasses.replace(BASE, norm_placement="post"),
    "sandwich": dataclasses.replace(BASE, norm_placement="sandwich", norm=RMSNorm()),
    "branch": dataclasses.replace(BASE, norm_placement="branch", ffn="swiglu"),
    "untied": dataclasses.replace(BASE, tied_head=False, attention_bias=True, ffn_bias=True),
    "learned": dataclasses.replace(
        BASE, position=Learned(max_length=T), ffn="geglu", ffn_bias=True
    ),
    "none": dataclasses.replace(BASE, position=NoPosition(), scale_embedding=True),
}
EVERY_VARIANT = pytest.mark.parametrize("spec", VARIANTS.values(), ids=VARIANTS)


def tokens_of(key, rows=B):
    return jax.random.randint(key, (rows, T), 0, V)


class Jitted:
    """A model whose apply is compiled once, as every user's is."""

    def __init__(self, spec):
        self.apply = jax.jit(build(spec).apply)


STARTS = {}


def started(spec):
    """Returns a model and its start; compiling one takes seconds, so tests share it."""
    if spec not in STARTS:
        init = jax.jit(build(spec).init)
        STARTS[spec] = Jitted(spec), init(jax.random.key(0), jnp.zeros((1, T), jnp.int32))
    return STARTS[spec]


def spread(variables, key):
    """Moves every parameter off its start, so that ones and zeros cannot hide a mistake."""
    leaves, tree = jax.tree.flatten(variables)
    keys = jax.random.split(key, len(leaves))
    moved = [x + 0.3 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, moved)
