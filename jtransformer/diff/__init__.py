"""Two implementations of one model, compared place by place, and what explains their difference."""

from jtransformer.diff.callables import Called, find
from jtransformer.diff.comparing import Comparison, Row, compare
from jtransformer.diff.difference import Difference, difference
from jtransformer.diff.explaining import Round, Trial
from jtransformer.diff.foreign import Foreign, foreign
from jtransformer.diff.inputs import Inputs, Sizes, drawn, padded
from jtransformer.diff.ours import Ours, ours
from jtransformer.diff.traces import Subject, Trace

__all__ = [
    "Called",
    "Comparison",
    "Difference",
    "Foreign",
    "Inputs",
    "Ours",
    "Round",
    "Row",
    "Sizes",
    "Subject",
    "Trace",
    "Trial",
    "compare",
    "difference",
    "drawn",
    "find",
    "foreign",
    "ours",
    "padded",
]
