"""Claims runs of a sweep and trains them until none is left; as many may work as one likes.

usage: jtransformer worker --workdir DIR [--parent PID]

Workers on any number of hosts share the work directory, and nothing else: a run is claimed by
creating a file there, and taken over from a worker that vanished. The sweep is planned first, by
`jtransformer sweep --workers 0` or by a sweep that runs; what it says of retries, leases and
environments holds for every worker.

  --parent PID           stop, saved, when the process that started this one has gone

example: jtransformer worker --workdir runs/norm_and_ffn

exit code: 0; 1 if a run failed; 2 for a mistake in the input; 75 if it was asked to stop (SIGTERM)
and should be started again.
"""

import os
import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absl import flags

from jtransformer import records
from jtransformer.cli.allocation import reuse_memory
from jtransformer.cli.arguments import parse
from jtransformer.cli.main import FAILED_RUN, REQUEUE
from jtransformer.cli.preflight import check_packages, read_manifest
from jtransformer.cli.progress import Progress, say
from jtransformer.cli.stopping import stop_requests
from jtransformer.spec import from_tree
from jtransformer.sweep import Launch, PairingError, Worker, read_launch, states

CACHED_FROM_SECONDS = 0.2
"""Programs that compile faster than this are not kept: writing them would take as long."""


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    own = flags.FlagValues()
    flags.DEFINE_integer("parent", None, "parent", flag_values=own)
    values = parse(argv, takes_config=False, others=own)
    workdir, parent = Path(values.workdir).expanduser(), values.parent
    manifest = read_manifest(workdir)
    launch = read_launch(workdir)
    check_packages()  # One that is missing on a host would make every run fail there.
    try:
        failed = train_here(
            workdir, manifest, launch, lambda: parent is not None and os.getppid() != parent
        )
    except PairingError as error:
        say(f"jtransformer worker: {error}")
        return FAILED_RUN
    if failed is None:
        say("Stopped as asked; everything is saved.")
        return REQUEUE
    if failed:
        say(f"{failed} runs failed; the next `jtransformer sweep` tries them again.")
    return FAILED_RUN if failed else 0


def train_here(
    workdir: Path, manifest: dict[str, Any], launch: Launch, is_over: Callable[[], bool]
) -> int | None:
    """Works in this process until every run of a sweep has ended.

    Args:
        workdir: The work directory.
        manifest: Its sweep.json.
        launch: What its workers follow.
        is_over: Whether to stop although no signal came; asked before every update.

    Returns:
        How many runs have failed in this launch; None if it was asked to stop.

    Raises:
        SpecError: If a run is not the one that was planned, or was begun in another environment.
        PairingError: If two arms are not paired, or a model is not of the planned size.
    """
    now = states(workdir, manifest["cells"])
    # From here on a request is noted: one that is raised while modules load may be swallowed there.
    with stop_requests() as asked, Progress(manifest, now) as progress:
        records.use_cpu_threads(manifest.get("threads"))
        reuse_memory(from_tree(manifest["base"]))
        import jax

        from jtransformer.cli.group_trainer import GroupTrainer
        from jtransformer.training import Hooks, Interrupted

        cache = launch.compile_cache or records.SweepFiles(workdir).compile_cache.absolute()
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", CACHED_FROM_SECONDS)
        name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        worker = Worker(name, workdir, manifest, launch)
        hooks = Hooks(
            on_row=lambda spec, row: progress.on_row(worker.cell_of(spec), row),
            should_stop=lambda: asked() or is_over(),
            guard=worker.guard,
            accept_environment=launch.accept_environment,
        )
        try:
            ended = worker.work(
                GroupTrainer(hooks, launch),
                on_done=progress.on_done,
                should_stop=hooks.should_stop,
            )
        except Interrupted:
            return None
    return worker.failed() if ended else None
