"""Grids of runs: declared, made equal, identified, claimed by workers, trained where missing."""

from jtransformer.sweep.arms import Arm
from jtransformer.sweep.board import Board, CellRecord, PairingError, states
from jtransformer.sweep.continuation import check_continuation, judged_before
from jtransformer.sweep.declaration import Declaration, read_declaration
from jtransformer.sweep.executions import WISHES, Trains, executions
from jtransformer.sweep.factors import Factor, Range
from jtransformer.sweep.launch import Launch, read_launch, write_launch
from jtransformer.sweep.ledger import Claim, Ledger, is_worked_on
from jtransformer.sweep.manifest import adopt, cell_spec, manifest
from jtransformer.sweep.matching import Matching
from jtransformer.sweep.plan import Cell, Plan, Rung, make_plan
from jtransformer.sweep.search import Extension, Search
from jtransformer.sweep.stages import next_stage
from jtransformer.sweep.worker import ClaimLost, Worker

__all__ = [
    "WISHES",
    "Arm",
    "Board",
    "Cell",
    "CellRecord",
    "Claim",
    "ClaimLost",
    "Declaration",
    "Extension",
    "Factor",
    "Launch",
    "Ledger",
    "Matching",
    "PairingError",
    "Plan",
    "Range",
    "Rung",
    "Search",
    "Trains",
    "Worker",
    "adopt",
    "cell_spec",
    "check_continuation",
    "executions",
    "is_worked_on",
    "judged_before",
    "make_plan",
    "manifest",
    "next_stage",
    "read_declaration",
    "read_launch",
    "states",
    "write_launch",
]
