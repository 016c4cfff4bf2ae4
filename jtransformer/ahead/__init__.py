"""Ahead of time: a run compiled for machines that are not here, and what that tells of it."""

from jtransformer.ahead.candidates import Candidate, candidates, layouts
from jtransformer.ahead.collectives import Collective
from jtransformer.ahead.compiling import Compiled, CompileReport, compile_run
from jtransformer.ahead.memory import DeviceMemory
from jtransformer.ahead.programs import Decoding, decoding_of, programs_of
from jtransformer.ahead.roofline import Roofline, Work, roofline
from jtransformer.ahead.search import Ranking, Tried, search
from jtransformer.ahead.topologies import (
    ENVIRONMENT,
    LOCAL,
    Topology,
    check_layout,
    default_layout,
    topology,
)

__all__ = [
    "ENVIRONMENT",
    "LOCAL",
    "Candidate",
    "Collective",
    "Compiled",
    "Decoding",
    "DeviceMemory",
    "Ranking",
    "CompileReport",
    "Roofline",
    "Topology",
    "Tried",
    "Work",
    "candidates",
    "check_layout",
    "compile_run",
    "decoding_of",
    "default_layout",
    "layouts",
    "programs_of",
    "roofline",
    "search",
    "topology",
]
