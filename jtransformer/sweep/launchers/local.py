"""Workers as processes of this host; its cores, and its GPUs where there are, are divided."""

import dataclasses
import os
import subprocess
from pathlib import Path

from jtransformer import records
from jtransformer.sweep.launchers.protocol import Handle, worker_command

GPUS = Path("/proc/driver/nvidia/gpus")
VISIBLE = "CUDA_VISIBLE_DEVICES"
MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"
MEMORY_OF_ONE = 0.75
"""What XLA takes of a GPU by default; workers that share one share that."""


class LocalHandle:
    """A process of this host."""

    def __init__(self, process: subprocess.Popen, log: Path):
        self.name, self.log = f"process {process.pid}", log
        self._process = process

    def poll(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        self._process.terminate()


@dataclasses.dataclass
class Local:
    """Starts processes; each takes a place with its cores, that of one that ended if there is.

    Attributes:
        workdir: The work directory, absolute.
    """

    workdir: Path

    def __post_init__(self):
        self._places: list[LocalHandle | None] = []

    def submit(self, count: int) -> list[Handle]:
        free = [
            i for i, handle in enumerate(self._places) if not handle or handle.poll() is not None
        ]
        if count > len(free):
            more = count - len(free)
            free += range(len(self._places), len(self._places) + more)
            self._places += [None] * more
        started: list[Handle] = []
        for place in free[:count]:
            handle = self._start(place)
            self._places[place] = handle
            started.append(handle)
        return started

    def _start(self, place: int) -> LocalHandle:
        logs = records.SweepFiles(self.workdir).workers
        logs.mkdir(exist_ok=True)
        log = logs / f"local-{place}.log"
        with open(log, "ab") as output:
            # A session of its own: Ctrl-C reaches the parent alone, which then asks each to stop.
            process = subprocess.Popen(
                worker_command(self.workdir, os.getpid()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | shared_gpus(place, len(self._places), visible_gpus(os.environ)),
            )
        cores = share(sorted(os.sched_getaffinity(0)), place, len(self._places))
        os.sched_setaffinity(process.pid, cores)
        return LocalHandle(process, log)


def share(items: list, place: int, places: int) -> list:
    """Returns one part of a division among places; where there are more places, parts repeat."""
    return items[place::places] or [items[place % len(items)]]


def visible_gpus(environment: "os._Environ[str] | dict[str, str]") -> list[str]:
    """Returns the NVIDIA GPUs that this process may use, as CUDA names them."""
    named = environment.get(VISIBLE)
    if named is not None:
        return [word for word in named.split(",") if word]
    return [str(number) for number in range(len(list(GPUS.iterdir())))] if GPUS.is_dir() else []


def shared_gpus(place: int, places: int, gpus: list[str]) -> dict[str, str]:
    """Returns the environment by which a worker sees its own GPUs alone.

    Args:
        place: The worker's.
        places: How many workers there are.
        gpus: All GPUs.
    """
    if not gpus:
        return {}
    sharing = -(-places // len(gpus))
    environment = {VISIBLE: ",".join(share(gpus, place, places))}
    return environment | ({MEMORY: f"{MEMORY_OF_ONE / sharing:.3f}"} if sharing > 1 else {})
