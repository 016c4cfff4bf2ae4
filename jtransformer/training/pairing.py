"""Hashes by which a sweep proves that its arms are paired: same batches, same initial values."""

import hashlib
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax

from jtransformer.data import Batch
from jtransformer.modules import initialiser
from jtransformer.spec import RunSpec, to_tree
from jtransformer.training.digests import checksums, digest

DIGITS = 16


def pairing_hashes(
    spec: RunSpec,
    batch: Callable[[int], Batch],
    parameters: Any,
    origins: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Returns what two arms of one seed must have in common.

    Args:
        spec: The run.
        batch: Returns a training batch, all rows of it; the first and the last are hashed.
        parameters: Its initial values.
        origins: Where those come from that are not all drawn, by path.
    """
    ends = {"first_batch": 0, "last_batch": spec.training.steps - 1}
    initial = {}
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    for (path, leaf), found in zip(leaves, checksums(parameters), strict=True):
        names = tuple(entry.key for entry in path)
        drawn, name = str(initialiser(spec.model, names, leaf.shape)), "/".join(names)
        initial[name] = {
            "shape": list(leaf.shape),
            "initialiser": f"{drawn}; {origins[name]}" if name in origins else drawn,
            "hash": found,
        }
    hashes = {
        name: "-".join(digest(array)[:DIGITS] for array in batch(t) if array is not None)
        for name, t in ends.items()
    }
    sampling = {
        "data": to_tree(spec.data),
        "objective": to_tree(spec)["objective"],
        "batch_size": spec.training.batch_size,
        "steps": spec.training.steps,
    }
    text = json.dumps(sampling, sort_keys=True).encode()
    return {"sampling": hashlib.sha256(text).hexdigest()[:DIGITS], **hashes, "initial": initial}
