"""Reading and writing of records, such that a kill at any moment leaves them whole.

A file is replaced by renaming a finished copy over it; a line is complete when its newline is
on disk. A line torn by a kill is therefore recognisable, and is dropped on reading.
"""

import errno
import json
import math
import os
import uuid
from pathlib import Path
from typing import Any, BinaryIO

ERRORS = "backslashreplace"
"""A file name that is not UTF-8 reaches us with lone surrogates; JSON escapes them so."""

WITHOUT_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
"""What a file system answers that has no hard links, as most mounted buckets."""


class DamagedRecord(ValueError):
    """A file of a work directory that cannot be what it should be; the message names it."""


def write_text(path: Path, text: str) -> None:
    """Replaces a file by `text`, atomically and durably."""
    write_bytes(path, text.encode("utf-8", ERRORS))


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces a file by `content`, atomically and durably."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            _write_durably(file, content)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replaces a JSON file, atomically and durably.

    Args:
        path: The file; its directory exists.
        value: Plain data. A number that is not finite is written as null.
    """
    write_text(path, _text_of(value))


def create_json(path: Path, value: Any) -> bool:
    """Creates a JSON file, whole and durably, where there is none.

    Of any number of processes and hosts that try at once exactly one creates it: a finished copy
    is linked to the name, or, on a file system without links, the name is made exclusively.

    Args:
        path: The file; its directory exists.
        value: Plain data. A number that is not finite is written as null.

    Returns:
        Whether this call created it; False where it exists.
    """
    content = _text_of(value).encode("utf-8", ERRORS)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            _write_durably(file, content)
        try:
            os.link(temporary, path)
        except FileExistsError:
            # A server that had to be asked twice says so of our own link too.
            return os.path.samefile(temporary, path)
        except OSError as error:
            if error.errno not in WITHOUT_LINKS:
                raise
            return _create_in_place(path, content)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(path.parent)
    return True


def _create_in_place(path: Path, content: bytes) -> bool:
    try:
        with open(path, "xb") as file:
            _write_durably(file, content)
    except OSError as error:
        # A bucket finds out only when the file is closed that another host was first.
        if error.errno in (errno.EEXIST, errno.ESTALE):
            return False
        raise
    return path.read_bytes() == content


def read_json(path: Path) -> Any:
    """Reads a JSON file.

    Raises:
        DamagedRecord: If the file is not JSON.
        FileNotFoundError: If it does not exist.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        problem = f"{path} is damaged ({error}); delete it to have it made again."
        raise DamagedRecord(problem) from error


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Appends one JSON line, durably: a checkpoint made afterwards never lacks its rows.

    A line that a kill has torn is cut off first, else the new one would be glued to it.
    """
    _cut_torn_line(path)
    line = json.dumps(_finite(row), allow_nan=False, ensure_ascii=False) + "\n"
    with open(path, "a", encoding="utf-8", errors=ERRORS, newline="\n") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _cut_torn_line(path: Path) -> None:
    if not path.exists() or not path.stat().st_size:
        return
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Reads JSON lines up to the first incomplete one; a missing file has no rows."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            row = json.loads(line)
        except ValueError:
            break
        if not isinstance(row, dict):
            break
        rows.append(row)
    return rows


def truncate_rows(path: Path, step: int) -> None:
    """Keeps the rows up to and including `step`, as a run does that resumes from that step.

    Args:
        path: A file of rows that have a "step"; it may be missing.
        step: The newest step that is kept; 0 keeps none.
    """
    kept = [row for row in read_rows(path) if row.get("step", step + 1) <= step]
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _text_of(value: Any) -> str:
    return json.dumps(_finite(value), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _write_durably(file: BinaryIO, content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
