"""What must hold for every Transformer, judged on any model that can be called."""

from jtransformer.checks.parts import Parts
from jtransformer.checks.report import Report, Row
from jtransformer.checks.run import LAWS, NAMES, run_all
from jtransformer.checks.subject import Decoding, NormPart, Source, stacked
from jtransformer.checks.tolerance import Rounding, distance

__all__ = [
    "LAWS",
    "NAMES",
    "Decoding",
    "NormPart",
    "Parts",
    "Report",
    "Rounding",
    "Row",
    "Source",
    "distance",
    "run_all",
    "stacked",
]
