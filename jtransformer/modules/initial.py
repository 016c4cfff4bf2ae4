"""Initial values, each a function of (seed, parameter path, layer index) alone.

linen seeds a parameter by the order of calls inside its module, so a part that one arm lacks
would change the values of its neighbours. Here two models that share a path, a shape and an
initialiser start with the same numbers, whatever else they hold, and layers that are stacked
for a scan start as those of a loop.

Sources: LeCun et al. 1998, "Efficient BackProp", sec. 4.6 (variance 1 / fan-in),
http://yann.lecun.com/exdb/publis/pdf/lecun-98b.pdf; Glorot and Bengio 2010, sec. 4.2,
https://proceedings.mlr.press/v9/glorot10a.html; Devlin et al. 2018, appendix A.2 (BERT),
https://arxiv.org/abs/1810.04805; Radford et al. 2019, sec. 2.3 (residual scaling),
https://cdn.openai.com/better-language-models/language_models.pdf; Raffel et al. 2019 (T5, in
their code alone), https://arxiv.org/abs/1910.10683; Wang et al. 2022, sec. 2 (DeepNorm),
https://arxiv.org/abs/2203.00555. Where we differ: DeepNorm's gain multiplies the deviation of
whichever initialisation is chosen, as in its authors' later code, and not Xavier's alone.
"""

import collections
import functools
import hashlib
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.functional.dropout import has_rows
from jtransformer.modules.parts import layers_at, stream_factors
from jtransformer.spec import DynamicTanh, LayerScale, ModelSpec, ReZero, RMSNorm, ScaleNorm

SMALL_DEVIATION = 0.02
"""Of BERT and GPT-2."""
LAYER, STACKED = "layer_", "layers"
"""What encloses the parameters of one layer, before its index; and of all layers, stacked."""
ATTENTIONS = ("attention", "cross_attention")
RESIDUAL_OUTPUTS = (
    ("attention", "out"),
    ("cross_attention", "out"),
    ("ffn", "out"),
    ("ffn", "down"),
)
"""Matrices that write to the residual stream."""
HEAD_MAPS = ("query", "query_rotary", "key", "value")
"""Matrices whose fan-out is heads: two axes."""
PLAIN_NORMS = ("query_norm", "key_norm", "latent_norm")
"""RMS norms inside attention, whatever the norm of the model."""


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
        shape: Its shape; axes of stacked layers stand before its own.
    """
    *_, module, name = path
    if name in ("scale", "bias", "alpha"):
        return Initialiser(_constant(model, module, name), 0.0)
    if name == "table":
        return Initialiser(0.0, _table_deviation(model, module))
    return Initialiser(0.0, _kernel_deviation(model, path, shape))


def _constant(model: ModelSpec, module: str, name: str) -> float:
    """Returns the one number that a scale, bias or slope starts with."""
    if name == "bias":
        return 0.0
    if name == "alpha":
        assert isinstance(model.norm, DynamicTanh)
        return model.norm.alpha
    if module.endswith("branch_scale"):
        match model.branch_scale:
            case ReZero():
                return 0.0
            case LayerScale(initial=initial):
                return initial
    if module in PLAIN_NORMS:
        return 1.0
    if isinstance(model.norm, ScaleNorm):
        return math.sqrt(model.width)
    return 0.0 if isinstance(model.norm, RMSNorm) and model.norm.unit_offset else 1.0


def _table_deviation(model: ModelSpec, module: str) -> float:
    if model.initialization in ("bert", "gpt2"):
        return SMALL_DEVIATION
    if module in ("key_distance", "value_distance"):
        # They are added to keys and values, and multiply queries over the width of a head.
        return (model.H if module == "key_distance" else model.Hv) ** -0.5
    if model.initialization == "t5" and module != "position_bias":
        return 1.0
    return model.width**-0.5


def _kernel_deviation(model: ModelSpec, path: tuple[str, ...], shape: tuple[int, ...]) -> float:
    parent, module, _ = ("", *path)[-3:]
    gain = 1.0
    factors = stream_factors(model, path)
    if factors and (parent == "ffn" or (parent in ATTENTIONS and module in ("value", "out"))):
        gain = factors.init_gain
    match model.initialization:
        case "bert":
            return gain * SMALL_DEVIATION
        case "gpt2":
            layers, branches = layers_at(model, path)
            writes = (parent, module) in RESIDUAL_OUTPUTS
            return gain * (SMALL_DEVIATION / (math.sqrt(branches * layers) if writes else 1.0))
        case "xavier":
            return gain * (2 / sum(_fans(parent, module, shape))) ** 0.5
        case "t5" if parent in ATTENTIONS and module in ("query", "query_rotary"):
            return gain * _fans(parent, module, shape)[0] ** -0.5 * model.H**-0.5
        case _:
            return gain * _fans(parent, module, shape)[0] ** -0.5


def _fans(parent: str, module: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Returns fan-in and fan-out; which axes they are depends on the matrix, not on its rank."""
    if parent in ATTENTIONS and module == "out":
        n_in, n_out = 2, 1
    else:
        n_in, n_out = 1, 2 if parent in ATTENTIONS and module in HEAD_MAPS else 1
    own = shape[len(shape) - n_in - n_out :]
    return math.prod(own[:n_in]), math.prod(own[n_in:])


