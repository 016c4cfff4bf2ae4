"""How far each sublayer can stretch a small change: spectral norms of Jacobians, by layer.

A product of these over the layers is only an upper bound of what the stack does; see
`functional.analysis`, which has the power iteration and its sources.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jtransformer import functional as F
from jtransformer.modules import keys_at
from jtransformer.modules.apart import LayerCall, Level, looped, observe, sublayer
from jtransformer.modules.context import Own
from jtransformer.modules.initial import LAYER
from jtransformer.modules.parts import Part
from jtransformer.probes.sites import Sample, layers_of, prefix_of, stacks_of, sublayers_of
from jtransformer.spec import ModelSpec


class SpectralNorms(NamedTuple):
    """Largest singular values by layer, and how exact they are; see `functional.SpectralNorm`."""

    value: Float[Array, " L"]
    residual: Float[Array, " L"]


ITERATIONS = 20
"""Steps of a power iteration, unless told otherwise."""
Jacobians = dict[str, dict[Level, dict[str, SpectralNorms]]]
"""By stack, level and sublayer."""


def spectral_norms(
    model: ModelSpec,
    parameters: Any,
    sample: Sample,
    *,
    key: PRNGKeyArray,
    iterations: int = ITERATIONS,
) -> Jacobians:
    """Computes the spectral norm of every sublayer's Jacobian on one row, `Sample.fullest`.

    At the level "stream" it is that of the stream after the sublayer by the stream before it:
    norms, branch and sum included. Sublayers side by side have one such, that of the "layer". At
    the level "branch" it is that of the sublayer's own map, from behind `norm_in` to before
    `norm_branch`. What counts is counted on both sides: changes are made at the row's counted
    positions and measured there. The memory of cross-attention stays as it is.

    Cost: `2 (iterations + 1)` products with the Jacobians of one row's forward pass and as many
    with their transposes, together about `5 (iterations + 1)` forward passes of a row. Layers are
    mapped over, so that depth is no matter to the compiler. It needs forward mode, see
    `functional.spectral_norm`.

    Args:
        model: The model.
        parameters: Its parameters.
        sample: What it is given.
        key: Key of the first directions.
        iterations: Steps of each power iteration, at least 1.

    Returns:
        Values in at least float32; NaN in a stack without a counted position.

    Raises:
        ValueError: If `iterations` is less than 1.
    """
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, got iterations={iterations}.")
    model, parameters = looped(model, parameters)
    row = sample.row(sample.fullest)
    names = [name for part in stacks_of(model).values() for name in _needed(model, part)]
    output, calls = observe(model, parameters, row.tokens, row.inputs, names)
    assert output.intermediates is not None
    found: Jacobians = {}
    for stack, part in stacks_of(model).items():
        of_part = [call for call in calls if call.part == part]
        layers, counted = layers_of(part, parameters), row.counted(part)
        found[stack] = {"stream": {}, "branch": {}}
        for level, name, inputs in _sites(model, part):
            paths = [(stack, level, name, f"{LAYER}{layer}") for layer in range(part.layers)]
            given = [output.intermediates[x] for x in inputs], layers, keys_at(key, paths)
            maps = _Maps(model, level, name, counted, iterations)
            found[stack][level][name] = _of_layers(maps, of_part, *given)
    return found


def levels_of(model: ModelSpec, part: Part) -> dict[Level, tuple[str, ...]]:
    """Returns the maps of a layer that have a Jacobian, by their level."""
    sublayers = sublayers_of(part)
    in_order = model.sublayers == "sequential"
    return {"stream": sublayers if in_order else ("layer",), "branch": sublayers}


def _sites(model: ModelSpec, part: Part) -> list[tuple[Level, str, list[str]]]:
    """Returns the maps of a layer: their level and name, and the input of each layer's."""
    at = [f"{prefix_of(part)}{LAYER}{layer}" for layer in range(part.layers)]
    before = [f"{prefix_of(part)}embedded", *(f"{layer}/stream" for layer in at[:-1])]
    levels = levels_of(model, part)
    sites: list[tuple[Level, str, list[str]]] = []
    for name in levels["stream"]:
        sites.append(("stream", name, before))
        before = [f"{layer}/{name}/stream" for layer in at]
    for name in levels["branch"]:
        sites.append(("branch", name, [f"{layer}/{name}/input" for layer in at]))
    return sites


def _needed(model: ModelSpec, part: Part) -> list[str]:
    return [name for _, _, inputs in _sites(model, part) for name in inputs]


class _Maps(NamedTuple):
    """One sublayer, in every layer of a stack."""

    model: ModelSpec
    level: Level
    name: str
    counted: Bool[Array, "1 T"]
    iterations: int


def _of_layers(
    maps: _Maps,
    calls: Sequence[LayerCall],
    inputs: Sequence[Array],
    layers: Sequence[Any],
    keys: PRNGKeyArray,
) -> SpectralNorms:
    """Maps the power iteration over the layers that are one program."""
    alike: dict[Any, list[int]] = defaultdict(list)
    for index, call in enumerate(calls):
        tree = jax.tree.structure(layers[index])
        alike[call.windowed, call.own.heads_on is None, tree].append(index)
    order, found = [], []
    for members in alike.values():
        given = [(layers[i], inputs[i], calls[i].own) for i in members]
        stacked = jax.tree.map(lambda *own: jnp.stack(own), *given)
        of_one = _of_one(maps, calls[members[0]])
        found.append(jax.vmap(of_one)(*stacked, keys[jnp.asarray(members)]))
        order += members
    back = jnp.asarray([order.index(index) for index in range(len(calls))])
    is_any = jnp.any(maps.counted)

    def joined(*groups: Array) -> Array:
        return jnp.where(is_any, jnp.concatenate(groups)[back], jnp.nan)

    return jax.tree.map(joined, *found)


def _of_one(maps: _Maps, call: LayerCall) -> Callable[..., SpectralNorms]:
    """Returns the power iteration of one layer, between its counted positions."""
    function = sublayer(maps.model, call, maps.name, maps.level)
    counted = maps.counted[:, :, None]

    def of_one(parameters: Any, x: Array, own: Own, key: PRNGKeyArray) -> SpectralNorms:
        def within(v: Array) -> Array:
            out = function(parameters, jnp.where(counted, v, x), own)
            return jnp.where(counted, out, 0)

        found = F.spectral_norm(within, x, key=key, iterations=maps.iterations)
        return SpectralNorms(found.value, found.residual)

    return of_one
