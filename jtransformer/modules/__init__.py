"""linen modules: they own parameters and call `jtransformer.functional`."""

from jtransformer.modules.initial import Initialiser, initial_values, initialiser, keys_at
from jtransformer.modules.transformer import Output, Transformer, build

__all__ = [
    "Initialiser",
    "Output",
    "Transformer",
    "build",
    "initial_values",
    "initialiser",
    "keys_at",
]
