"""Files of a work directory: the only place where runs and statistics meet.

JSON for what is written once, JSON lines for what grows. Standard library only, so that the
state of a sweep can be read anywhere.
"""

from jtransformer.records.comparison import CLOCK, Difference, first_difference
from jtransformer.records.completeness import check_complete
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
    PROBE_PARTS,
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
    read_probe,
    set_aside_status,
)
from jtransformer.records.pairing import Contradiction, Fact, Pairing, facts
from jtransformer.records.report_mark import (
    mark_report,
    report_is_current,
    state_of_files,
    state_of_records,
)
from jtransformer.records.starting import taken_sentence, unequal_starts
from jtransformer.records.threads import cpu_threads, use_cpu_threads
from jtransformer.records.verdict_rule import (
    EarlierRule,
    VerdictRule,
    earlier_rules,
    rules_before,
    verdict_rule,
)

__all__ = [
    "CLOCK",
    "COMPLETE",
    "SCHEMA",
    "STATUS_PARTS",
    "Contradiction",
    "DamagedRecord",
    "Difference",
    "EarlierRule",
    "Fact",
    "PROBE_PARTS",
    "Pairing",
    "RunFiles",
    "RunRecord",
    "SweepFiles",
    "SweepRecord",
    "VerdictRule",
    "append_row",
    "check_complete",
    "cpu_threads",
    "create_json",
    "earlier_rules",
    "facts",
    "first_difference",
    "load_manifest",
    "load_run",
    "load_sweep",
    "mark_report",
    "read_json",
    "read_object",
    "read_probe",
    "read_rows",
    "report_is_current",
    "rules_before",
    "set_aside_status",
    "state_of_files",
    "state_of_records",
    "taken_sentence",
    "truncate_rows",
    "unequal_starts",
    "use_cpu_threads",
    "verdict_rule",
    "write_bytes",
    "write_json",
    "write_text",
]
