"""What the processes that train one run say to one another, and who of them writes.

Every process runs the same program at the same time. Whatever is decided by a clock, a signal or
a file is therefore decided once and told to all: two processes that part ways wait for each other
until the end. Each function here is a meeting, to which all of them have to come, in one order;
a process by itself meets nobody.
"""

import collections
import json
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jtransformer import data
from jtransformer.training.mesh import Arrangement

LAG = 2
"""Answers that are under way: none is waited for while the devices have nothing else to do."""


def is_first() -> bool:
    """Whether this is the process that writes and decides; no meeting."""
    return jax.process_index() == 0


def said_by_all(value: Any) -> list[Any]:
    """Returns what each process says, plain data, in the order of their numbers."""
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.int32(len(text)))
    texts = multihost_utils.process_allgather(_padded(text, int(sizes.max())))
    return [json.loads(own[:size].tobytes()) for own, size in zip(texts, sizes, strict=True)]


def told(say: Callable[[], Any]) -> Any:
    """Returns what the first process says, plain data; no other is asked."""
    if jax.process_count() == 1:
        return say()
    text = np.frombuffer(json.dumps(say()).encode() if is_first() else b"", np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(text))))
    found = multihost_utils.broadcast_one_to_all(_padded(text, size))
    return json.loads(np.asarray(found)[:size].tobytes())


def meet() -> None:
    """Returns when every process has come this far, and what the first one wrote is on disk."""
    told(lambda: None)


def whole(array: jax.Array | np.ndarray) -> np.ndarray:
    """Returns all of an array, which may lie over the devices of all processes."""
    if isinstance(array, np.ndarray) or array.is_fully_addressable:
        return np.asarray(array)
    return multihost_utils.process_allgather(array, tiled=True)


def share_of(arrangement: Arrangement | None, *, microbatches: int = 1) -> data.Share:
    """Returns which rows of every batch this process reads; no meeting.

    Args:
        arrangement: Where rows are to lie; None is on one device.
        microbatches: Parts in which each device takes its rows, one after another; an evaluation
            takes them at once.
    """
    if arrangement is None or len(arrangement.share) == arrangement.layout.row_parts:
        return data.Share()
    parts = arrangement.layout.row_parts
    return data.Share(arrangement.share, parts, parts * microbatches)


def in_turn(result: Any) -> Any:
    """Returns what a program computes, on several CPU devices once it is there.

    Processes know what one sends to another by the order alone: of programs that run side by side
    one would take what is another's, or wait for it for ever. Devices of one process share as many
    threads as there are cores: those of a program that is ahead, waiting for the other devices, can
    have them all, and the others then never come.
    """
    if jax.default_backend() == "cpu" and any(map(_is_divided, jax.tree.leaves(result))):
        jax.block_until_ready(result)
    return result


def _is_divided(array: jax.Array) -> bool:
    return len(array.sharding.device_set) > 1


class Agreed:
    """A question that each process answers for itself, and all of them alike."""

    def __init__(self, ask: Callable[[], bool]):
        self._ask = ask
        self._some = _Some() if jax.process_count() > 1 else None
        self._pending: collections.deque[jax.Array] = collections.deque()

    def __call__(self) -> bool:
        """Whether any process said yes: now where there is one, `LAG` calls ago among several."""
        if self._some is None:
            return self._ask()
        self._pending.append(in_turn(self._some(self._ask())))
        return len(self._pending) > LAG and bool(self._pending.popleft().addressable_data(0))


class _Some:
    """Begins to find out whether any process has a flag; made once, since it is asked each step."""

    def __init__(self):
        one_each = {device.process_index: device for device in jax.devices()}
        mesh = Mesh(np.array([one_each[number] for number in sorted(one_each)]), ("process",))
        self._place = NamedSharding(mesh, PartitionSpec("process"))
        self._any = jax.jit(_any, out_shardings=NamedSharding(mesh, PartitionSpec()))

    def __call__(self, flag: bool) -> jax.Array:
        return self._any(jax.make_array_from_process_local_data(self._place, np.array([flag])))


def _any(flags: jax.Array) -> jax.Array:
    return flags.any()


def _padded(text: np.ndarray, size: int) -> np.ndarray:
    """Returns one of few lengths, so that few programs are compiled."""
    room = 256
    while room < size:
        room *= 4
    return np.concatenate([text, np.zeros(room - len(text), np.uint8)])
