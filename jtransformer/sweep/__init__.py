"""Grids of runs: declared, made equal, identified, trained where missing."""

from jtransformer.sweep.declaration import Declaration, read_declaration
from jtransformer.sweep.execute import PairingError, check_continuation, execute, states
from jtransformer.sweep.matching import Matching
from jtransformer.sweep.plan import Arm, Cell, Plan, adopt, make_plan, manifest

__all__ = [
    "Arm",
    "Cell",
    "Declaration",
    "Matching",
    "PairingError",
    "Plan",
    "adopt",
    "check_continuation",
    "execute",
    "make_plan",
    "manifest",
    "read_declaration",
    "states",
]
