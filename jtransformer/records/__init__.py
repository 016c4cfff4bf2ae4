"""Files of a work directory: the only place where runs and statistics meet.

JSON for what is written once, JSON lines for what grows. Standard library only, so that the
state of a sweep can be read anywhere.
"""

from jtransformer.records.comparison import CLOCK, Difference, first_difference
from jtransformer.records.files import (
    DamagedRecord,
    append_row,
    create_json,
    read_json,
    read_rows,
    truncate_rows,
    write_bytes,
    write_json,
    write_text,
)
from jtransformer.records.layout import (
    COMPLETE,
    SCHEMA,
    STATUS_PARTS,
    RunFiles,
    RunRecord,
    SweepFiles,
    SweepRecord,
    load_manifest,
    load_run,
    load_sweep,
    read_object,
    set_aside_status,
)
from jtransformer.records.pairing import Contradiction, Pairing
from jtransformer.records.report_mark import mark_report, report_is_current, state_of_records

__all__ = [
    "CLOCK",
    "COMPLETE",
    "SCHEMA",
    "STATUS_PARTS",
    "Contradiction",
    "DamagedRecord",
    "Difference",
    "Pairing",
    "RunFiles",
    "RunRecord",
    "SweepFiles",
    "SweepRecord",
    "append_row",
    "create_json",
    "first_difference",
    "load_manifest",
    "load_run",
    "load_sweep",
    "mark_report",
    "read_json",
    "read_object",
    "read_rows",
    "report_is_current",
    "set_aside_status",
    "state_of_records",
    "truncate_rows",
    "write_bytes",
    "write_json",
    "write_text",
]
