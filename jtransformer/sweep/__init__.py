"""Grids of runs: declared, made equal, identified, trained where missing."""

from jtransformer.sweep.declaration import Declaration, Matching, read_declaration
from jtransformer.sweep.execute import Pairing, PairingError, check_continuation, execute, missing
from jtransformer.sweep.plan import Arm, Cell, Plan, adopt, make_plan, manifest

__all__ = [
    "Arm",
    "Cell",
    "Declaration",
    "Matching",
    "Pairing",
    "PairingError",
    "Plan",
    "adopt",
    "check_continuation",
    "execute",
    "make_plan",
    "manifest",
    "missing",
    "read_declaration",
]
