"""What a model did with its inputs: values by place, and the types of its numbers."""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.diff.inputs import Inputs

ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
"""Largest relative error of rounding to a type: half the gap behind 1 (IEEE 754, sec. 3)."""


class Trace(NamedTuple):
    """What a model did with its inputs.

    Attributes:
        values: Intermediates by place, logits and loss among them.
        stored: The coarsest type that holds all its parameters exactly; empty if not known.
        computed: The coarsest type it was computed in.
        gradients: Gradients of the loss by place; empty where not asked for.
        parameter_gradients: The same by path of the parameter.
    """

    values: dict[str, np.ndarray]
    stored: str = "float32"
    computed: str = "float32"
    gradients: dict[str, np.ndarray] = {}
    parameter_gradients: dict[str, np.ndarray] = {}


class Subject(Protocol):
    """One side of a comparison."""

    @property
    def name(self) -> str:
        """What the user called it."""
        ...

    def trace(self, inputs: Inputs, *, gradients: bool = False) -> Trace:
        """Runs it."""
        ...


def stored_type(leaves: list[Any]) -> str:
    """Returns the coarsest type that holds all values exactly.

    What a checkpoint was stored in is so known from its numbers, whatever type they have now.

    Args:
        leaves: Arrays of parameters.
    """
    arrays = [np.asarray(leaf) for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    for name in ("bfloat16", "float16", "float32"):
        if all(_holds(array, name) for array in arrays):
            return name
    return "float64"


def _holds(array: np.ndarray, name: str) -> bool:
    with np.errstate(over="ignore"):
        rounded = array.astype(jnp.dtype(name)).astype(array.dtype)
    return bool(np.array_equal(rounded, array, equal_nan=True))


def coarsest(names: list[str]) -> str:
    """Returns the type of a list that rounds most."""
    return max(names, key=lambda name: ROUNDOFF[name])


def computed_type(arrays: list[np.ndarray]) -> str:
    """Returns the coarsest floating-point type of arrays; float32 where there is none."""
    found = [str(array.dtype) for array in arrays]
    return coarsest([name for name in found if name in ROUNDOFF] or ["float32"])


def to_numpy(tree: dict[str, jax.Array]) -> dict[str, np.ndarray]:
    """Returns arrays that no device holds."""
    return {name: np.asarray(value) for name, value in tree.items()}
