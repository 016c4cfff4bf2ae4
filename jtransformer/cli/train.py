"""Trains the run of get_config() in DIR, or continues it from its newest checkpoint.

usage: jtransformer train --config FILE --workdir DIR [--config.PATH=VALUE ...] [flags]

  --config FILE          a Python file with get_config()
  --config.PATH=VALUE    change one setting of it, e.g. --config.training.steps=100
  --workdir DIR          where the run and its checkpoints are written
  --mesh LAYOUT          spread the run over devices, e.g. fsdp=4,tensor=2: how many divide the rows
                         (data), rows and parameters (fsdp), heads, hidden units and vocabulary
                         (tensor), tokens (sequence); shard_optimizer=true divides the optimizer's
                         state over data too. It counts more than the config's get_layout()
  --mode MODE            mesh, over --mesh or all devices; pmap, the rows alone over all devices;
                         loop, one device (the default without a layout)
  --accept_environment   go on although versions or devices have changed since the run began
  --processes N          train by N processes of this host, with the devices of all of them
  --distributed WHERE    be one of several processes that are started apart, and train together:
                         auto, where Slurm or a TPU knows the others (srun jtransformer train …), or
                         HOST:PORT,N,I, process I of N and the address of the first, process 0
  --coordinator_timeout SECONDS
                         how long processes wait for one another at the start (120); one that finds
                         no process 0 says so then

With several processes every process of the run is given the same command, the work directory is one
that all of them reach, and what is written there is the same as by one process.

example: jtransformer train --config experiments/norm_and_ffn/config.py --workdir runs/one

exit code: 0, also where the run diverges; 1 if it failed; 2 for a mistake in the input; 75 if it
was asked to stop (SIGTERM) and should be started again.
"""

import contextlib
import functools
from pathlib import Path
from typing import Any

from jtransformer import accounting, records
from jtransformer.cli import hosts, joins
from jtransformer.cli.allocation import reuse_memory
from jtransformer.cli.arguments import parse, read_experiment
from jtransformer.cli.layouts import (
    define_layout_flags,
    execution_of,
    read_spread,
    unused_devices,
)
from jtransformer.cli.main import REQUEUE
from jtransformer.cli.preflight import check_no_sweep, check_space, check_writable, locked
from jtransformer.cli.progress import say
from jtransformer.cli.stopping import stop_requests
from jtransformer.spec import Layout, RunSpec, SpecError


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    own = joins.define_flags()
    define_layout_flags(own)
    flags = parse(argv, takes_config=True, switches=("accept_environment",), others=own)
    members = joins.read_joins(flags)
    experiment = read_experiment(Path(flags.config), argv)
    spec, spread = experiment.run_spec(), read_spread(flags, experiment.layout)
    workdir = Path(flags.workdir).expanduser()
    check_writable(workdir)
    check_no_sweep(workdir)
    files = records.RunFiles(workdir)
    if not files.status.exists():
        check_space(workdir, [spec])
    threads = (records.read_object(files.environment) or {}).get("threads")
    if members:
        _check_processes(members[0].processes or 1, spec, spread.layout)
        return hosts.lead(members, argv, threads)
    records.use_cpu_threads(threads)
    reuse_memory(spec)

    from jtransformer.training import Hooks, Interrupted, Trainer, is_first

    reached = _Reached(spec, files)

    def show(_: RunSpec, row: dict[str, Any]) -> None:
        print(_line(row, spec.loss_unit) + reached(row["tokens_per_second"]), flush=True)

    with stop_requests() as should_stop:
        hooks = Hooks(
            on_row=show, should_stop=should_stop, accept_environment=flags.accept_environment
        )
        trainer = Trainer(hooks)
        # What the run reads is refused before its directory is made.
        trainer.identify(spec)
        start = trainer.taken_over(spec)
        execution = execution_of(spread)
        trainer.check(spec, execution)
        idle = unused_devices(execution)
        if idle is not None:
            say(idle)
        if start is not None and is_first():
            print(f"taken over from {start['directory']}: {records.taken_sentence(start)}")
        try:
            with locked(workdir) if is_first() else contextlib.nullcontext():
                status = trainer.train(spec, workdir, execution)
        except Interrupted as stop:
            say(f"jtransformer train: {stop}")
            return REQUEUE
    print(_summary(status, spec.loss_unit) + reached(status["timing"]["tokens_per_second"]))
    return 0


def _check_processes(count: int, spec: RunSpec, layout: Layout | None) -> None:
    """Refuses processes that would have nothing to do, before they are started."""
    rows = spec.training.batch_size // spec.training.microbatches
    most = rows if layout is None else layout.devices
    if count > most:
        what = "rows of an update" if layout is None else f"devices of {layout.label!r}"
        raise SpecError("", f"{count} processes divide the {most} {what} among them, and each "
                        f"needs one; use at most {most}.")  # fmt: skip


def _line(row: dict[str, Any], unit: str) -> str:
    validation = row["validation_nll"]
    measured = f"  validation {validation:.4f}" if validation is not None else ""
    return (
        f"step {row['step']:>6}  train {row['train_nll']:.4f}{measured}  {unit}  "
        f"gradient norm {row['gradient_norm']:.3f}  "
        f"{row['tokens_per_second'] / 1e3:.0f}k tokens/s"
    )


class _Reached:
    """Says which part of its chips' peak a run reached; nothing where the peak is not known."""

    def __init__(self, spec: RunSpec, files: records.RunFiles):
        self._spec, self._files = spec, files

    def __call__(self, tokens_per_second: float) -> str:
        if self._devices is None:
            return ""
        kind, devices = self._devices
        share = accounting.utilisation(
            self._spec, tokens_per_second, device_kind=kind, devices=devices
        )
        return "" if share is None else f", {share:.1%} of the peak of {devices} {kind}"

    @functools.cached_property
    def _devices(self) -> tuple[str, int] | None:
        """The kind and the number of the run's devices, read once, when it has begun."""
        from jtransformer.training import Execution

        # A run that was over before may have been trained elsewhere.
        recorded = records.read_object(self._files.environment)
        if recorded is None:
            return None
        return recorded["device_kind"], Execution.from_label(recorded["mode"]).all_devices


def _summary(status: dict[str, Any], unit: str) -> str:
    result = status["result"]
    if status["state"] == "diverged":
        return f"diverged at step {result['diverged_at']}"
    early = result["stopped_early_at"]
    stopped = f" early, at step {early}" if early is not None else ""
    return (
        f"{status['state']}{stopped}: validation {result['validation_nll']:.4f}, "
        f"test {result['test_nll']:.4f} {unit}, {result['parameters']:,} parameters"
    )
