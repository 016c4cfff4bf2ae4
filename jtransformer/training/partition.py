"""Which axis of a parameter lies over which axis of a mesh: one table, by the parameter's path.

Over tensor lie heads, hidden units and the vocabulary, so that a product with a matrix needs no
other device before its result is summed. Over fsdp lies the width of the model, the axis that
matrices have besides. What is small, norms and most biases, is whole everywhere. Layers that are
stacked for a scan have an axis before all others, which is never divided: every device has its
part of every layer.

Sources: those of `jtransformer.spec.layout`.
"""

import math
import re
from typing import Any

import jax
from jax.sharding import PartitionSpec

from jtransformer.modules import divided
from jtransformer.modules.initial import STACKED
from jtransformer.spec import MESH_AXES, Layout

RULES: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    (r"(source_)?embedding/table", ("tensor", "fsdp")),
    (r"position/table", (None, "fsdp")),
    (r"(cross_)?attention/(query|query_rotary|key|value)/kernel", ("fsdp", "tensor", None)),
    (r"(cross_)?attention/(query|key|value)/bias", ("tensor", None)),
    (r"(cross_)?attention/(latent|key_rotary)/kernel", ("fsdp", None)),
    (r"(cross_)?attention/out/kernel", ("tensor", None, "fsdp")),
    (r"ffn/(in|gate|up)/kernel", ("fsdp", "tensor")),
    (r"ffn/(in|gate|up)/bias", ("tensor",)),
    (r"ffn/(out|down)/kernel", ("tensor", "fsdp")),
    (r"(head_transform|pooler)/kernel", ("fsdp", None)),
    (r"head/kernel", ("fsdp", "tensor")),
    (r"head/bias", ("tensor",)),
)
"""The end of a path, and the places of the axes; what matches none is whole."""

Path = tuple[str, ...]


def partition(path: Path, shape: tuple[int, ...], layout: Layout) -> PartitionSpec:
    """Returns where the axes of a parameter lie.

    Args:
        path: Names down to the parameter.
        shape: Its shape.
        layout: How many devices each axis of the mesh has; one that does not divide an axis of
            the parameter leaves it whole.
    """
    return divided(shape, _axes(path, len(shape)), _sizes(layout))


def sizes_over(parameters: Any, axis: str) -> list[int]:
    """Returns the sizes of what may lie over an axis of a mesh, each once, the smallest first.

    Args:
        parameters: The parameters, or their shapes.
        axis: One of `MESH_AXES`.
    """
    found = {
        size
        for path, leaf in jax.tree_util.tree_leaves_with_path(parameters)
        for over, size in zip(_axes(names_of(path), leaf.ndim), leaf.shape, strict=True)
        if over == axis
    }
    return sorted(found)


def partition_moments(path: Path, shape: tuple[int, ...], layout: Layout) -> PartitionSpec:
    """Returns where the axes of an optimizer's state lie that has the shape of a parameter.

    With `shard_optimizer` one more of them lies over data: the largest part that it divides.
    """
    own = tuple(partition(path, shape, layout))
    if not layout.shard_optimizer:
        return PartitionSpec(*own)
    parts = {axis: shape[axis] // _parts(own[axis], layout) for axis in range(len(shape))}
    first = int(STACKED in path)
    fits = [axis for axis in parts if axis >= first and parts[axis] % layout.data == 0]
    if not fits:
        return PartitionSpec(*own)
    chosen = max(fits, key=lambda axis: parts[axis])
    return PartitionSpec(*own[:chosen], (*_names(own[chosen]), "data"), *own[chosen + 1 :])


def divisions(spec: PartitionSpec, layout: Layout) -> int:
    """Returns into how many parts an array is divided that lies as a `PartitionSpec` says."""
    return math.prod(_parts(over, layout) for over in spec)


def partition_parameters(parameters: Any, layout: Layout) -> Any:
    """Returns the tree of `partition` for a tree of parameters or of their shapes."""

    def of_leaf(path: Any, leaf: Any) -> PartitionSpec:
        return partition(names_of(path), leaf.shape, layout)

    return jax.tree_util.tree_map_with_path(of_leaf, parameters)


def partition_optimizer(optimizer: Any, parameters: Any, layout: Layout) -> Any:
    """Returns where each array of an optimizer's state lies.

    One that has the shape of a parameter, below that parameter's path, lies as the parameter
    does; statistics of rows and columns and counts are whole.

    Args:
        optimizer: The state, or its shapes.
        parameters: The parameters, or their shapes.
        layout: How many devices each axis of the mesh has.
    """
    known = {
        names_of(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(parameters)
    }

    def of_leaf(path: Any, leaf: Any) -> PartitionSpec:
        names = names_of(path)
        # What stands before the path of the parameter is the optimizer's own.
        owners = [names[start:] for start in range(len(names)) if names[start:] in known]
        if not owners or known[owners[0]] != leaf.shape:
            return PartitionSpec()
        return partition_moments(owners[0], leaf.shape, layout)

    return jax.tree_util.tree_map_with_path(of_leaf, optimizer)


def names_of(path: Any) -> Path:
    """Returns the names of a path of a tree; places in tuples have none."""
    keys = (entry for entry in path if isinstance(entry, jax.tree_util.DictKey))
    return tuple(str(entry.key) for entry in keys)


def _axes(path: Path, ndim: int) -> tuple[str | None, ...]:
    """Returns over which axis of a mesh each axis of a parameter may lie, by the table."""
    first = int(STACKED in path)
    axes = (None,) * (ndim - first)
    for rule, found in RULES:
        # A whole name: "head" is no end of "other_head".
        if re.fullmatch(rf"(.*/)?{rule}", "/".join(path)) and len(found) == len(axes):
            axes = found
    return (None,) * first + axes


def _parts(over: Any, layout: Layout) -> int:
    return math.prod(getattr(layout, name) for name in _names(over))


def _names(over: Any) -> tuple[str, ...]:
    return (over,) if isinstance(over, str) else over or ()


def _sizes(layout: Layout) -> dict[str, int]:
    return dict(zip(MESH_AXES, layout.sizes, strict=True))
