"""Frozen dataclasses that pass through JAX's transformations like an array."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax


def register_value(cls: type, *, leaves: Sequence[str], static: Sequence[str]) -> None:
    """Makes a pytree of a dataclass: `leaves` are its arrays, `static` belongs to the program."""

    def flatten(value: Any) -> tuple[list[Any], tuple[Any, ...]]:
        arrays = [(jax.tree_util.GetAttrKey(name), getattr(value, name)) for name in leaves]
        return arrays, tuple(getattr(value, name) for name in static)

    def unflatten(options: tuple[Any, ...], arrays: Iterable[Any]) -> Any:
        # JAX puts shapes, axes and placeholders into the fields too, so nothing is checked here.
        value = object.__new__(cls)
        for name, field in zip((*leaves, *static), (*arrays, *options), strict=True):
            object.__setattr__(value, name, field)
        return value

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