class _Draw(NamedTuple):
    """One parameter of one layer."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: Any
    deviation: float


def initial_values(model: ModelSpec, key: jax.Array, shapes: Any, *, flat: bool = True) -> Any:
    """Draws the parameters of a model.

    Parameters of one size are drawn in one batch, flat: a generator for each of them, in its
    shape, would take seconds to compile (3.6 instead of 0.7 s for two layers), more if deeper.

    Args:
        model: The model.
        key: Key of the run; the same for every arm.
        shapes: Tree of the parameters' shapes and dtypes.
        flat: Whether parameters are drawn flat; those that are to lie on several devices are not,
            since each device then draws its part alone. The values are the same.

    Returns:
        The same tree, of arrays.
    """
    paths, tree = jax.tree_util.tree_flatten_with_path(shapes)
    draws: list[_Draw] = []
    owned: dict[int, range] = {}
    values: list[Any] = []
    for index, (path, leaf) in enumerate(paths):
        names = tuple(entry.key for entry in path)
        start = initialiser(model, names, leaf.shape)
        values.append(jnp.full(leaf.shape, start.mean, leaf.dtype))
        if start.deviation:
            layers = leaf.shape[0] if STACKED in names else 1
            shape = leaf.shape[int(STACKED in names) :]
            owned[index] = range(len(draws), len(draws) + layers)
            draws += [
                _Draw(
                    names=_in_layer(names, layer),
                    shape=(math.prod(shape),) if flat else shape,
                    dtype=leaf.dtype,
                    deviation=start.deviation,
                )
                for layer in range(layers)
            ]
    drawn = _drawn(key, draws)
    for index, members in owned.items():
        rows, first = drawn[members[0]]
        leaf, deviation = paths[index][1], draws[members[0]].deviation
        shaped = rows[first : first + len(members)].reshape(leaf.shape)
        values[index] = jnp.asarray(deviation, leaf.dtype) * shaped
    return jax.tree.unflatten(tree, values)


def _drawn(key: jax.Array, draws: list[_Draw]) -> list[tuple[jax.Array, int]]:
    """Draws standard normal values; each entry is an array of rows and the row that counts."""
    keys = keys_at(key, [draw.names for draw in draws])
    batches = collections.defaultdict(list)
    for index, draw in enumerate(draws):
        batches[draw.shape, draw.dtype].append(index)
    found: dict[int, tuple[jax.Array, int]] = {}
    for (shape, dtype), members in batches.items():
        normal = functools.partial(jax.random.normal, shape=shape, dtype=dtype)
        # Without it XLA folds a factor of the normal into the deviation of a matrix that is the
        # only one of its size, whose last bit then depends on which others the model has.
        rows = jax.lax.optimization_barrier(jax.vmap(normal)(keys[np.asarray(members)]))
        found.update({index: (rows, row) for row, index in enumerate(members)})
    return [found[index] for index in range(len(draws))]


def _in_layer(names: tuple[str, ...], layer: int) -> tuple[str, ...]:
    return tuple(f"{LAYER}{layer}" if name == STACKED else name for name in names)


def keys_at(key: jax.Array, paths: list[tuple[str, ...]]) -> jax.Array:
    """Returns one key per path: its names are folded in, then the index of its layer.

    The index is apart from the names, so that layers in a loop and layers of a scan agree.
    """
    words = np.array([path_word(path) for path in paths], np.uint32)
    indices = np.array([_layer(path) for path in paths], np.int32)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, words)
    folded = jax.vmap(jax.random.fold_in)(keys, np.maximum(indices, 0))
    return jnp.where(indices >= 0, folded, keys)


def path_word(path: tuple[str, ...]) -> int:
    """Returns 32 bits that stand for the names of a path, the index of its layer left out."""
    text = "/".join("layer" if name.startswith(LAYER) else name for name in path)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def dropout_key(
    key: jax.Array | None, rate: float, names: tuple[str, ...], layer: jax.Array | None = None
) -> jax.Array | None:
    """Returns the key of one dropout, as `keys_at` does for the path of a parameter.

    Args:
        key: Key of the call, or one for each row; None (evaluation) drops nothing.
        rate: Probability of the dropout; without it no key is needed.
        names: Where it is, without the index of the layer.
        layer: Index of the layer, which may be known only when the program runs.
    """
    if key is None or rate == 0:
        return None
    fold_in = jax.random.fold_in
    if has_rows(key):
        fold_in = jax.vmap(fold_in, (0, None))
    own = fold_in(key, np.uint32(path_word(("dropout", *names))))
    return own if layer is None else fold_in(own, layer)


def _layer(path: tuple[str, ...]) -> int:
    """Returns the index of a path's layer, -1 where it lies in none."""
    found = [int(name.removeprefix(LAYER)) for name in path if name.startswith(LAYER)]
    return found[0] if found else -1
