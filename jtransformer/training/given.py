"""A run whose parameters come from elsewhere: its one checkpoint, before any update.

A run copies what it saves, since the next update writes over it while orbax still reads. Here
nothing is written over, so that memory holds the parameters once: orbax reads them where they lie,
no more than `AT_ONCE_BYTES` at a time.
"""

from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from jtransformer import records
from jtransformer.spec import RunSpec, SpecError
from jtransformer.training.checkpoints import description
from jtransformer.training.program import Program, parameter_key

AT_ONCE_BYTES = 64 * 2**20
"""Of arrays that orbax has in its hands; one larger array is written in pieces of its own."""


def save_given(files: records.RunFiles, spec: RunSpec, identity: str, parameters: Any) -> None:
    """Writes the checkpoint of step 0 of a run that starts from given parameters.

    Args:
        files: Its directory, without checkpoints.
        spec: The run. A rule of its optimizer without state keeps the file as small as they are.
        identity: Its fingerprint.
        parameters: Of its model, float32.

    Raises:
        SpecError: If they are not those of its model.
    """
    program = Program(spec)
    shapes = jax.eval_shape(program.start, parameter_key(spec.seed))
    own, given = (
        {jax.tree_util.keystr(path): (leaf.shape, str(leaf.dtype)) for path, leaf in leaves}
        for leaves in map(jax.tree_util.tree_leaves_with_path, (shapes.parameters, parameters))
    )
    if own != given:
        names = sorted(name for name in {*own, *given} if own.get(name) != given.get(name))
        raise SpecError(
            "parameters",
            f"must be those of the model: {names[0]} has {given.get(names[0])} instead of "
            f"{own.get(names[0])}.",
        )
    zeros = jax.tree.map(
        lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes._replace(parameters=None)
    )
    state = zeros._replace(parameters=parameters)
    sizes = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(parameters)]
    # An array must be smaller than what may be under way.
    most = max(AT_ONCE_BYTES, 1 + max(sizes))
    arrays = ocp.BasePyTreeCheckpointHandler(
        save_concurrent_bytes=most, save_device_host_concurrent_bytes=most
    )
    handler = ocp.CompositeCheckpointHandler(
        state=ocp.PyTreeCheckpointHandler(handler_impl=arrays), about=ocp.JsonCheckpointHandler()
    )
    with ocp.Checkpointer(handler) as writer:
        writer.save(
            files.checkpoints.absolute() / "0",
            args=ocp.args.Composite(
                state=ocp.args.PyTreeSave(state),
                about=ocp.args.JsonSave(description(state, identity)),
            ),
        )
