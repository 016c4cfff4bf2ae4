"""Attends on eight CPU devices and compares with one: run in its own process.

The kernel for TPUs is interpreted by Pallas, on the part of each device.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from quickly import is_array, quickly

from jtransformer import functional as F
from jtransformer.modules import Placement
from jtransformer.modules.sharded_attention import Chosen, cuts, divided_attention
from jtransformer.spec import MESH_AXES

T, H, Hv = 128, 8, 16
WINDOW = dict(mask=F.Visibility.of_places(T, window=50), soft_cap=2.0)


def heads(B, N, K):
    """Queries, keys and values; each size of an axis is another."""
    shapes = (B, T, N, H), (B, T, K, H), (B, T, K, Hv)
    return [jax.random.normal(jax.random.key(n), shape) for n, shape in enumerate(shapes)]


def documents(B):
    """Packed documents and padding: arrays of each row, which lie where the rows do."""
    segments = jnp.tile(jnp.arange(T) // 50, (B, 1)) + jnp.arange(B)[:, None]
    return dict(mask=F.Visibility.of_places(T, segments=segments, valid=segments < B + 1))


def derivatives(attend, arrays, options):
    given = {name: value for name, value in options.items() if is_array(value)}
    fixed = {name: value for name, value in options.items() if name not in given}

    @quickly
    def both(arrays, given):
        out, pull = jax.vjp(functools.partial(attend, **given, **fixed), *arrays)
        return out, pull(jnp.cos(out))

    return jax.tree.leaves(both(arrays, given))


def assert_same(attend, arrays, options):
    plain = functools.partial(F.dot_product_attention, backend="plain")
    found, expected = (derivatives(which, arrays, options) for which in (attend, plain))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=3e-5)


def by_backend(mesh, backend, *arrays, mask=None, bias=None, soft_cap=None):
    whole, split = cuts(mesh, arrays[0])
    chosen = Chosen(backend, split if backend == "blockwise" else whole)
    options = {"mask": mask, "bias": bias, "soft_cap": soft_cap, "scale": None}
    return divided_attention(chosen, arrays, None, **options)


def main():
    assert jax.device_count() == 8, jax.devices()
    mesh_of = {
        sizes: Mesh(np.array(jax.devices()).reshape(sizes), MESH_AXES)
        for sizes in ((2, 2, 2, 1), (1, 2, 4, 1), (1, 1, 2, 4), (1, 2, 2, 2))
    }
    # Rows and heads; rows that the devices do not divide and 2 heads of keys for 4 devices; all
    # tokens of one head for each device.
    for sizes, (B, N, K), options in (
        ((2, 2, 2, 1), (4, 4, 2), documents(4)),
        ((1, 2, 4, 1), (3, 4, 2), WINDOW),
        ((1, 1, 2, 4), (1, 8, 1), {}),
    ):
        attend = functools.partial(by_backend, mesh_of[sizes], "splash")
        assert_same(attend, heads(B, N, K), options)
    # A part of the queries for each device, since 6 heads cannot be exchanged for them.
    mesh, arrays = mesh_of[1, 2, 2, 2], heads(2, 6, 3)
    options = documents(2) | {"bias": jax.random.normal(jax.random.key(3), (1, 6, T, T))}
    assert_same(functools.partial(by_backend, mesh, "blockwise"), arrays, options)
    # What one device of this mesh has is computed at once.
    heads_on = jnp.arange(6) != 3
    assert_same(Placement(mesh).attend, arrays, documents(2) | {"heads_on": heads_on})


if __name__ == "__main__":
    main()
