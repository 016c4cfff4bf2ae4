"""Reads a Hugging Face directory: a spec, its parameters, and what comes with them."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from jtransformer.interop.expressing import read_with
from jtransformer.interop.families import FAMILIES
from jtransformer.interop.family import Family
from jtransformer.interop.files import (
    CONFIG,
    TOKENIZER_FILES,
    Store,
    is_there,
    open_store,
    read_config,
)
from jtransformer.interop.layouts import Shape
from jtransformer.interop.mapping import (
    Match,
    matched,
    nested,
    read_leaves,
    rules_of,
    shapes_of,
    stored_leaves,
)
from jtransformer.spec import ModelSpec, SpecError

StoredType = Literal["float32", "float64", "stored"]


class Loaded(NamedTuple):
    """What a directory holds.

    Attributes:
        spec: What the model is.
        variables: `{"params": tree}`, of layers in a loop.
        family: Name of its family.
        config: Its config.json.
        files: Files that are carried along: its tokenizer's, and settings of generation.
    """

    spec: ModelSpec
    variables: dict[str, Any]
    family: str
    config: dict[str, Any]
    files: tuple[Path, ...]


def load(directory: str | Path, *, dtype: StoredType = "float32") -> Loaded:
    """Reads a model from a Hugging Face directory.

    Args:
        directory: Holds config.json and the weights: safetensors, in one file or in shards, or
            pickled ones.
        dtype: Type of the parameters; "stored" leaves each as it is, so that `save` writes the
            same bits. "float64" needs `jax.enable_x64`.

    Raises:
        SpecError: If the directory cannot be read, its family is not known, a setting cannot be
            expressed, or tensors are missing, left over or misshapen.
    """
    found, matches, shapes, store = _surveyed(directory)
    leaves = dict(read_leaves(matches, shapes, store, _converter(dtype)))
    return found._replace(variables={"params": nested(leaves)})


def unread(directory: str | Path) -> Loaded:
    """Reads all of a directory but the numbers.

    Returns:
        What `load` returns; the leaves of its variables have a `shape` and are read by their
        method `read`, one at a time.

    Raises:
        SpecError: As for `load`; but that two names of one tensor differ is found by reading.
    """
    found, matches, shapes, store = _surveyed(directory)
    leaves = stored_leaves(matches, shapes, store)
    return found._replace(variables={"params": nested(leaves)})


def _surveyed(
    directory: str | Path,
) -> tuple[Loaded, list[Match], dict[str, Shape], Store]:
    """Reads a directory without its numbers, and finds out where each parameter is."""
    directory = Path(directory).expanduser()
    config = read_config(directory)
    family = family_of(config)
    store = open_store(directory)
    spec = read_with(family, config, CONFIG, frozenset(store.shapes))
    shapes = shapes_of(spec)
    matches = matched(family, rules_of(family, spec, shapes), shapes, store)
    files = tuple(path for name in TOKENIZER_FILES if is_there(path := directory / name))
    return Loaded(spec, {}, family.name, config, files), matches, shapes, store


def family_of(config: dict[str, Any]) -> Family:
    """Finds the family of a config.

    Raises:
        SpecError: If none reads its model_type, or none its class.
    """
    kind = config.get("model_type")
    for family in FAMILIES:
        if kind in family.model_types:
            names = config.get("architectures") or [family.architectures[0]]
            if (
                not isinstance(names, list)
                or len(names) != 1
                or names[0] not in family.architectures
            ):
                raise SpecError(
                    "architectures",
                    f"= {names!r} in {CONFIG} cannot be read; those of {family.name} that can: "
                    f"{', '.join(family.architectures)}.",
                )
            return family
    known = ", ".join(sorted(kind for family in FAMILIES for kind in family.model_types))
    raise SpecError(
        "model_type", f"= {kind!r} in {CONFIG} is not known; what can be read: {known}."
    )


def _converter(dtype: StoredType) -> Any:
    def convert(array: np.ndarray) -> Any:
        kind = array.dtype if dtype == "stored" else np.dtype(dtype)
        return jnp.asarray(np.ascontiguousarray(array, kind))

    return convert
