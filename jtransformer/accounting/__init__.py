"""Exact integers about a model, from its spec alone: parameters, operations, equal widths."""

from jtransformer.accounting.flops import Flops, flops
from jtransformer.accounting.match import Match, match
from jtransformer.accounting.parameters import Parameters, parameters

__all__ = ["Flops", "Match", "Parameters", "flops", "match", "parameters"]
