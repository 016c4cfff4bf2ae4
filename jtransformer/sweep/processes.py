"""Whether the process behind a claim is gone, where that can be known at once."""

import os
import socket
from pathlib import Path
from typing import Any

PROC = Path("/proc")
ENDED = ("Z", "X")
"""States of a process that has ended and that its parent has not yet taken note of."""


def this_process() -> dict[str, Any]:
    """Returns what identifies this process: its place, number and start.

    A number means something in one place alone: host, start of its kernel, and namespace (two
    containers of a host have the same kernel and other processes).
    """
    return {**_place(), "pid": os.getpid(), "started": _started(os.getpid())}


def is_gone(process: dict[str, Any]) -> bool:
    """Whether a process has ended; False where it cannot be known from here.

    Args:
        process: What `this_process` returned there.
    """
    place = _place()
    if any(process.get(name) != value for name, value in place.items()):
        return False
    pid = process.get("pid")
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # It lives, and is another user's.
        pass
    return process.get("started") != _started(pid)


def _place() -> dict[str, str]:
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink(PROC / "self/ns/pid")
    except OSError:  # No Linux; the name of the host has to do.
        boot, namespace = "", ""
    return {"host": socket.gethostname(), "boot": boot, "namespace": namespace}


def _started(pid: int) -> int | None:
    """Returns when a process was started, in ticks since the boot; None if it has ended.

    None also where there is no /proc: then only the number of a process is compared.
    """
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name of the program stands in brackets and may hold anything.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in ENDED else int(fields[18])
