"""Ways to read matrices wrongly: faults of loading, planted in the parameters of a twin."""

import numpy as np
from diff_models import D, H, N


def layered(edit):
    """Returns a fault of loading the attention or feed-forward parameters of every layer."""

    def apply(tree):
        return {k: edit(dict(v)) if k.startswith("layer_") else v for k, v in tree.items()}

    return apply


def kernels(module, **edits):
    """Returns a fault of loading kernels, by the names of the matrices."""

    def edit(layer):
        tree = dict(layer[module])
        for name, change in edits.items():
            tree[name] = {"kernel": change(tree[name]["kernel"])}
        return {**layer, module: tree}

    return layered(edit)


def flipped(kernel):
    """Reads a square matrix with inputs and outputs swapped."""
    flat = kernel.reshape(D, D)
    return np.ascontiguousarray(flat.T).reshape(kernel.shape)


def by_heads(layer):
    """Reads a fused matrix [3, N, H] as if it were [N, 3, H]."""
    tree = dict(layer["attention"])
    roles = ("query", "key", "value")
    fused = np.concatenate([tree[role]["kernel"].reshape(D, N * H) for role in roles], 1)
    taken = fused.reshape(D, N, 3, H)
    tree |= {role: {"kernel": taken[:, :, i]} for i, role in enumerate(roles)}
    return {**layer, "attention": tree}


def channels_first(kernel):
    """Reads the outputs [N, H] of a projection as [H, N]."""
    return kernel.reshape(D, H, N).transpose(0, 2, 1)


def swapped(layer):
    ffn = layer["ffn"]
    return {**layer, "ffn": {**ffn, "gate": ffn["up"], "up": ffn["gate"]}}
