"""Whether a report was made from the records that are there now."""

import contextlib
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
        for path in (files.status, files.failure, files.environment, *files.probed()):
            content = path.read_bytes() if path.exists() else b""
            found.update(len(content).to_bytes(8, "big") + content)
    return found.hexdigest()


def state_of_files(workdir: Path) -> str:
    """Returns a hash that changes with every record of a sweep, also of runs that are under way.

    Args:
        workdir: A work directory; names, sizes and times of its files are read, no contents.
    """
    found = hashlib.sha256()
    manifest = load_manifest(workdir) or {"cells": []}
    files = [SweepFiles(workdir).manifest]
    for cell in manifest["cells"]:
        directory = workdir / cell["directory"]
        files += [*directory.glob("*.json*"), *RunFiles(directory).probed()]
    for path in sorted(files):
        # What begins with a dot is being written; what has gone since it was listed is gone.
        with contextlib.suppress(FileNotFoundError):
            if not path.name.startswith("."):
                about = path.stat()
                found.update(f"{path}\0{about.st_size}\0{about.st_mtime_ns}\0".encode())
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
