"""The report of a sweep: tables, figures and one self-contained page."""

from jtransformer.report.sentences import answer, caveats, scale
from jtransformer.report.summary import BRIEF, COLUMNS, Column, summary_table
from jtransformer.report.write import Report, write

__all__ = [
    "BRIEF",
    "COLUMNS",
    "Column",
    "Report",
    "answer",
    "caveats",
    "scale",
    "summary_table",
    "write",
]
