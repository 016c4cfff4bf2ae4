"""Starting with the parameters of another run, or of a Hugging Face model.

Whatever agrees in path and shape is taken, layer by layer, whether layers are looped or stacked on
either side; the rest is drawn as it is without. Nothing else is: steps, rates, the state of the
optimizer and means begin anew. What was taken is the start of a run and is never looked at again:
one that is resumed has its checkpoint.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.modules.initial import LAYER, PLAIN_NORMS, STACKED
from jtransformer.spec import ModelSpec, RunSpec, SpecError
from jtransformer.training import hosts
from jtransformer.training.digests import is_spread
from jtransformer.training.origins import (
    FIELD,
    Given,
    Origin,
    Shape,
    has_offset_scales,
    joined,
    read_start,
    settings,
)
from jtransformer.training.state import TrainState

BY_ID = ("embedding/table", "source_embedding/table", "head/kernel", "head/bias")
"""Parameters with a row or column for each id."""
SIZES = ("vocabulary", "width", "layers", "heads", "head_width", "key_value_heads", "ffn_width")
"""Settings of a model that the shapes of its parameters show."""
DIGITS = 16


def taken_over(
    origin: Origin, model: ModelSpec, shapes: Mapping[str, Shape], tokenizer_sha256: str | None
) -> dict[str, Any]:
    """Returns what a model takes over, as plain data; see `records.taken_sentence`.

    Args:
        origin: What there is.
        model: The model that starts.
        shapes: Those of its parameters by path; layers may be stacked.
        tokenizer_sha256: Hash of what its ids stand for.

    Raises:
        SpecError: If it takes nothing, or parameters of ids that stand for something else.
    """
    own = {
        path: shape
        for stacked, whole in shapes.items()
        for path, shape in _by_layer(tuple(stacked.split("/")), whole)
    }
    sizes = {path: int(np.prod(shape, dtype=np.int64)) for path, shape in own.items()}
    reasons = {path: _reason(origin, model, path, shape) for path, shape in own.items()}
    taken = [path for path, reason in reasons.items() if reason is None]
    if not taken:
        first = next(iter(own))
        raise SpecError(
            FIELD,
            f"= {origin.directory!r} has nothing that the model could take: {first} is "
            f"{reasons[first]}; start from a model of the same widths, or leave it out.",
        )
    known = (origin.tokenizer_sha256, tokenizer_sha256)
    if None not in known and known[0] != known[1] and any(path in taken for path in BY_ID):
        raise SpecError(
            FIELD,
            f"= {origin.directory!r} has another tokenizer (hash {known[0]!s:.8}, the run's is "
            f"{known[1]!s:.8}), so that its ids stand for something else; set data.tokenizer to "
            "the file of that model.",
        )
    return {
        "directory": origin.directory,
        "sha256": origin.sha256,
        "parameters": {"taken": len(taken), "all": len(own)},
        "numbers": {"taken": sum(sizes[path] for path in taken), "all": sum(sizes.values())},
        "new": {path: reason for path, reason in reasons.items() if reason is not None},
        "otherwise": _otherwise(origin, model, tokenizer_sha256),
        "left": sorted(set(origin.shapes) - set(taken)),
    }


def _otherwise(origin: Origin, model: ModelSpec, tokenizer_sha256: str | None) -> dict[str, str]:
    """Says what taken numbers mean another thing by, though their shapes are the same."""
    from jtransformer.interop import differing

    found = {
        path: f"{there} there instead of {here}"
        for path, here, there in differing(settings(model), origin.model)
        if path not in SIZES
    }
    if None in (origin.tokenizer_sha256, tokenizer_sha256):
        found["data.tokenizer"] = "not known there"
    return found


def shapes_of(parameters: Any) -> dict[str, Shape]:
    """Returns the shapes of a tree of parameters, by path."""
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    return {joined(path): tuple(leaf.shape) for path, leaf in leaves}


def started(
    state: TrainState, given: Given | None, model: ModelSpec
) -> tuple[TrainState, dict[str, str]]:
    """Takes over what there is, into the first state of a run.

    Args:
        state: Its first state, all drawn.
        given: What there is; None leaves the state as it is.
        model: Its model.

    Returns:
        The state, and where parameters come from that are not all drawn, by path: two arms are
        compared only where this agrees.
    """
    origins: dict[str, str] = {}
    if given is None:
        return state, origins
    source = f"taken over from {given.origin.sha256[:DIGITS]}"

    def replaced(path: Any, leaf: Any) -> Any:
        layers = list(_by_layer(_names(path), leaf.shape))
        takes = [_reason(given.origin, model, name, shape) is None for name, shape in layers]
        if not any(takes):
            return leaf
        which = "" if all(takes) else f", layers {np.flatnonzero(takes).tolist()}"
        origins[joined(path)] = source + which
        found = [
            given.values[name] for (name, _), taken in zip(layers, takes, strict=True) if taken
        ]
        if STACKED not in _names(path):
            return _placed(found[0], leaf)
        whole = np.array(hosts.whole(leaf))
        whole[takes] = found
        return _placed(whole, leaf)

    parameters = jax.tree_util.tree_map_with_path(replaced, state.parameters)
    mean = None if state.average is None else jax.tree.map(jnp.copy, parameters)
    return state._replace(parameters=parameters, average=mean), origins


def begun(
    state: TrainState,
    spec: RunSpec,
    tokenizer_sha256: str | None,
    start_sha256: str | None = None,
) -> TrainState:
    """Returns the state that a run begins with, outside its training.

    Args:
        state: Its first state, all drawn.
        spec: The run.
        tokenizer_sha256: Hash of what its ids stand for.
        start_sha256: Hash that what it starts from must have; None is any.

    Raises:
        SpecError: If that cannot be read, does not fit, or has changed.
    """
    if spec.start_from is None:
        return state
    given = read_start(spec.start_from)
    if start_sha256 not in (None, given.origin.sha256):
        raise SpecError(
            FIELD,
            f"= {spec.start_from!r} has changed since (hash {given.origin.sha256:.8} instead of "
            f"{start_sha256:.8}); restore it.",
        )
    taken_over(given.origin, spec.model, shapes_of(state.parameters), tokenizer_sha256)
    return started(state, given, spec.model)[0]


def _placed(value: np.ndarray, leaf: Any) -> Any:
    """Returns a copy where another array lies: updates write over it."""
    if is_spread(leaf):
        return jax.make_array_from_callback(
            leaf.shape, leaf.sharding, lambda index: np.array(value[index], leaf.dtype)
        )
    return jnp.array(value, leaf.dtype)


def _by_layer(names: tuple[str, ...], shape: Shape) -> Iterator[tuple[str, Shape]]:
    """Yields the path and the shape of a parameter, of each layer if layers are stacked."""
    if STACKED not in names:
        yield "/".join(names), tuple(shape)
        return
    for layer in range(shape[0]):
        own = (f"{LAYER}{layer}" if name == STACKED else name for name in names)
        yield "/".join(own), tuple(shape[1:])


def _reason(origin: Origin, model: ModelSpec, path: str, shape: Shape) -> str | None:
    """Says why a parameter of a model is not taken; None where it is."""
    found = origin.shapes.get(path)
    if found is None:
        return "absent there"
    if tuple(found) != shape:
        return f"of shape {_text(found)} there instead of {_text(shape)}"
    *_, module, name = ("", *path.split("/"))
    is_norm = name == "scale" and not module.endswith("branch_scale") and module not in PLAIN_NORMS
    if is_norm and origin.offset_scales != has_offset_scales(model):
        return "a scale there" if has_offset_scales(model) else "added to 1 there"
    return None


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "a number"


def _names(path: Any) -> tuple[str, ...]:
    return tuple(entry.key for entry in path)
