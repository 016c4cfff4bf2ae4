"""The one door between ConfigDict, which the command line needs, and specs, which mean."""

from collections.abc import Iterator
from typing import Any

import ml_collections
from ml_collections import config_dict

from jtransformer.spec import RunSpec, SpecError, Tree, from_tree, to_tree

__all__ = ["from_config", "inherited_settings", "to_config", "to_plain"]

_WRITTEN = "_jtransformer_written"
"""Where a ConfigDict keeps what `to_config` wrote: an attribute, so that it is no setting."""


def to_config(spec: RunSpec) -> Any:
    """Writes a run as a ConfigDict, every setting of every kind written out.

    The result is typed as Any, since type checkers cannot see the settings of a ConfigDict.

    The settings are not type-safe inside the ConfigDict: an optional one would lose its type,
    and integers would be accepted for booleans. `from_config` checks all of them instead.
    """
    tree = to_tree(spec, all_kinds=True)
    config = ml_collections.ConfigDict(tree, type_safe=False)
    object.__setattr__(config, _WRITTEN, tree)
    return config


def from_config(
    config: ml_collections.ConfigDict, *, touched: frozenset[str] = frozenset()
) -> RunSpec:
    """Reads a run from a ConfigDict, strictly; see `jtransformer.spec.from_tree`."""
    inherited = inherited_settings(config)
    return from_tree(to_plain(config), touched=touched, inherited=inherited)


def inherited_settings(config: ml_collections.ConfigDict) -> frozenset[str]:
    """Returns the dotted paths whose values are still those that `to_config` wrote.

    A preset's setting of a kind that is then exchanged for another is nobody's mistake. A copy of
    a ConfigDict has forgotten what was written: it inherits nothing.
    """
    written = getattr(config, _WRITTEN, {})
    return frozenset(_equal_paths(to_plain(config), written, ""))


def _equal_paths(tree: Tree, written: Tree, prefix: str) -> Iterator[str]:
    for name in tree.keys() & written.keys():
        value, before = tree[name], written[name]
        if isinstance(value, dict) and isinstance(before, dict):
            yield from _equal_paths(value, before, f"{prefix}{name}.")
        elif value == before:
            yield prefix + name


def to_plain(config: ml_collections.ConfigDict) -> Tree:
    """Returns a ConfigDict's content as nested dicts.

    Raises:
        SpecError: If a required placeholder was left empty.
    """
    try:
        return config.to_dict()
    except config_dict.RequiredValueError as error:
        raise SpecError("", "A required placeholder of the config has no value; set it.") from error
