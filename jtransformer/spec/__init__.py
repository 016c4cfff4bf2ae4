"""Frozen values that say what to build; no JAX, no state."""

from jtransformer.spec import presets
from jtransformer.spec.errors import SpecError, nearest
from jtransformer.spec.model import (
    GATED_FFNS,
    LayerNorm,
    Learned,
    ModelSpec,
    NoPosition,
    RMSNorm,
    Sinusoidal,
)
from jtransformer.spec.run import (
    Constant,
    DataSpec,
    Kjv,
    OptimizerSpec,
    RunSpec,
    TextFile,
    TrainingSpec,
    WarmupCosine,
)
from jtransformer.spec.tree import (
    Tree,
    differences,
    fingerprint,
    from_tree,
    get,
    prune,
    replace,
    to_tree,
    unread_error,
    unread_settings,
)

__all__ = [
    "GATED_FFNS",
    "Constant",
    "DataSpec",
    "Kjv",
    "LayerNorm",
    "Learned",
    "ModelSpec",
    "NoPosition",
    "OptimizerSpec",
    "RMSNorm",
    "RunSpec",
    "Sinusoidal",
    "SpecError",
    "TextFile",
    "TrainingSpec",
    "Tree",
    "WarmupCosine",
    "differences",
    "fingerprint",
    "from_tree",
    "get",
    "nearest",
    "presets",
    "prune",
    "replace",
    "to_tree",
    "unread_error",
    "unread_settings",
]
