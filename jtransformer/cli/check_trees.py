"""Trees of parameters that `jtransformer check` judges: moved, silent, with heads in order."""

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from jtransformer import accounting
from jtransformer.accounting.leaves import ANY_LAYER
from jtransformer.spec import (
    DotProduct,
    LatentAttention,
    ModelSpec,
    RelativeBias,
    Shaw,
    SpecError,
    T5Bias,
)

BRANCH_ENDS = (("attention", "out"), ("cross_attention", "out"), ("ffn", "out"), ("ffn", "down"))
"""Modules that write to the stream."""
BRANCH_NORM = "_norm_branch"
MOVED = 0.2
"""By how much of its size a parameter is moved off its start, and at least by that of LEAST."""
LEAST = 0.1
OPEN_BRANCH = 0.5
"""Learned factor of a branch, which may start at 0 and hide it."""


def mapped(change: Callable[[tuple[str, ...], Any], Any], parameters: Any) -> Any:
    """Changes every parameter, given the names down to it."""
    import jax

    def changed(path: Any, leaf: Any) -> Any:
        return change(tuple(entry.key for entry in path), leaf)

    return jax.tree_util.tree_map_with_path(changed, parameters)


def moved(parameters: Any, seed: int) -> Any:
    """Moves every parameter off its start, where zeros and ones hide what depends on what."""
    import jax.numpy as jnp
    import numpy as np

    def change(names: tuple[str, ...], leaf: Any) -> Any:
        generator = np.random.default_rng([seed, zlib.crc32("/".join(names).encode())])
        noise = generator.standard_normal(leaf.shape, np.float32)
        if names[-2].endswith("branch_scale"):
            return jnp.asarray(OPEN_BRANCH + MOVED * LEAST * noise)
        values = np.asarray(leaf, np.float32)
        size = max(LEAST, float(np.sqrt(np.square(values).mean())) if values.size else 0.0)
        return jnp.asarray(values + MOVED * size * noise)

    return mapped(change, parameters)


def silent(parameters: Any) -> Any:
    """Makes every branch return zeros, so that the last stream is what was embedded."""
    import jax.numpy as jnp

    def change(names: tuple[str, ...], leaf: Any) -> Any:
        ends = names[-3:-1] in BRANCH_ENDS
        # A norm of zeros leaves its bias.
        normed = names[-2].endswith(BRANCH_NORM) and names[-1] == "bias"
        return jnp.zeros_like(leaf) if ends or normed else leaf

    return mapped(change, parameters)


def with_first_norm(parameters: Any) -> Any:
    """Gives the first layer of every stack the norm that it lacks; where branches are silent any.

    Args:
        parameters: Those of a model whose layers are looped.
    """
    found = {
        name: with_first_norm(below) if isinstance(below, dict) else below
        for name, below in parameters.items()
    }
    if "layer_0" in found and "attention_norm_in" not in found["layer_0"]:
        first = found["layer_0"]
        found["layer_0"] = first | {"attention_norm_in": first["ffn_norm_in"]}
    return found


def head_axis(names: tuple[str, ...]) -> int | None:
    """Returns which axis of a parameter counts heads; None is none."""
    parent, module, name = names[-3:] if len(names) > 2 else ("", *names[-2:])
    if module == "position_bias":
        return -1
    if parent not in ("attention", "cross_attention"):
        return None
    if module in ("query", "query_rotary", "key", "value"):
        return -2
    return -3 if module == "out" and name == "kernel" else None


def permuted(spec: ModelSpec, parameters: Any, order: Any) -> Any:
    """Puts groups of heads, each with the key head that it reads, in another order."""
    import jax.numpy as jnp
    import numpy as np

    K, G = spec.K, spec.heads // spec.K
    heads = np.concatenate([np.arange(G) + G * group for group in order])
    wide = isinstance(spec.attention, DotProduct) and spec.attention.query_key_norm == "width"

    def change(names: tuple[str, ...], leaf: Any) -> Any:
        axis = -2 if wide and names[-2] in ("query_norm", "key_norm") else head_axis(names)
        if axis is None:
            return leaf
        return jnp.take(leaf, jnp.asarray(order if leaf.shape[axis] == K else heads), axis=axis)

    return mapped(change, parameters)


def expected_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every parameter as accounting has it, by its path."""
    found = {}
    for leaf in accounting.leaves(spec):
        if ANY_LAYER not in leaf.path:
            found[leaf.path] = leaf.shape
            continue
        for layer in range(leaf.first, leaf.first + leaf.copies):
            found[leaf.path.replace(ANY_LAYER, f"layer_{layer}")] = leaf.shape
    return found


def _counted_by_heads(spec: ModelSpec) -> tuple[str, ...]:
    """Returns the modules whose parameters are one set per head, or per channel of one."""
    names = []
    if isinstance(spec.position, T5Bias | RelativeBias):
        names.append("position_bias")
    if isinstance(spec.position, Shaw):
        names += ["key_distance", "value_distance"]
    if isinstance(spec.attention, DotProduct) and spec.attention.query_key_norm == "head":
        names += ["query_norm", "key_norm"]
    if isinstance(spec.attention, LatentAttention) and spec.attention.rotary_width:
        names.append("query_rotary")
    return tuple(names)


def _with_heads(spec: ModelSpec) -> Iterator[tuple[int, ModelSpec]]:
    """Yields the model with half and with twice as many heads, of one width in all."""
    G, H = spec.heads // spec.K, spec.H
    attention = spec.attention
    if isinstance(attention, DotProduct) and attention.heads_off:
        attention = dataclasses.replace(attention, heads_off="")
    for heads in (spec.heads // 2, spec.heads * 2):
        if not heads or heads % G or (spec.heads * H) % heads:
            continue
        values = {}
        if isinstance(attention, LatentAttention):
            values = {"value_width": spec.heads * spec.Hv // heads}
        try:
            yield (
                heads,
                dataclasses.replace(
                    spec,
                    heads=heads,
                    key_value_heads=heads // G,
                    head_width=spec.heads * H // heads,
                    attention=dataclasses.replace(attention, **values),
                ),
            )
        except SpecError:
            continue  # Such a head has no width that its positions could turn.


def counts_by_heads(
    spec: ModelSpec, shapes_of: Callable[[ModelSpec], dict[str, tuple[int, ...]]]
) -> dict[int, int]:
    """Counts parameters for other numbers of heads, without what is one set per head.

    Args:
        spec: The model.
        shapes_of: Returns the shapes of a model's parameters by path.
    """
    apart = _counted_by_heads(spec)
    counts = {}
    for heads, changed in ((spec.heads, spec), *_with_heads(spec)):
        counts[heads] = sum(
            math.prod(shape)
            for path, shape in shapes_of(changed).items()
            if path.split("/")[-2] not in apart
        )
    return counts
