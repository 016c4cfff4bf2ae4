"""Initial values, each a function of (seed, parameter path, layer index) alone.

linen seeds a parameter by the order of calls inside its module, so a part that one arm lacks
would change the values of its neighbours. Here two models that share a path, a shape and an
initialiser start with the same numbers, whatever else they hold.

Sources: Glorot and Bengio 2010, sec. 4.2 (variance by fan-in); Radford et al. 2019, sec. 2.3
(residual scaling), https://cdn.openai.com/better-language-models/language_models.pdf.
"""

import hashlib
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jtransformer.spec import ModelSpec

GPT2_DEVIATION = 0.02
RESIDUAL_OUTPUTS = (("attention", "out"), ("ffn", "out"), ("ffn", "down"))
"""Matrices that write to the residual stream."""


class Initialiser(NamedTuple):
    """A distribution: constant `mean` where `deviation` is 0, else normal."""

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

    Args:
        model: The model.
        key: Key of the run; the same for every arm.
        shapes: Tree of the parameters' shapes and dtypes.

    Returns:
        The same tree, of arrays.
    """

    def draw(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> jax.Array:
        names = tuple(entry.key for entry in path)
        start = initialiser(model, names, leaf.shape)
        return start(key_at(key, names), leaf.shape, leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def key_at(key: jax.Array, names: tuple[str, ...]) -> jax.Array:
    """Returns the key of a path: the layer's index is folded in apart from the other names."""
    layers = [int(name.removeprefix("layer_")) for name in names if name.startswith("layer_")]
    plain = "/".join("layer" if name.startswith("layer_") else name for name in names)
    digest = hashlib.sha256(plain.encode()).digest()
    key = jax.random.fold_in(key, int.from_bytes(digest[:4], "big"))
    for layer in layers:
        key = jax.random.fold_in(key, layer)
    return key
