"""Workers as tasks of a Ray cluster: an existing one, or one that Ray starts on this host.

Ray places them, waits for room, and may add nodes for them. A worker whose node died is started
again by the sweep, not by Ray, so that its loss is seen and counted.
"""

import dataclasses
import signal
import uuid
from pathlib import Path
from typing import Any

from jtransformer import records
from jtransformer.spec import SpecError
from jtransformer.sweep.launchers.child import start_worker, stop_worker, watch_worker
from jtransformer.sweep.launchers.protocol import LOST, Handle

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class RayHandle:
    """A task of Ray."""

    def __init__(self, ray: Any, task: Any, log: Path):
        self.name, self.log = f"Ray task {task.hex()[:8]}", log
        self._ray, self._task = ray, task
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None and self._ray.wait([self._task], timeout=0)[0]:
            try:
                self._code = self._ray.get(self._task)
            except self._ray.exceptions.RayError:  # Its node died, or it was stopped.
                self._code = LOST
        return self._code

    def stop(self) -> None:
        self._ray.cancel(self._task)


@dataclasses.dataclass
class Ray:
    """Starts tasks.

    Attributes:
        workdir: The work directory, absolute; every node sees it under this path.
        address: Of the cluster, as `ray.init` takes it; None for RAY_ADDRESS, else one that
            runs on this host, else a new one.
        cpus: Of each worker.
        gpus: Of each worker.
        tpus: Chips of each worker.
    """

    workdir: Path
    address: str | None = None
    cpus: float = 1.0
    gpus: float | None = None
    tpus: float | None = None

    def submit(self, count: int) -> list[Handle]:
        ray = self._connected()
        task = ray.remote(
            num_cpus=self.cpus,
            num_gpus=self.gpus,
            resources=None if self.tpus is None else {"TPU": self.tpus},
            max_retries=0,
            scheduling_strategy="SPREAD",
        )(run_worker)
        folder = records.SweepFiles(self.workdir).workers
        handles: list[Handle] = []
        for _ in range(count):
            log = folder / f"ray-{uuid.uuid4().hex[:8]}.log"
            handles.append(RayHandle(ray, task.remote(self.workdir, log, Path.cwd()), log))
        return handles

    def _connected(self) -> Any:
        try:
            import ray  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise SpecError(
                "--launcher ray",
                "needs Ray; pip install 'jtransformer[ray]' here and on the nodes.",
            ) from None
        if not ray.is_initialized():
            # Ray handles signals in its own way, which ends a process that was asked to save.
            before = {number: signal.getsignal(number) for number in SIGNALS}
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level="error")
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise SpecError(
                    f"--option address={self.address}",
                    f"leads to no cluster ({' '.join(str(error).split())[:200]}); start one by "
                    "`ray start --head`, or leave it out for one on this host.",
                ) from None
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
        return ray


def run_worker(workdir: Path, log: Path, folder: Path) -> int:
    """Runs a worker to its end and returns its exit code; cancelling the task stops it, saved."""
    process = start_worker(workdir, log, folder)
    try:
        return watch_worker(process)
    except BaseException:  # How Ray cancels a task: KeyboardInterrupt, in the main thread.
        stop_worker(process)
        raise
