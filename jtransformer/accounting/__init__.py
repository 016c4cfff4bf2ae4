"""What a model costs, from its spec alone: parameters, operations, bytes, equal widths."""

from jtransformer.accounting.activations import activation_bytes
from jtransformer.accounting.caches import cache_bytes
from jtransformer.accounting.flops import Flops, flops
from jtransformer.accounting.knobs import KNOBS
from jtransformer.accounting.leaves import Leaf, leaves
from jtransformer.accounting.match import Match, match
from jtransformer.accounting.memory import Memory, memory, optimizer_numbers
from jtransformer.accounting.parameters import Parameters, parameters
from jtransformer.accounting.quantities import OF_PARAMETERS, QUANTITIES, Quantity, quantity
from jtransformer.accounting.rows import RowLengths, row_lengths

__all__ = [
    "KNOBS",
    "OF_PARAMETERS",
    "QUANTITIES",
    "Flops",
    "Leaf",
    "Match",
    "Memory",
    "Parameters",
    "Quantity",
    "RowLengths",
    "activation_bytes",
    "cache_bytes",
    "flops",
    "leaves",
    "match",
    "memory",
    "optimizer_numbers",
    "parameters",
    "quantity",
    "row_lengths",
]
