"""A run whose parameters come from elsewhere: its one checkpoint, before any update.

A run copies what it saves, since the next update writes over it while orbax still reads. Here the
parameters are not even read before orbax asks for them, one array after the other, so that memory
holds no more than one of them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np
import orbax.checkpoint as ocp

from jtransformer import records
from jtransformer.spec import RunSpec, SpecError
from jtransformer.training.checkpoints import description
from jtransformer.training.digests import describe, digest
from jtransformer.training.origins import content_sha256, joined
from jtransformer.training.program import Program, parameter_key


class Unread(Protocol):
    """An array that is not in memory yet."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        ...

    def read(self) -> np.ndarray:
        """Returns it."""
        ...


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """An array that orbax is handed, with what it asks for before it writes."""

    source: Unread
    dtype: np.dtype = dataclasses.field(default_factory=lambda: np.dtype(np.float32))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def read(self) -> np.ndarray:
        return np.ascontiguousarray(self.source.read(), self.dtype)


class _OneByOne(ocp.type_handlers.NumpyHandler):
    """Writes arrays one after the other, and reads each when its turn has come."""

    async def serialize(
        self, values: Sequence[Any], infos: Sequence[Any], args: Sequence[Any] | None = None
    ) -> Sequence[Any]:
        for place, value in enumerate(values):
            own = None if args is None else [args[place]]
            for written in await super().serialize([value.read()], [infos[place]], own):
                written.result()
        return []


def save_given(
    files: records.RunFiles,
    spec: RunSpec,
    parameters: dict[str, Any],
    identify: Callable[[str], str],
) -> str:
    """Writes the checkpoint of step 0 of a run that starts from given parameters.

    Args:
        files: Its directory, without checkpoints.
        spec: The run. A rule of its optimizer without state keeps the file as small as they are.
        parameters: Nested dicts of `Unread`, those of its model, of layers in a loop.
        identify: Makes its fingerprint of the hash of its parameters.

    Returns:
        Its fingerprint.

    Raises:
        SpecError: If they are not those of its model.
    """
    shapes = jax.eval_shape(Program(spec).start, parameter_key(spec.seed))
    _check(shapes.parameters, parameters)
    zeros = jax.tree.map(
        lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes._replace(parameters=None)
    )
    state = zeros._replace(parameters=jax.tree.map(_Leaf, parameters))
    leaves, digests = dict[str, Any](), dict[str, str]()
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        array = leaf.read() if isinstance(leaf, _Leaf) else leaf
        (leaves[jax.tree_util.keystr(path)],) = describe([array]).values()
        if isinstance(leaf, _Leaf):
            # The first entry is the field of the state.
            digests[joined(path[1:])] = digest(array)
    identity = identify(content_sha256(digests, spec.model))
    registry = ocp.type_handlers.create_type_handler_registry(
        (_Leaf, _OneByOne()), (np.ndarray, ocp.type_handlers.NumpyHandler())
    )
    arrays = ocp.BasePyTreeCheckpointHandler(type_handler_registry=registry)
    handler = ocp.CompositeCheckpointHandler(
        state=ocp.PyTreeCheckpointHandler(handler_impl=arrays), about=ocp.JsonCheckpointHandler()
    )
    with ocp.Checkpointer(handler) as writer:
        writer.save(
            files.checkpoints.absolute() / "0",
            args=ocp.args.Composite(
                state=ocp.args.PyTreeSave(state),
                about=ocp.args.JsonSave(description(leaves, identity)),
            ),
        )
    return identity


def _check(wanted: Any, given: Any) -> None:
    own, found = (
        {jax.tree_util.keystr(path): tuple(leaf.shape) for path, leaf in leaves}
        for leaves in map(jax.tree_util.tree_leaves_with_path, (wanted, given))
    )
    if own != found:
        names = sorted(name for name in {*own, *found} if own.get(name) != found.get(name))
        raise SpecError(
            "parameters",
            f"must be those of the model: {names[0]} has the shape {found.get(names[0])} instead "
            f"of {own.get(names[0])}.",
        )
