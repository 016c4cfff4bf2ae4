"""Trains on eight CPU devices under `shard_map` and compares with one: run in its own process.

The mesh is 4 × 2: the batch over four, the heads and hidden units over two. A branch is then
a part of a sum, which `psum` completes before it joins the stream.
"""

import functools

import jax
import numpy as np
import tiny_block
from jax.sharding import Mesh, PartitionSpec
from quickly import quickly

HEADS_AXIS = {"query": 1, "key": 1, "value": 1, "out": 0, "gate": 1, "up": 1, "down": 0}


def layer_specs():
    """Where each parameter of a layer is split over `tensor`."""
    specs = {}
    for name, shape in tiny_block.LAYER_SHAPES.items():
        axes = ["tensor" if HEADS_AXIS.get(name) == axis else None for axis in range(len(shape))]
        specs[name] = PartitionSpec(*axes)
    return specs


def sharded_loss(mesh):
    """The mean loss over all devices, from sums that each device has of its part."""
    specs = {"table": PartitionSpec(), "layers": (layer_specs(),) * tiny_block.LAYERS}
    join = functools.partial(jax.lax.psum, axis_name="tensor")

    def part(p, rows):
        sums = tiny_block.losses(p, rows, functools.partial(tiny_block.layer, join=join))
        total = jax.lax.psum(sums.loss_sum, "data")
        return total / jax.lax.psum(sums.weight_sum, "data")

    in_specs = (specs, PartitionSpec("data"))
    return jax.shard_map(part, mesh=mesh, in_specs=in_specs, out_specs=PartitionSpec())


def main():
    assert jax.device_count() == 8, jax.devices()
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "tensor"))
    p, rows = tiny_block.parameters(), tiny_block.token_rows()
    expected = quickly(jax.value_and_grad(tiny_block.mean_loss))(p, rows)
    found = quickly(jax.value_and_grad(sharded_loss(mesh)))(p, rows)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), found, expected)


if __name__ == "__main__":
    main()
