"""linen modules: they own parameters and call `jtransformer.functional`."""

from jtransformer.modules.cache import DecodingCache
from jtransformer.modules.convert import stack_layers, unstack_layers
from jtransformer.modules.dropping import DropoutRates
from jtransformer.modules.empty_cache import empty_cache
from jtransformer.modules.heads import Scores
from jtransformer.modules.initial import Initialiser, initial_values, initialiser, keys_at
from jtransformer.modules.placement import ONE_DEVICE, Placement, divided
from jtransformer.modules.transformer import Output, Transformer, build

__all__ = [
    "ONE_DEVICE",
    "DecodingCache",
    "DropoutRates",
    "Initialiser",
    "Output",
    "Placement",
    "Scores",
    "Transformer",
    "build",
    "divided",
    "empty_cache",
    "initial_values",
    "initialiser",
    "keys_at",
    "stack_layers",
    "unstack_layers",
]
