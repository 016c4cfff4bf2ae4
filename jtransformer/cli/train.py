"""Trains the run of get_config() in DIR, or continues it from its newest checkpoint.

usage: jtransformer train --config FILE --workdir DIR [--config.PATH=VALUE ...] [flags]

  --accept_environment   go on although versions or devices have changed since the run began

example: jtransformer train --config experiments/norm_and_ffn/config.py --workdir runs/one
"""

from pathlib import Path
from typing import Any

from jtransformer import records
from jtransformer.cli.arguments import parse, read_experiment
from jtransformer.cli.main import REQUEUE
from jtransformer.cli.preflight import check_no_sweep, check_space, check_writable, locked
from jtransformer.cli.progress import say
from jtransformer.cli.stopping import stop_requests
from jtransformer.spec import RunSpec


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    from jtransformer.training import Hooks, Interrupted, Trainer

    flags = parse(argv, takes_config=True, switches=("accept_environment",))
    experiment = read_experiment(Path(flags.config), argv)
    spec = experiment.run_spec()
    workdir = Path(flags.workdir).expanduser()
    check_writable(workdir)
    check_no_sweep(workdir)
    files = records.RunFiles(workdir)
    if not files.status.exists():
        check_space(workdir, [spec])
    records.use_cpu_threads((records.read_object(files.environment) or {}).get("threads"))

    def show(_: RunSpec, row: dict[str, Any]) -> None:
        print(_line(row, spec.loss_unit), flush=True)

    with stop_requests() as should_stop:
        hooks = Hooks(
            on_row=show, should_stop=should_stop, accept_environment=flags.accept_environment
        )
        trainer = Trainer(hooks)
        # What the run reads is refused before its directory is made.
        trainer.identify(spec)
        try:
            with locked(workdir):
                status = trainer.train(spec, workdir)
        except Interrupted as stop:
            say(f"jtransformer train: {stop}")
            return REQUEUE
    print(_summary(status, spec.loss_unit))
    return 0


def _line(row: dict[str, Any], unit: str) -> str:
    validation = row["validation_nll"]
    measured = f"  validation {validation:.4f}" if validation is not None else ""
    return (
        f"step {row['step']:>6}  train {row['train_nll']:.4f}{measured}  {unit}  "
        f"gradient norm {row['gradient_norm']:.3f}  "
        f"{row['tokens_per_second'] / 1e3:.0f}k tokens/s"
    )


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
