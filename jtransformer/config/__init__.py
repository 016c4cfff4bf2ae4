"""The one door between ConfigDict, which the command line needs, and specs, which mean."""

from typing import Any

import ml_collections
from ml_collections import config_dict

from jtransformer.spec import RunSpec, SpecError, Tree, from_tree, to_tree

__all__ = ["from_config", "to_config", "to_plain"]


def to_config(spec: RunSpec) -> Any:
    """Writes a run as a ConfigDict, every setting of every kind written out.

    The result is typed as Any, since type checkers cannot see the settings of a ConfigDict.

    The settings are not type-safe inside the ConfigDict: an optional one would lose its type,
    and integers would be accepted for booleans. `from_config` checks all of them instead.
    """
    return ml_collections.ConfigDict(to_tree(spec, all_kinds=True), type_safe=False)


def from_config(
    config: ml_collections.ConfigDict, *, touched: frozenset[str] = frozenset()
) -> RunSpec:
    """Reads a run from a ConfigDict, strictly; see `jtransformer.spec.from_tree`."""
    return from_tree(to_plain(config), touched=touched)


def to_plain(config: ml_collections.ConfigDict) -> Tree:
    """Returns a ConfigDict's content as nested dicts.

    Raises:
        SpecError: If a required placeholder was left empty.
    """
    try:
        return config.to_dict()
    except config_dict.RequiredValueError as error:
        raise SpecError("", "A required placeholder of the config has no value; set it.") from error
