"""The mesh of a run: its devices, and where each array of a run lies on them.

There is one way to spread a run, `jax.jit` over arrays that say where they lie; what passes between
devices is then for the compiler to see. Rows lie in their order: of `row_parts` devices each has
one block. Where they do not come out even, copies of a row are added whose weights are 0: the sums
of a loss and of its gradient are those of the rows that were given.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jtransformer.data import Batch
from jtransformer.modules import Placement, divided
from jtransformer.modules.placement import ROWS, TOKENS
from jtransformer.spec import MESH_AXES, Layout, SpecError
from jtransformer.training.partition import partition_optimizer, partition_parameters
from jtransformer.training.state import TrainState


@dataclasses.dataclass(frozen=True)
class Arrangement:
    """A layout on devices.

    Attributes:
        layout: By how much each part of a run is divided.
        mesh: The devices, with the axes of `MESH_AXES`.
    """

    layout: Layout
    mesh: Mesh

    @property
    def placement(self) -> Placement:
        """Where activations lie."""
        return Placement(self.mesh)

    @property
    def whole(self) -> NamedSharding:
        """The place of what every device has whole."""
        return NamedSharding(self.mesh, PartitionSpec())

    def state(self, shapes: TrainState) -> TrainState:
        """Returns the place of every array of a state.

        Args:
            shapes: The state, or its shapes.
        """
        parameters = partition_parameters(shapes.parameters, self.layout)
        places: Any = shapes._replace(
            step=PartitionSpec(),
            parameters=parameters,
            average=None if shapes.average is None else parameters,
            optimizer=partition_optimizer(shapes.optimizer, shapes.parameters, self.layout),
            tally=jax.tree.map(lambda _: PartitionSpec(), shapes.tally),
        )
        return jax.tree.map(functools.partial(NamedSharding, self.mesh), places)

    def of_rows(self, shape: tuple[int, ...]) -> NamedSharding:
        """Returns the place of an array of a batch, "B" or "B T"."""
        axes = divided(shape, (ROWS, TOKENS)[: len(shape)], self.mesh.shape)
        return NamedSharding(self.mesh, axes)

    @property
    def share(self) -> tuple[int, ...]:
        """Which of the `row_parts` blocks of rows the devices of this process have, in order.

        They need not be neighbours: the order of a mesh is that of the machine's wires, in which
        the chips of one host may stand apart.
        """
        rows = self.mesh.devices.reshape(self.layout.row_parts, -1)
        here = [any(one.process_index == jax.process_index() for one in row) for row in rows]
        return tuple(number for number, found in enumerate(here) if found)

    def place(self, batch: Batch, *, microbatches: int = 1) -> Batch:
        """Places the rows of a batch, made up to a number that comes out even.

        Args:
            batch: All rows; on several processes, those of the blocks of this one.
            microbatches: Parts in which each device takes its rows, one after another.
        """
        own = {block: place for place, block in enumerate(self.share)}
        batch = padded(batch, len(own) * microbatches)
        size = len(batch.tokens) // len(own)

        def put(x: np.ndarray) -> jax.Array:
            shape = (self.layout.row_parts * size, *x.shape[1:])

            def part(index: Any) -> np.ndarray:
                place = own[(index[0].start or 0) // size]
                return x[(slice(place * size, (place + 1) * size), *index[1:])]

            return jax.make_array_from_callback(shape, self.of_rows(shape), part)

        return jax.tree.map(put, batch)

    def shapes(self, batch: Batch, *, microbatches: int = 1) -> Batch:
        """Returns what `place` makes of all rows of a batch, as shapes with places."""
        even = self.layout.row_parts * microbatches

        def shape(x: Any) -> jax.ShapeDtypeStruct:
            shape = (-(-x.shape[0] // even) * even, *x.shape[1:])
            return jax.ShapeDtypeStruct(shape, x.dtype, sharding=self.of_rows(shape))

        return jax.tree.map(shape, batch)

    def everywhere(self, tree: Any) -> Any:
        """Places arrays whole on every device."""
        return jax.device_put(tree, self.whole)


def arrange(layout: Layout, devices: Sequence[Any] | None = None) -> Arrangement:
    """Lays a layout on devices.

    Args:
        layout: By how much each part of a run is divided.
        devices: The devices; None is those of all processes. The first of them are taken.

    Raises:
        SpecError: If there are fewer than it takes.
    """
    found = jax.devices() if devices is None else devices
    if len(found) < layout.devices:
        raise SpecError(
            "--mesh",
            f"= {layout.label!r} takes {layout.devices} devices and there "
            f"{'is' if len(found) == 1 else 'are'} {len(found)}; make an axis smaller.",
        )
    # On a TPU neighbours on an axis of the mesh should be neighbours in the machine.
    grid = mesh_utils.create_device_mesh(
        layout.sizes, list(found)[: layout.devices], allow_split_physical_axes=True
    )
    return Arrangement(layout, Mesh(grid, MESH_AXES))


def padded(batch: Batch, multiple: int) -> Batch:
    """Adds copies of the last row, none of which is scored, up to a multiple of so many rows."""
    missing = -len(batch.tokens) % multiple
    if not missing:
        return batch
    longer = jax.tree.map(lambda x: np.concatenate([x, *[x[-1:]] * missing]), batch)
    longer.weights[-missing:] = 0
    return longer


def with_places(shapes: Any, places: Any) -> Any:
    """Returns shapes that say where their arrays lie."""

    def placed(shape: Any, place: NamedSharding) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=place)

    return jax.tree.map(placed, shapes, places)
