"""Initial values, each a function of (seed, parameter path, layer index) alone.

linen seeds a parameter by the order of calls inside its module, so a part that one arm lacks
would change the values of its neighbours. Here two models that share a path, a shape and an
initialiser start with the same numbers, whatever else they hold.

Sources: LeCun et al. 1998, "Efficient BackProp", sec. 4.6 (variance 1 / fan-in),
http://yann.lecun.com/exdb/publis/pdf/lecun-98b.pdf; Radford et al. 2019, sec. 2.3 (residual
scaling), https://cdn.openai.com/better-language-models/language_models.pdf.
"""

import collections
import functools
import hashlib
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.spec import ModelSpec

GPT2_DEVIATION = 0.02
LAYER = "layer_"
RESIDUAL_OUTPUTS = (("attention", "out"), ("ffn", "out"), ("ffn", "down"))
"""Matrices that write to the residual stream."""


class Initialiser(NamedTuple):
    """A distribution: constant `mean` where `deviation` is 0, else normal around 0."""

    mean: float
    deviation: float

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32):
        if self.deviation == 0:
            return jnp.full(shape, self.mean, dtype)
        return jnp.asarray(self.deviation, dtype) * jax.random.normal(key, shape, dtype)

    def __str__(self) -> str:
        return f"normal {self.deviation!r}" if self.deviation else f"constant {self.mean!r}"


def initialiser(model: ModelSpec, path: tuple[str, ...], shape: tuple[int, ...]) -> Initialiser:
    """Returns how a parameter starts.

    Args:
        model: The model it belongs to.
        path: Names down to the parameter; what encloses the model may stand before them.
        shape: Its shape; the output projection of attention is [N, H, D].
    """
    *_, module, name = path
    if name in ("scale", "bias"):
        return Initialiser(1.0 if name == "scale" else 0.0, 0.0)
    residual = path[-3:-1] in RESIDUAL_OUTPUTS
    if model.initialization == "gpt2":
        depth = math.sqrt(2 * model.layers) if residual else 1.0
        return Initialiser(0.0, GPT2_DEVIATION / depth)
    if name == "table":
        return Initialiser(0.0, model.width**-0.5)
    fan_in = math.prod(shape[:-1]) if path[-3:-1] == ("attention", "out") else shape[0]
    return Initialiser(0.0, fan_in**-0.5)


def initial_values(model: ModelSpec, key: jax.Array, shapes: Any) -> Any:
    """Draws the parameters of a model.

    Parameters of one size are drawn in one batch, flat: a generator for each of them, in its
    shape, would take seconds to compile (3.6 instead of 0.7 s for two layers), more if deeper.

    Args:
        model: The model.
        key: Key of the run; the same for every arm.
        shapes: Tree of the parameters' shapes and dtypes.

    Returns:
        The same tree, of arrays.
    """
    paths, tree = jax.tree_util.tree_flatten_with_path(shapes)
    names = [tuple(entry.key for entry in path) for path, _ in paths]
    starts = [
        initialiser(model, path, leaf.shape) for path, (_, leaf) in zip(names, paths, strict=True)
    ]
    values = [
        jnp.full(leaf.shape, start.mean, leaf.dtype)
        for start, (_, leaf) in zip(starts, paths, strict=True)
    ]
    keys = keys_at(key, names)
    batches = collections.defaultdict(list)
    for index, (start, (_, leaf)) in enumerate(zip(starts, paths, strict=True)):
        if start.deviation:
            batches[math.prod(leaf.shape), leaf.dtype].append(index)
    for (size, dtype), members in batches.items():
        draw = functools.partial(jax.random.normal, shape=(size,), dtype=dtype)
        drawn = jax.vmap(draw)(keys[np.asarray(members)])
        for row, index in enumerate(members):
            shaped = drawn[row].reshape(paths[index][1].shape)
            values[index] = jnp.asarray(starts[index].deviation, dtype) * shaped
    return jax.tree.unflatten(tree, values)


def keys_at(key: jax.Array, paths: list[tuple[str, ...]]) -> jax.Array:
    """Returns one key per path: its names are folded in, then the index of its layer.

    The index is apart from the names, so that layers in a loop and layers of a scan agree.
    """
    plain = [
        "/".join("layer" if name.startswith(LAYER) else name for name in path) for path in paths
    ]
    digests = [hashlib.sha256(text.encode()).digest()[:4] for text in plain]
    words = np.array([int.from_bytes(digest, "big") for digest in digests], np.uint32)
    indices = np.array([_layer(path) for path in paths], np.int32)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, words)
    folded = jax.vmap(jax.random.fold_in)(keys, np.maximum(indices, 0))
    return jnp.where(indices >= 0, folded, keys)


def _layer(path: tuple[str, ...]) -> int:
    """Returns the index of a path's layer, -1 where it lies in none."""
    found = [int(name.removeprefix(LAYER)) for name in path if name.startswith(LAYER)]
    return found[0] if found else -1
