"""Workers as an array job of Slurm, submitted by submitit.

Pre-emption sends SIGTERM: the worker saves, its runs are free at once, and Slurm queues the job
again. Before its time limit the job queues itself again. Both leave no result behind, so the job
counts as running until it has ended by itself or left the queue.
"""

import dataclasses
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from jtransformer import records
from jtransformer.spec import SpecError
from jtransformer.sweep.launchers.child import start_worker, watch_worker
from jtransformer.sweep.launchers.protocol import LOST, Handle

LISTED_EVERY_SECONDS = 5.0
"""How often the queue is asked for, for all jobs at once: sites ask their users to spare it."""
REQUEUE = 75


class Queue:
    """The own jobs that Slurm knows of; needs no accounting."""

    def __init__(self):
        self._jobs: set[str] = set()
        self._listed = -LISTED_EVERY_SECONDS

    def has(self, job: str) -> bool:
        """Whether a job waits or runs; where Slurm does not answer, what it last said."""
        now = time.monotonic()
        if now - self._listed >= LISTED_EVERY_SECONDS:
            command = ["squeue", "--me", "--array", "--noheader", "--format=%i"]
            found = subprocess.run(command, capture_output=True, text=True, check=False)
            self._listed = now
            if found.returncode == 0:
                self._jobs = set(found.stdout.split())
        return job in self._jobs

    def note(self, job: str) -> None:
        """Takes note of a job that was submitted since the queue was listed."""
        self._jobs.add(job)


class SlurmHandle:
    """A task of an array job."""

    def __init__(self, job: Any, log: Path, queue: Queue):
        self.name, self.log = f"Slurm job {job.job_id}", log
        self._job, self._queue = job, queue
        self._code: int | None = None
        self._missing_since: float | None = None

    def poll(self) -> int | None:
        if self._code is not None:
            return self._code
        if self._job.paths.result_pickle.exists():
            self._code = LOST if self._job.exception() is not None else self._job.result()
        elif self._queue.has(self._job.job_id):
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = time.monotonic()
        elif time.monotonic() - self._missing_since > LISTED_EVERY_SECONDS:
            self._code = LOST
        return self._code

    def stop(self) -> None:
        subprocess.run(["scancel", self._job.job_id], check=False, capture_output=True)


class WorkerJob:
    """What the job runs: a worker, stopped and saved by every signal that Slurm ends jobs with.

    submitit ignores SIGTERM, which announces a pre-emption, and would requeue at SIGUSR2, which
    announces the time limit, before the worker has saved: so both are handled here.
    """

    def __init__(self, workdir: Path, log: Path, folder: Path):
        self._workdir, self._log, self._folder = workdir, log, folder

    def __call__(self) -> int:
        process = start_worker(self._workdir, self._log, self._folder)
        caught: list[int] = []

        def stop(number: int, frame: Any) -> None:
            caught.append(number)
            process.terminate()

        for number in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, stop)
        code = watch_worker(process)
        if not caught:
            return code
        if signal.SIGUSR2 in caught:
            subprocess.run(["scontrol", "requeue", _own_identity()], check=False)
        sys.exit(REQUEUE)


def _own_identity() -> str:
    """Returns the number of the job that this process is in, as scontrol takes it."""
    array, task = (os.environ.get(f"SLURM_ARRAY_{part}_ID") for part in ("JOB", "TASK"))
    return os.environ["SLURM_JOB_ID"] if array is None else f"{array}_{task}"


@dataclasses.dataclass
class Slurm:
    """Submits array jobs.

    Attributes:
        workdir: The work directory, absolute; every node sees it under this path.
        partition: As sbatch takes it; None for the default one.
        account: As sbatch takes it.
        qos: As sbatch takes it.
        constraint: As sbatch takes it.
        minutes: Time limit of a job; one that reaches it is queued again.
        cpus: Of each worker.
        gpus: Of each worker.
        memory_gb: Of each worker; None for what the site gives.
    """

    workdir: Path
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    minutes: int = 60
    cpus: int = 1
    gpus: int | None = None
    memory_gb: float | None = None

    def __post_init__(self):
        self._queue = Queue()

    def submit(self, count: int) -> list[Handle]:
        folder = records.SweepFiles(self.workdir).workers
        executor = self._executor(folder / "slurm", count)
        logs = [folder / f"slurm-{uuid.uuid4().hex[:8]}.log" for _ in range(count)]
        try:
            with executor.batch():
                jobs = [executor.submit(WorkerJob(self.workdir, log, Path.cwd())) for log in logs]
        except RuntimeError as error:  # What sbatch said.
            reason = " ".join(str(error).split())
            raise SpecError(
                "--launcher slurm",
                f"could not submit ({reason}); change the --option that is wrong.",
            ) from None
        handles: list[Handle] = []
        for job, log in zip(jobs, logs, strict=True):
            self._queue.note(job.job_id)
            handles.append(SlurmHandle(job, log, self._queue))
        return handles

    def _executor(self, folder: Path, count: int) -> Any:
        try:
            import submitit  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise SpecError(
                "--launcher slurm", "needs submitit; pip install 'jtransformer[slurm]'."
            ) from None
        try:
            executor = submitit.SlurmExecutor(folder)
        except RuntimeError:
            raise SpecError(
                "--launcher slurm", "finds no srun; start the sweep on a host of the cluster."
            ) from None
        wanted = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            "gpus_per_node": self.gpus,
            "mem": None if self.memory_gb is None else f"{round(1024 * self.memory_gb)}M",
        }
        executor.update_parameters(
            job_name="jtransformer",
            time=self.minutes,
            cpus_per_task=self.cpus,
            array_parallelism=count,
            additional_parameters={"requeue": True},
            **{name: value for name, value in wanted.items() if value is not None},
        )
        return executor
