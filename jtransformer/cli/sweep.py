"""Plans a grid of runs, trains every run that is missing, and writes DIR/report/index.html.

usage: jtransformer sweep --config FILE --workdir DIR [--config.PATH=VALUE ...] [flags]

Running the same command again continues: finished runs are not repeated, an interrupted one goes
on from its newest checkpoint, and results.csv is the same to the bit.

  --config FILE          a Python file with get_config() and get_sweep()
  --config.PATH=VALUE    change one setting of get_config(), e.g. --config.training.steps=100;
                         None unsets an optional one
  --workdir DIR          where runs, checkpoints and the page are written
  --dry_run              check everything and print the plan; train and write nothing
  --accept_environment   go on although versions or devices have changed since the sweep began

example: jtransformer sweep --config experiments/norm_and_ffn/config.py --workdir runs/norm_and_ffn

exit code: 0; 1 if a run failed; 2 for a mistake in the input; 75 if it was asked to stop (SIGTERM)
and should be started again.
"""

import shlex
from pathlib import Path
from typing import Any, NamedTuple

from jtransformer import records
from jtransformer.cli.arguments import parse, read_experiment
from jtransformer.cli.main import FAILED_RUN, REQUEUE
from jtransformer.cli.preflight import (
    check_no_single_run,
    check_packages,
    check_space,
    check_writable,
    locked,
)
from jtransformer.cli.progress import Progress, console, say
from jtransformer.cli.report import show
from jtransformer.cli.stopping import stop_requests
from jtransformer.spec import RunSpec, SpecError
from jtransformer.sweep import (
    Cell,
    PairingError,
    Plan,
    adopt,
    check_continuation,
    execute,
    make_plan,
    manifest,
    read_declaration,
    states,
)

CACHED_FROM_SECONDS = 0.2
"""Programs that compile faster than this are not kept: writing them would take as long."""


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    flags = parse(argv, takes_config=True, switches=("dry_run", "accept_environment"))
    workdir = Path(flags.workdir).expanduser()
    experiment = read_experiment(Path(flags.config), argv)
    if experiment.sweep is None:
        raise SpecError(flags.config, "has no get_sweep(); add one, or use `jtransformer train`.")
    check_packages()
    check_writable(workdir)
    check_no_single_run(workdir)
    corpora = _Corpora()
    plan = make_plan(
        experiment.tree,
        read_declaration(experiment.sweep),
        corpora.sha256,
        touched=experiment.touched,
        inherited=experiment.inherited,
    )
    corpora.check(plan)
    about = {
        "title": experiment.path.absolute().parent.name,
        "question": experiment.question,
        "command": shlex.join(["jtransformer", "sweep", *argv]),
        "data": corpora.describe(plan.base),
    }
    if flags.dry_run:
        job = _job(plan, about, workdir, flags.accept_environment)
        _print_plan(job)
        return 0
    with locked(workdir):
        job = _job(plan, about, workdir, flags.accept_environment)
        return _train_and_report(job)


class _Job(NamedTuple):
    """A plan that may be carried out in its work directory."""

    plan: Plan
    manifest: dict[str, Any]
    states: dict[str, str]
    workdir: Path
    accept_environment: bool


def _job(plan: Plan, about: dict[str, Any], workdir: Path, accept_environment: bool) -> _Job:
    """Holds a plan against what its work directory has; writes nothing."""
    old = records.load_manifest(workdir)
    if old is not None:
        plan = adopt(plan, old)
    new = manifest(plan, about)
    grown = check_continuation(old, new, workdir) if old is not None else 0
    if grown:
        say(f"The sweep in {workdir} grows by {grown} runs.")
    job = _Job(plan, new, states(plan, workdir), workdir, accept_environment)
    check_space(workdir, [cell.spec for cell in _todo(job)])
    if _todo(job) and not accept_environment:
        _check_environment(job)
    return job


def _todo(job: _Job) -> list[Cell]:
    return [cell for cell in job.plan.cells if job.states[cell.fingerprint] == "pending"]


def _train_and_report(job: _Job) -> int:
    records.write_json(records.SweepFiles(job.workdir).manifest, job.manifest)
    try:
        failed = _train(job)
    except PairingError as error:
        say(f"jtransformer sweep: {error}")
        return FAILED_RUN
    if failed is None:
        say("Stopped as asked; everything is saved. Run the same command to continue.")
        return REQUEUE
    show(job.workdir)
    if failed:
        say(f"{failed} runs failed; each has its traceback in failure.json. Run again to retry.")
    return FAILED_RUN if failed else 0


