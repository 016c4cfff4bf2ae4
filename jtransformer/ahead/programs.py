"""The programs that a run and its model really call, lowered for devices that need not be here.

Nothing is rebuilt: the update is that of `training.Program`, the step of decoding is the loop by
which `generation` goes on (one turn of it is one token of every row). Arguments are shapes with
places. A program is known by its fingerprint, which does not depend on where its source lies.
"""

import functools
import hashlib
import math
import time
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from jtransformer.ahead.topologies import LOCAL, Topology
from jtransformer.data import blank_batch
from jtransformer.generation import GREEDY
from jtransformer.generation.inputs import Prompt
from jtransformer.generation.loop import Plan, advance, begin
from jtransformer.modules import ONE_DEVICE, divided
from jtransformer.modules.placement import PARTS, ROWS
from jtransformer.spec import Encoder, Layout, RunSpec
from jtransformer.training import Program
from jtransformer.training.mesh import Arrangement, arrange, with_places

What = Literal["train", "decode"]


class Decoding(NamedTuple):
    """How a model is decoded.

    Attributes:
        rows: Rows that are continued at once [B].
        capacity: Tokens that the cache of a row holds.
    """

    rows: int
    capacity: int


class Lowered(NamedTuple):
    """A program before it is compiled.

    Attributes:
        what: "train" or "decode".
        program: The program.
        held: Arguments by kind, as shapes with places: "parameters", "optimizer", "average",
            "batch", "cache".
        fingerprint: 64 hex digits of its text, without what its source is called.
        seconds: Time that lowering took.
    """

    what: What
    program: Any
    held: dict[str, Any]
    fingerprint: str
    seconds: float


def programs_of(spec: RunSpec) -> tuple[What, ...]:
    """Returns what a run's model is compiled for: an encoder does not decode."""
    return ("train",) if isinstance(spec.model.stack, Encoder) else ("train", "decode")


def decoding_of(spec: RunSpec) -> Decoding:
    """Returns as many rows and tokens as the run trains on at once."""
    return Decoding(spec.training.batch_size, spec.row_lengths.length)


def lower(
    what: What, spec: RunSpec, found: Topology, layout: Layout, decoding: Decoding
) -> Lowered:
    """Lowers one program of a run.

    Args:
        what: Which one.
        spec: The run.
        found: The devices.
        layout: How it is laid over them.
        decoding: Rows and tokens, for "decode".

    Raises:
        ValueError: If the model does not decode, or its positions end before the capacity.
    """
    begun = time.perf_counter()
    # By itself on a device that is here, a run has the program without any places.
    is_alone = found.name == LOCAL and layout.devices == 1
    arrangement = None if is_alone else arrange(layout, found.devices)
    made = _train(spec, arrangement) if what == "train" else _decode(spec, arrangement, decoding)
    program, held = made
    digest = hashlib.sha256(program.as_text().encode()).hexdigest()
    return Lowered(what, program, held, digest, time.perf_counter() - begun)


def device_bytes(tree: Any) -> int:
    """Counts the bytes that one device holds of shapes with places; without places all of them."""
    return sum(_own_bytes(leaf) for leaf in jax.tree.leaves(tree))


def _own_bytes(leaf: Any) -> int:
    shape = leaf.shape if leaf.sharding is None else leaf.sharding.shard_shape(leaf.shape)
    return math.prod(shape) * leaf.dtype.itemsize


def _train(spec: RunSpec, arrangement: Arrangement | None) -> tuple[Any, dict[str, Any]]:
    program = Program(spec, arrangement=arrangement)
    arguments = program.abstract(blank_batch(spec))
    state, batch = arguments[:2]
    held = {
        "parameters": state.parameters,
        "optimizer": state.optimizer,
        "average": state.average,
        "batch": batch,
    }
    return program.update.lower(*arguments), held


def _decode(
    spec: RunSpec, arrangement: Arrangement | None, decoding: Decoding
) -> tuple[Any, dict[str, Any]]:
    model = spec.model
    state_shapes, *_ = Program(spec, arrangement=arrangement).abstract(blank_batch(spec))
    variables = {"params": state_shapes.parameters}
    placement = ONE_DEVICE if arrangement is None else arrangement.placement
    plan = Plan(
        model=model,
        limit=decoding.capacity,
        sampling=GREEDY,
        eos=(),
        never=(),
        pad=0,
        logits=False,
        placement=placement,
    )
    ids: Any = jax.ShapeDtypeStruct((decoding.rows, 1), jnp.int32)
    source: Any = None
    if model.has_encoder:
        shape = (decoding.rows, spec.row_lengths.source_length)
        source = jax.ShapeDtypeStruct(shape, jnp.int32)
    anywhere = functools.partial(begin, plan._replace(placement=ONE_DEVICE), keys=None)
    state: Any = jax.eval_shape(anywhere, variables, Prompt(ids, None, source, None))
    until: Any = jax.ShapeDtypeStruct((), jnp.int32)
    places = None
    if arrangement is not None:
        places = _places_of_state(arrangement, state)
        state = with_places(state, places)
        until = jax.ShapeDtypeStruct((), jnp.int32, sharding=arrangement.whole)
    program = jax.jit(advance, static_argnums=0, donate_argnums=2, out_shardings=places)
    lowered = program.lower(plan, variables, state, None, until)
    return lowered, {"parameters": state_shapes.parameters, "cache": state.cache}


def _places_of_state(arrangement: Arrangement, state: Any) -> Any:
    """Returns where the state of decoding lies: rows as in training, heads over tensor."""
    mesh, first = arrangement.mesh, int(state.cache.stacked)

    def of_leaf(path: Any, leaf: Any) -> NamedSharding:
        name = str(getattr(path[-1], "name", ""))
        is_of_layer = "layers" in {getattr(entry, "name", "") for entry in path}
        whole = (None,) * (first if is_of_layer else 0)
        axes = (*whole, ROWS, *HEADS.get(name, ()))[: leaf.ndim]
        axes += (None,) * (leaf.ndim - len(axes))
        return NamedSharding(mesh, divided(leaf.shape, axes, mesh.shape))

    return jax.tree_util.tree_map_with_path(of_leaf, state)


HEADS = {
    **dict.fromkeys(("k", "v", "sums", "normaliser"), (PARTS,)),
    **dict.fromkeys(("memory_k", "memory_v"), (None, PARTS)),
}
"""The axes behind the rows in arrays of a cache that have heads."""
