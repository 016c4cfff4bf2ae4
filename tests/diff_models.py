"""Models of ours for comparisons, and their twins in NumPy with the same parameters."""

import dataclasses
import zlib

import jax
import jax.numpy as jnp
import numpy as np
from diff_reference import Conventions, Reference

from jtransformer import diff, modules
from jtransformer.spec import DotProduct, LayerNorm, Learned, ModelSpec, Rope, Sinusoidal

V, D, N, H, F, T = 13, 12, 4, 6, 20, 7
BASE = ModelSpec(
    vocabulary=V, width=D, layers=2, heads=N, head_width=H, ffn_width=F, position=Rope()
)
"""Every width is another one, so that no matrix is square."""
INPUTS = diff.drawn(0, diff.Sizes(rows=2, length=T), V)
PADDED = diff.drawn(0, diff.Sizes(rows=2, length=T, padding=3), V)


def changed(**fields):
    return dataclasses.replace(BASE, **fields)


def parameters(spec):
    """Draws parameters far from any start, by path and shape alone."""
    tokens = jnp.zeros((1, 1), jnp.int32)
    shapes = jax.eval_shape(lambda key: modules.build(spec).init(key, tokens), jax.random.key(0))
    return jax.tree_util.tree_map_with_path(_leaf, shapes["params"])


def _leaf(path, leaf):
    names = [entry.key for entry in path]
    random = np.random.default_rng(zlib.crc32("/".join(names).encode()))
    values = random.standard_normal(leaf.shape)
    if names[-1] == "scale":
        values = 1 + 0.3 * values
    elif names[-1] == "kernel":
        values = values * D**-0.5
    return values.astype(np.float32)


def mine(spec, tree=None):
    """Returns a model of ours as a side."""
    tree = parameters(spec) if tree is None else tree
    return diff.ours("mine", spec, {"params": jax.tree.map(jnp.asarray, tree)})


def theirs(spec, tree=None, only=None, **conventions):
    """Returns its twin in NumPy, with other conventions where they are named.

    Args:
        spec: The model of ours.
        tree: Its parameters; None is those of `parameters`.
        only: The places that it returns; None is all.
        conventions: What the twin does in another way.
    """
    tree = parameters(spec) if tree is None else tree
    chosen = dataclasses.replace(conventions_of(spec), **conventions)
    wide = jax.tree.map(lambda x: np.asarray(x, np.float64), tree)
    return diff.Called("theirs", Reference(wide, chosen, only))


def conventions_of(spec):
    """Returns what a right implementation of a spec does."""
    attention, position = spec.attention, spec.position
    assert isinstance(attention, DotProduct)
    return Conventions(
        placement=spec.norm_placement,
        final_norm=spec.has_final_norm,
        sublayers=spec.sublayers,
        norm="layer_norm" if isinstance(spec.norm, LayerNorm) else "rms_norm",
        epsilon=spec.norm.epsilon,
        scale_embedding=spec.scale_embedding,
        position=position.kind,
        pairing=position.pairing if isinstance(position, Rope) else "half",
        first=position.first if isinstance(position, Learned) else 0,
        layout=position.layout if isinstance(position, Sinusoidal) else "interleaved",
        query_key_norm=attention.query_key_norm,
        scale=attention.scale,
        ffn=spec.ffn,
        tied_scale=D**-0.5 if spec.head.scale_down else 1.0,
    )
