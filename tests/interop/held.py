"""Tensors of a family that are held in memory, without a file or a reference."""

import numpy as np

from jtransformer.interop import family_named
from jtransformer.interop.files import Store
from jtransformer.interop.mapping import matched, read_leaves, rules_of, shapes_of, their_tensors
from jtransformer.spec import ModelSpec


class Held(Store):
    """Tensors that are held in memory."""

    def __init__(self, tensors: dict[str, np.ndarray]):
        self.tensors = tensors
        self.shapes = {name: array.shape for name, array in tensors.items()}
        self.dtypes = dict.fromkeys(tensors, "F32")

    def read(self, name: str) -> np.ndarray:
        return self.tensors[name]


def stored(family: str, spec: ModelSpec) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Returns random parameters of a spec, and the same as the family stores them."""
    shapes = shapes_of(spec)
    generator = np.random.default_rng(3)
    leaves = {path: generator.normal(size=shape) for path, shape in shapes.items()}
    rules = rules_of(family_named(family), spec, shapes)
    return leaves, dict(their_tensors(rules, leaves))


def read_again(
    family: str, spec: ModelSpec, tensors: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the parameters that stored tensors hold."""
    shapes, store = shapes_of(spec), Held(tensors)
    rules = rules_of(family_named(family), spec, shapes)
    matches = matched(family_named(family), rules, shapes, store)
    return dict(read_leaves(matches, shapes, store, np.array))
