"""What makes a run the run that it is."""

import hashlib
import json

from jtransformer.spec.run import RunSpec
from jtransformer.spec.tree import Tree, to_tree

LATER = (
    "training.probe_steps",
    "training.microbatches",
    "loss.chunk",
    "model.precision",
    "model.first_norm",
    "model.position.rope.window_theta",
    "model.head.tokens.transform_bias",
    "start_from",
)
"""Paths of fields that came after runs had been recorded without them."""


def identity_tree(spec: RunSpec) -> Tree:
    """Writes a run as `to_tree` does, without what came later and is not used.

    So that runs which began before a field was there stay the runs that they are.
    """
    tree = to_tree(spec)
    for path in LATER:
        *parts, name = path.split(".")
        own, branch = spec, tree
        for part in parts:
            if "kind" not in branch:
                own = getattr(own, part)
            # Nothing lies there if another kind is chosen.
            branch = branch.get(part, {})
        if name in branch and getattr(own, name) == getattr(type(own), name):
            del branch[name]
    return tree


def fingerprint(
    spec: RunSpec, data_sha256: str, schema: int, start_sha256: str | None = None
) -> str:
    """Returns the identity of a run: 64 hex digits over spec, seed, data and schema version.

    Names of files do not count, their content does: `data_sha256` stands for the source and for
    the tokenizer, `start_sha256` for the parameters that `start_from` names.

    Raises:
        ValueError: If there is one of `start_from` and `start_sha256` alone.
    """
    if (spec.start_from is None) != (start_sha256 is None):
        raise ValueError(
            f"start_sha256 must be the hash of what start_from names, got {start_sha256!r} for "
            f"start_from={spec.start_from!r}; give both or none."
        )
    tree = identity_tree(spec)
    if start_sha256 is not None:
        tree["start_from"] = {"sha256": start_sha256}
    tree["data"]["source"] = {"sha256": data_sha256}
    tree["data"]["tokenizer"].get("file", {}).pop("path", None)
    text = json.dumps({"schema": schema, "spec": tree}, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
