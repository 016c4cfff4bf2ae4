"""Which processes train a run together: `--processes`, `--distributed`, and where they meet."""

import os
import re
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

from absl import flags

from jtransformer.spec import SpecError
from jtransformer.sweep.launchers.local import visible_gpus

AUTO = "auto"
LOOPBACK = "127.0.0.1"
FLAGS = ("processes", "distributed", "coordinator_timeout")
START_SECONDS = 120
"""How long processes wait for one another at first, unless `--coordinator_timeout` says else."""
KNOCK_SECONDS = 0.2


class Join(NamedTuple):
    """How a process comes to the others; what a scheduler knows is None.

    Attributes:
        address: Host and port of the first one.
        processes: How many there are.
        process: Number of this one.
        devices: Numbers of the GPUs that are its own.
        seconds: How long it waits for the others to come.
    """

    address: str | None = None
    processes: int | None = None
    process: int | None = None
    devices: list[int] | None = None
    seconds: int = START_SECONDS


def define_flags() -> flags.FlagValues:
    """Returns the flags that say which processes train, not yet read."""
    values = flags.FlagValues()
    flags.DEFINE_integer("processes", 1, "processes", flag_values=values)
    flags.DEFINE_string("distributed", None, "distributed", flag_values=values)
    flags.DEFINE_integer("coordinator_timeout", START_SECONDS, "timeout", flag_values=values)
    return values


def read_joins(values: flags.FlagValues) -> list[Join]:
    """Returns the processes to start; none where this one trains by itself.

    Raises:
        SpecError: If the flags make no sense.
    """
    if values.processes < 1:
        raise SpecError("--processes", f"must be at least 1, got {values.processes}.")
    seconds = values.coordinator_timeout
    if seconds < 1:
        raise SpecError("--coordinator_timeout", f"must be at least 1 second, got {seconds}.")
    if values.distributed is not None:
        if values.processes > 1:
            raise SpecError(
                "--distributed",
                f"joins one process to others, and --processes {values.processes} starts several; "
                "leave one of them out.",
            )
        return [_joined(values.distributed)._replace(seconds=seconds)]
    if values.processes == 1:
        if values["coordinator_timeout"].present:
            raise SpecError(
                "--coordinator_timeout",
                "would do nothing: this process trains by itself; add --distributed or "
                "--processes, or leave it out.",
            )
        return []
    address = f"{LOOPBACK}:{_free_port()}"
    own = _gpus(values.processes)
    return [
        Join(address, values.processes, place, own[place], seconds)
        for place in range(values.processes)
    ]


def await_first(join: Join) -> None:
    """Returns when the first process listens where this one is to find it.

    JAX would wait as well, and would be ended from C++ with a page of trace.

    Raises:
        SpecError: If it does not in the time that there is.
    """
    if join.address is None or not join.process:
        return
    host, _, port = join.address.rpartition(":")
    end, reason = time.monotonic() + join.seconds, ""
    while (left := end - time.monotonic()) > 0:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=left).close()
            return
        except OSError as error:
            reason = error.strerror or str(error)
        time.sleep(KNOCK_SECONDS)
    raise SpecError(
        "--distributed",
        f"= {join.address},{join.processes},{join.process} found no process 0 at {join.address} "
        f"within {join.seconds} s ({reason}); start that one too, give its host and port, or wait "
        "longer by --coordinator_timeout.",
    )


def _joined(text: str) -> Join:
    """Reads `--distributed`."""
    if text == AUTO:
        return Join()
    match = re.fullmatch(r"([^,\s]+:(\d{1,5})),(\d{1,9}),(\d{1,9})", text, re.ASCII)
    if match is None:
        raise SpecError(
            "--distributed",
            f"must be {AUTO}, or HOST:PORT,N,I as in 10.0.0.1:1234,4,0 for the first of four, "
            f"got {text!r}.",
        )
    address, port, processes, process = match[1], *map(int, match.group(2, 3, 4))
    if not 0 < port < 2**16:
        raise SpecError("--distributed", f"= {text!r} has the port {port}; use one of 1 to 65535.")
    if process >= processes:
        raise SpecError(
            "--distributed",
            f"= {text!r} is process {process} of {processes}; they are numbered from 0.",
        )
    if process == 0 and not _is_free(port):
        raise SpecError(
            "--distributed",
            f"= {text!r} has a port that is in use; give the host of process 0, with a port that "
            "is free there.",
        )
    return Join(address, processes, process)


def _is_free(port: int) -> bool:
    """Whether process 0 can listen there; where it cannot, JAX 0.12 ends it from C++."""
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True


def _gpus(processes: int) -> list[list[int] | None]:
    """Deals the GPUs of this host to processes; None each where there are none to deal."""
    found = visible_gpus(os.environ)
    if not found or os.environ.get("JAX_PLATFORMS") == "cpu":
        return [None] * processes
    if len(found) % processes:
        raise SpecError(
            "--processes",
            f"= {processes} do not divide the {len(found)} GPUs of this host; use as many "
            "processes as there are GPUs.",
        )
    each = len(found) // processes
    return [list(range(place * each, (place + 1) * each)) for place in range(processes)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def without(names: tuple[str, ...], argv: list[str]) -> Iterator[str]:
    """Leaves flags out of a command line, with their values."""
    words = iter(argv)
    for word in words:
        name, equals, _ = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in names:
            yield word
        elif not equals:
            next(words, None)
