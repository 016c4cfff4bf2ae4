"""Starting with the parameters of another run, or of a Hugging Face model.

Whatever agrees in path and shape is taken, layer by layer, whether layers are looped or stacked on
either side; the rest is drawn as it is without. Nothing else is: steps, rates, the state of the
optimizer and means begin anew. What was taken is the start of a run and is never looked at again:
one that is resumed has its checkpoint.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer import records
from jtransformer.modules import unstack_layers
from jtransformer.modules.initial import LAYER, PLAIN_NORMS, STACKED
from jtransformer.spec import ModelSpec, RMSNorm, SpecError, from_tree
from jtransformer.training import hosts
from jtransformer.training.checkpoints import Checkpoints
from jtransformer.training.digests import digest, is_spread
from jtransformer.training.program import Program, parameter_key
from jtransformer.training.state import TrainState

FIELD = "start_from"
BY_ID = ("embedding/table", "source_embedding/table", "head/kernel", "head/bias")
"""Parameters with a row or column for each id."""
DIGITS = 16

Shape = tuple[int, ...]


class Origin(NamedTuple):
    """What there is to start from, apart from its numbers; plain data.

    Attributes:
        directory: As it was named.
        sha256: Hash of the parameters.
        tokenizer_sha256: Hash of what its ids stand for; None where that is not known.
        offset_scales: Whether its norms multiply by 1 + scale.
        shapes: Those of its parameters by path, of layers in a loop.
    """

    directory: str
    sha256: str
    tokenizer_sha256: str | None
    offset_scales: bool
    shapes: dict[str, Shape]


class Given(NamedTuple):
    """An origin, and its parameters by path, float32 in host memory."""

    origin: Origin
    values: dict[str, np.ndarray]


def read_start(directory: str) -> Given:
    """Reads what a run is to start from.

    Args:
        directory: Of a run, whose newest checkpoint counts; or a Hugging Face directory.

    Raises:
        SpecError: If it is neither, or cannot be read.
        DamagedRecord: If a file of the run is damaged.
    """
    path = Path(directory).expanduser()
    if records.SweepFiles(path).manifest.exists():
        raise SpecError(FIELD, f"= {directory!r} holds a sweep; name one of its runs.")
    if records.RunFiles(path).spec.exists():
        model, parameters, tokenizer = _of_run(records.RunFiles(path))
    elif (path / "config.json").exists():
        model, parameters, tokenizer = _of_hugging_face(path)
    else:
        raise SpecError(
            FIELD,
            f"= {directory!r} holds neither a run (spec.json) nor a Hugging Face model "
            "(config.json); name the directory of one.",
        )
    if model.scan_layers:
        parameters = unstack_layers(model, {"params": parameters})["params"]
    values = {
        _joined(path): np.asarray(leaf, np.float32)
        for path, leaf in jax.tree_util.tree_leaves_with_path(parameters)
    }
    offset = has_offset_scales(model)
    origin = Origin(
        directory=directory,
        sha256=_hash(values, offset),
        tokenizer_sha256=tokenizer,
        offset_scales=offset,
        shapes={path: value.shape for path, value in values.items()},
    )
    return Given(origin, values)


def _of_run(files: records.RunFiles) -> tuple[ModelSpec, Any, str | None]:
    about = records.read_json(files.spec)
    try:
        tree, identity, tokenizer = (
            about[name] for name in ("spec", "fingerprint", "tokenizer_sha256")
        )
    except (KeyError, TypeError):
        raise records.DamagedRecord(
            f"{files.spec} is damaged (it lacks what a run says of itself); restore it from a copy."
        ) from None
    spec = from_tree(tree)
    if not files.checkpoints.exists():
        raise SpecError(FIELD, f"= {str(files.directory)!r} has no checkpoint yet; train it first.")
    like = jax.eval_shape(Program(spec).start, parameter_key(spec.seed))
    with Checkpoints(files, identity) as saved:
        steps = saved.steps()
        if not steps:
            raise SpecError(
                FIELD, f"= {str(files.directory)!r} has no checkpoint yet; train it first."
            )
        try:
            state = saved.restore(steps[-1], like)
        except SpecError:
            raise
        except ValueError as error:
            raise records.DamagedRecord(
                f"The checkpoint {files.checkpoints / str(steps[-1])} is damaged ({error}); "
                "restore it from a copy, or start from another run."
            ) from None
    return spec.model, state.evaluated, tokenizer


def _of_hugging_face(directory: Path) -> tuple[ModelSpec, Any, str | None]:
    from jtransformer import interop
    from jtransformer.data.library import LibraryTokenizer

    loaded, tokenizer = interop.load(directory), None
    if (directory / "tokenizer.json").exists():
        settings = interop.tokenizer_settings(directory) or {}
        try:
            tokenizer = LibraryTokenizer(settings).sha256
        except SpecError:
            raise
        except ValueError as error:
            raise SpecError(
                FIELD, f"= {str(directory)!r}: its tokenizer.json is no tokenizer ({error})."
            ) from None
    return loaded.spec, loaded.variables["params"], tokenizer


def _hash(values: Mapping[str, np.ndarray], offset: bool) -> str:
    found = hashlib.sha256(f"offset_scales={offset}\n".encode())
    for path in sorted(values):
        found.update(f"{path} {digest(values[path])}\n".encode())
    return found.hexdigest()


def has_offset_scales(model: ModelSpec) -> bool:
    """Returns whether the norms of a model multiply by 1 + scale."""
    return isinstance(model.norm, RMSNorm) and model.norm.unit_offset


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
        "left": sorted(set(origin.shapes) - set(taken)),
    }


def shapes_of(parameters: Any) -> dict[str, Shape]:
    """Returns the shapes of a tree of parameters, by path."""
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    return {_joined(path): tuple(leaf.shape) for path, leaf in leaves}


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
        origins[_joined(path)] = source + which
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


def _joined(path: Any) -> str:
    return "/".join(_names(path))
