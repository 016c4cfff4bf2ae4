"""Where and of what the suite measured."""

import hashlib
import os
import pathlib
import platform
import subprocess
import time
from typing import Any

from .processes import FOLDER, ROOT


def environment(cores: int) -> dict[str, Any]:
    """Returns what a measurement depends on, and must not change within a run of the suite."""
    return {
        "code": _digest(),
        "processor": _processor(),
        "cores": cores,
        "system": f"{platform.system()} {platform.machine()}",
    }


def moment() -> dict[str, Any]:
    """Returns when it is, and how busy the machine was in the last minute."""
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
        "load": round(os.getloadavg()[0], 2),
    }


def commit() -> str:
    """Returns the commit that is checked out, and whether files differ from it."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "not a checkout"


def _digest() -> str:
    """Returns a digest of the sources that are measured and that measure."""
    sources = sorted([*(ROOT / "jtransformer").rglob("*.py"), *FOLDER.glob("bench/peers/*.py")])
    found = hashlib.sha256()
    for path in sources:
        found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _processor() -> str:
    path = pathlib.Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
