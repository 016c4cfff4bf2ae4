"""Whether a report was made from the records that are there now."""

import hashlib
import json
from pathlib import Path

from jtransformer.records.files import write_text
from jtransformer.records.layout import RunFiles, SweepFiles, load_manifest


def state_of_records(workdir: Path) -> str:
    """Returns the hash of all that a report says of a sweep that is over.

    Args:
        workdir: A work directory; rows of metrics are covered by the statuses behind them.
    """
    found = hashlib.sha256()
    manifest = load_manifest(workdir) or {"cells": []}
    found.update(json.dumps(manifest, sort_keys=True).encode())
    for cell in manifest["cells"]:
        files = RunFiles(workdir / cell["directory"])
        for path in (files.status, files.failure, files.environment):
            content = path.read_bytes() if path.exists() else b""
            found.update(len(content).to_bytes(8, "big") + content)
    return found.hexdigest()


def mark_report(workdir: Path, state: str, version: str) -> None:
    """Says beside a report what it was made from, once all of it is written.

    Args:
        workdir: Its work directory.
        state: What `state_of_records` returned before the records were read.
        version: Of the program that made it.
    """
    write_text(SweepFiles(workdir).report_mark, _mark(state, version))


def report_is_current(workdir: Path, version: str) -> bool:
    """Whether this version would write the report again as it is."""
    path = SweepFiles(workdir).report_mark
    return path.exists() and path.read_bytes() == _mark(state_of_records(workdir), version).encode()


def _mark(state: str, version: str) -> str:
    return f"made by jtransformer {version} from records with the SHA-256 {state}\n"
