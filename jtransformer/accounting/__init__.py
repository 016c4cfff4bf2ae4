"""What a model costs, from its spec alone: parameters, operations, bytes, equal widths."""

from jtransformer.accounting.activations import activation_bytes
from jtransformer.accounting.caches import cache_bytes
from jtransformer.accounting.chips import CHIPS, Chip, chip, chip_of
from jtransformer.accounting.flops import Flops, flops
from jtransformer.accounting.knobs import KNOBS
from jtransformer.accounting.leaves import Leaf, leaves
from jtransformer.accounting.match import Match, match
from jtransformer.accounting.memory import Memory, memory, optimizer_numbers
from jtransformer.accounting.parameters import Parameters, parameters
from jtransformer.accounting.quantities import OF_PARAMETERS, QUANTITIES, Quantity, quantity
from jtransformer.accounting.utilisation import utilisation

__all__ = [
    "CHIPS",
    "KNOBS",
    "OF_PARAMETERS",
    "QUANTITIES",
    "Chip",
    "Flops",
    "Leaf",
    "Match",
    "Memory",
    "Parameters",
    "Quantity",
    "activation_bytes",
    "cache_bytes",
    "chip",
    "chip_of",
    "flops",
    "leaves",
    "match",
    "memory",
    "optimizer_numbers",
    "parameters",
    "quantity",
    "utilisation",
]
