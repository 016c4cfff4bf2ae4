"""One run whose rows are dealt to several devices by `jax.pmap`; each has the whole state.

The other way to spread a run, beside a mesh: pure data parallelism. Each device computes the sums
of its rows; these, and the gradients of them, are added up over all devices and divided by the
scored tokens of the whole batch once, so that rows that score few tokens weigh no more than they
would on one device.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jtransformer.data import Batch
from jtransformer.training.mesh import padded
from jtransformer.training.state import TrainState

AXIS = "data"


class Replicas:
    """The update of one run on several devices, and its state on each of them."""

    def __init__(self, step: Callable[..., TrainState], devices: Sequence[Any], multiple: int):
        """Compiles nothing yet.

        Args:
            step: Makes an update from state, rows, numbers and key; takes the keyword `axis`.
            devices: Those that take part.
            multiple: What the number of rows of each device is made a multiple of.
        """
        self._devices, self._multiple = len(devices), multiple
        self._place = NamedSharding(Mesh(np.asarray(devices), (AXIS,)), PartitionSpec(AXIS))
        self._update = jax.pmap(
            functools.partial(step, axis=AXIS),
            axis_name=AXIS,
            in_axes=(0, 0, None, None),
            devices=devices,
            donate_argnums=0,
        )

    def fill(self, state: TrainState) -> TrainState:
        """Copies a state to every device."""

        def copied(x: jax.Array) -> jax.Array:
            return jnp.broadcast_to(x, (self._devices, *x.shape))

        return jax.device_put(jax.tree.map(copied, state), self._place)

    def take(self, states: TrainState) -> TrainState:
        """Returns the state, which is the same everywhere, on the device of single runs."""
        own = jax.tree.map(lambda x: x.addressable_data(0)[0], states)
        return jax.device_put(jax.device_get(own))

    def advance(self, states: TrainState, batch: Batch, hyper: Any, key: Any) -> TrainState:
        """Makes an update."""
        return self._update(states, self._dealt(batch), hyper, key)

    def lower(self, states: TrainState, batch: Batch, hyper: Any, key: Any) -> Any:
        """Lowers an update for such arguments."""
        return self._update.lower(states, self._dealt(batch), hyper, key)

    def _dealt(self, batch: Batch) -> Batch:
        """Deals the rows, made up to an even number, in blocks to the devices."""
        even = padded(batch, self._devices * self._multiple)
        return jax.tree.map(lambda x: x.reshape(self._devices, -1, *x.shape[1:]), even)