def _train(job: _Job) -> int | None:
    """Trains the missing cells; returns how many failed, None if it was asked to stop."""
    if not _todo(job):
        return 0
    import jax

    from jtransformer.training import Hooks, Interrupted, Trainer

    cache = records.SweepFiles(job.workdir).compile_cache
    jax.config.update("jax_compilation_cache_dir", str(cache.absolute()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", CACHED_FROM_SECONDS)
    by_spec = {cell.spec: cell for cell in job.plan.cells}
    with stop_requests() as should_stop, Progress(job.plan, dict(job.states)) as progress:
        hooks = Hooks(
            on_row=lambda spec, row: progress.on_row(by_spec[spec], row),
            should_stop=should_stop,
            accept_environment=job.accept_environment,
        )
        try:
            return execute(job.plan, job.workdir, Trainer(hooks).train, progress.on_done)
        except Interrupted:
            return None


def _check_environment(job: _Job) -> None:
    """Refuses another environment than the one in which the runs were begun."""
    paths = [records.RunFiles(job.workdir / cell.directory).environment for cell in job.plan.cells]
    begun = [path for path in paths if path.exists()]
    if not begun:
        return
    from jtransformer.training import check_same_environment, environment

    present = environment()
    for path in begun:
        check_same_environment(records.read_json(path), present)


class _Corpora:
    """What the runs of a sweep read, each read once."""

    def __init__(self):
        self._corpora: dict[Any, Any] = {}

    def sha256(self, spec: RunSpec) -> str:
        return self._load(spec).sha256

    def check(self, plan: Plan) -> None:
        """Refuses what cannot fill a batch of some cell, or does not fit its model."""
        from jtransformer import data
        from jtransformer.data.vocabularies import check_vocabularies

        for cell in plan.cells:
            corpus = self._load(cell.spec)
            data.check_batch(corpus, cell.spec)
            check_vocabularies(corpus, cell.spec)

    def describe(self, spec: RunSpec) -> dict[str, Any]:
        """Returns what the manifest says of the data, yardsticks included."""
        from jtransformer import data

        corpus = self._load(spec)
        simple = data.yardsticks(corpus, spec)
        return {
            "source": spec.data.source.kind,
            "sha256": corpus.sha256,
            **_sizes(corpus),
            "malformed": corpus.report.malformed,
            "too_long": corpus.report.too_long,
            "cut": corpus.report.cut,
            "loss_unit": spec.loss_unit,
            "unigram_nll": simple.unigram,
            "bigram_nll": simple.bigram,
            "xz_nll": simple.xz,
        }

    def _load(self, spec: RunSpec) -> Any:
        from jtransformer import data

        key = spec.data, spec.objective
        if key not in self._corpora:
            self._corpora[key] = data.load(*key)
        return self._corpora[key]


def _sizes(corpus: Any) -> dict[str, Any]:
    """Returns how much there is in all and in each part, named by the unit in which it counts."""
    import numpy as np

    from jtransformer import data

    parts = {"train": corpus.train, "validation": corpus.validation, "test": corpus.test}
    streams = [part.ids for part in parts.values() if isinstance(part, data.Stream)]
    unit = "examples" if not streams else "bytes" if streams[0].dtype == np.uint8 else "tokens"
    counts = {f"{name}_{unit}": len(part) for name, part in parts.items()}
    sizes = {"unit": unit, unit: sum(counts.values()), **counts}
    if streams:
        sizes[f"distinct_{unit}"] = len(np.unique(np.concatenate(streams)))
    return sizes


def _print_plan(job: _Job) -> None:
    from rich.table import Table

    plan = job.plan
    table = Table(title=f"{len(plan.arms)} arms, {len(plan.cells)} runs")
    for heading in ("arm", "solved", "parameters", "mismatch", "training MFLOP/token"):
        table.add_column(heading, justify="left" if heading in ("arm", "solved") else "right")
    for arm in job.manifest["arms"]:
        solved = ", ".join(
            f"{path.split('.')[-1]} {value}" for path, value in arm["matched"].items()
        )
        name = arm["name"] + (" (baseline)" if arm["name"] == plan.baseline else "")
        flops = arm["training_flops_per_token"] / 1e6
        table.add_row(
            name, solved, f"{arm['parameters']:,}", f"{arm['residual']:+.3%}", f"{flops:.3f}"
        )
    console().print(table)
    tuned = {path: list(values) for path, values in plan.declaration.nuisance.items()}
    print(f"tuned per arm: {tuned}; seeds: {list(plan.declaration.seeds)}")
