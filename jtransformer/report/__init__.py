"""The report of a sweep: tables, figures and one self-contained page."""

from jtransformer.report.comparing import comparison_table, comparison_values, pooling
from jtransformer.report.comparing_page import write_comparison
from jtransformer.report.sentences import answer, caveats, scale
from jtransformer.report.summary import BRIEF, COLUMNS, Column, summary_table
from jtransformer.report.text_map import text_map
from jtransformer.report.values import UnknownSection, numbers_json, section_text
from jtransformer.report.write import Report, write

__all__ = [
    "BRIEF",
    "COLUMNS",
    "Column",
    "Report",
    "UnknownSection",
    "answer",
    "caveats",
    "comparison_table",
    "comparison_values",
    "numbers_json",
    "pooling",
    "scale",
    "section_text",
    "summary_table",
    "text_map",
    "write",
    "write_comparison",
]
