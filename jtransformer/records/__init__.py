"""Files of a work directory: the only place where runs and statistics meet.

JSON for what is written once, JSON lines for what grows. Standard library only, so that the
state of a sweep can be read anywhere.
"""

from jtransformer.records.files import (
    DamagedRecord,
    append_row,
    read_json,
    read_rows,
    truncate_rows,
    write_bytes,
    write_json,
    write_text,
)
from jtransformer.records.layout import (
    SCHEMA,
    STATUS_PARTS,
    RunFiles,
    RunRecord,
    SweepFiles,
    SweepRecord,
    load_manifest,
    load_run,
    load_sweep,
)
from jtransformer.records.pairing import Contradiction, Pairing

__all__ = [
    "SCHEMA",
    "STATUS_PARTS",
    "Contradiction",
    "DamagedRecord",
    "Pairing",
    "RunFiles",
    "RunRecord",
    "SweepFiles",
    "SweepRecord",
    "append_row",
    "load_manifest",
    "load_run",
    "load_sweep",
    "read_json",
    "read_rows",
    "truncate_rows",
    "write_bytes",
    "write_json",
    "write_text",
]
