"""Attention on the devices of a mesh, each of which computes its rows and heads by itself.

XLA divides products and sums by itself, but not a kernel: that would be handed all rows and all
heads on every device. Here each device calls the backend on its own part, under `jax.shard_map`.

A kernel needs whole sequences. Where tokens lie over devices, those exchange tokens for heads, so
that each has all tokens of some heads, and change back afterwards (Jacobs et al. 2023, sec. 3.1,
https://arxiv.org/abs/2309.14509). Where these heads are too few, and in blocks of queries, a device
keeps its queries and gathers the keys and values.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import ShapeDtypeStruct
from jax.sharding import AbstractMesh, Mesh, PartitionSpec
from jaxtyping import Array

from jtransformer import functional as F
from jtransformer.functional.attention_backends import Backend
from jtransformer.spec import MESH_AXES

DATA, FSDP, TENSOR, SEQUENCE = MESH_AXES
KERNELS = ("fused", "splash")

Axes = tuple[str, ...]
Devices = Mesh | AbstractMesh
Shaped = Array | ShapeDtypeStruct
Mask = Array | F.Visibility | None


class Cut(NamedTuple):
    """Over which axes of a mesh rows, queries and heads lie; none is everywhere.

    Attributes:
        mesh: The devices.
        rows: Axes of the rows.
        tokens: Axes of the queries; keys are whole.
        heads: Axes of the heads.
    """

    mesh: Devices
    rows: Axes
    tokens: Axes
    heads: Axes

    def parts(self, axes: Axes) -> int:
        """Returns into how many parts axes of the mesh divide what lies over them."""
        return math.prod(self.mesh.shape[axis] for axis in axes)

    def repeated(self, x_BSKH: Array) -> Array:
        """Repeats keys or values until each device has the head that its queries read."""
        K = x_BSKH.shape[2]
        return jnp.repeat(x_BSKH, math.lcm(K, self.parts(self.heads)) // K, axis=2)

    def shape(self, x: Shaped, *, is_query: bool) -> ShapeDtypeStruct:
        """Returns what one device has of queries, keys or values."""
        B, T, N, H = x.shape
        parts = self.parts(self.heads)
        heads = N // parts if is_query else math.lcm(N, parts) // parts
        tokens = T // self.parts(self.tokens) if is_query else T
        return ShapeDtypeStruct((B // self.parts(self.rows), tokens, heads, H), x.dtype)

    def specs(self, *, is_query: bool) -> PartitionSpec:
        """Returns where queries, keys or values lie."""
        return PartitionSpec(self.rows, self.tokens if is_query else None, self.heads, None)

    def seen(self, mask: Mask) -> Mask:
        """Returns a mask that does not take a part of the queries for all of them."""
        if isinstance(mask, F.Visibility) and self.tokens:
            return dataclasses.replace(mask, by_place=False)
        return mask

    def mask_specs(self, mask: Mask, q: Array) -> Any:
        """Returns where a mask lies, or what one is drawn from."""
        if not isinstance(mask, F.Visibility):
            return self.bias_specs(mask, q)

        def specs(path: Any, leaf: Any) -> PartitionSpec:
            rows = self.rows if jnp.ndim(leaf) and len(leaf) == len(q) else None
            tokens = self.tokens if path[-1].name.startswith("query_") else None
            return PartitionSpec(*(rows, tokens)[: jnp.ndim(leaf)])

        return jax.tree_util.tree_map_with_path(specs, mask)

    def bias_specs(self, x: Array | None, q: Array) -> PartitionSpec | None:
        """Returns where an array with the axes of the scores lies, each of them full or 1."""
        if x is None:
            return None
        sizes = zip(x.shape, (len(q), q.shape[2], q.shape[1]), strict=False)
        over = zip(sizes, (self.rows, self.heads, self.tokens), strict=True)
        return PartitionSpec(*(axes if have == full else None for (have, full), axes in over), None)


def cuts(mesh: Devices, q: Shaped) -> tuple[Cut | None, Cut]:
    """Returns how attention is divided by rows and heads alone, and by queries too.

    What its axes do not divide stays whole. The first is None where tokens lie over devices and
    the heads are too few to be exchanged for them.
    """
    B, T, N, _ = q.shape

    def dividing(size: int, *axes: str) -> Axes:
        axes = tuple(axis for axis in axes if mesh.shape[axis] > 1)
        return axes if size % math.prod(mesh.shape[axis] for axis in axes) == 0 else ()

    rows, tokens = dividing(B, DATA, FSDP), dividing(T, SEQUENCE)
    split = Cut(mesh, rows, tokens, dividing(N, TENSOR))
    heads = dividing(N, TENSOR, SEQUENCE)
    exchanged = mesh.shape[SEQUENCE] == 1 or SEQUENCE in heads
    return Cut(mesh, rows, (), heads) if exchanged else None, split


class Chosen(NamedTuple):
    """How attention is computed: by which backend, and how it is divided."""

    backend: Backend
    cut: Cut


def choose(
    mesh: Devices,
    arrays: tuple[Shaped, Shaped, Shaped],
    platform: str | None,
    options: dict[str, Any],
) -> Chosen:
    """Chooses by what one device has.

    Args:
        mesh: The devices.
        arrays: Queries, keys and values, whole.
        platform: What the program is compiled for, as for `attention_backend`.
        options: The other arguments of `attention_backend`.
    """
    whole, split = cuts(mesh, arrays[0])

    def backend(cut: Cut) -> Backend:
        shapes = [cut.shape(x, is_query=n == 0) for n, x in enumerate(arrays)]
        seen = {"mask": cut.seen(options["mask"])}
        return F.attention_backend(*shapes, **options | seen, platform=platform)

    if whole is not None:
        found = backend(whole)
        if found in KERNELS:
            return Chosen(found, whole)
    return Chosen(backend(split), split)


def divided_attention(
    chosen: Chosen,
    arrays: tuple[Array, Array, Array],
    platform: str | None,
    *,
    mask: Mask,
    bias: Array | None,
    scale: float | None,
    soft_cap: float | None,
) -> Array:
    """Computes `dot_product_attention` without dropout, each device its part.

    Args:
        chosen: By which backend, and which parts.
        arrays: Queries, keys and values, whole.
        platform: What the program is compiled for, as for `attention_backend`.
        mask: As for `dot_product_attention`; drawn ones have four axes.
        bias: Likewise, of four axes.
        scale: As there.
        soft_cap: As there.
    """
    (q, k, v), cut = arrays, chosen.cut
    mask = cut.seen(mask)
    attend = functools.partial(
        F.dot_product_attention,
        scale=scale,
        soft_cap=soft_cap,
        backend=chosen.backend,
        platform=platform,
    )

    def of_device(q: Array, k: Array, v: Array, mask: Mask, bias: Array | None) -> Array:
        return attend(q, k, v, mask=mask, bias=bias)

    queries, keys = cut.specs(is_query=True), cut.specs(is_query=False)
    masks = cut.mask_specs(mask, q), cut.bias_specs(bias, q)
    divided = jax.shard_map(
        of_device,
        mesh=cut.mesh,
        in_specs=(queries, keys, keys, *masks),
        out_specs=queries,
        # Pallas does not say over which axes its results differ.
        check_vma=False,
    )
    return divided(q, cut.repeated(k), cut.repeated(v), mask, bias)
