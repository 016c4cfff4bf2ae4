"""Plans a grid of runs, trains every run that is missing, and writes DIR/report/index.html.

usage: jtransformer sweep --config FILE --workdir DIR [--config.PATH=VALUE ...] [flags]

Running the same command again continues: finished runs are not repeated, an interrupted one goes
on from its newest checkpoint, and results.csv is the same to the bit.

  --config FILE          a Python file with get_config() and get_sweep()
  --config.PATH=VALUE    change one setting of get_config(), e.g. --config.training.steps=100;
                         None unsets an optional one
  --workdir DIR          where runs, checkpoints and the page are written
  --dry_run              check everything and print the plan; train and write nothing
  --workers N            how many workers train, 1: this process; 0: write the plan alone, for
                         workers that you start yourself (`jtransformer worker`)
  --launcher NAME        where workers run: local (the cores divided), ray or slurm
  --option NAME=VALUE    a setting of the launcher, again for another; a wrong one names all
  --retries N            how often a run that fails is tried again, 0
  --lease SECONDS        how long a worker may be silent before others take its run over, 60
  --track TRACKER        feed tensorboard or wandb while it trains (see `jtransformer track`)
  --accept_environment   go on although versions or devices have changed since the sweep began
  --mode MODE            how runs of one program are computed: loop, one after another; vmap or map,
                         in lockstep; spread, in lockstep over devices; mesh or pmap, one after
                         another, each over several devices (see `jtransformer train`); auto (the
                         default) is the fastest of the others here
  --mesh LAYOUT          by what each run is divided over devices, e.g. fsdp=4,tensor=2
  --runs_at_once N       how many in lockstep; as many as there are and memory holds
  --steps_per_dispatch N updates that are made at a time; one, or with auto what is fastest
  --compile_cache DIR    where compiled programs are kept, for other sweeps too; in the workdir

example: jtransformer sweep --config experiments/norm_and_ffn/config.py --workdir runs/norm_and_ffn

exit code: 0; 1 if a run failed; 2 for a mistake in the input; 75 if it was asked to stop (SIGTERM)
and should be started again.
"""

import contextlib
import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from jtransformer import records
from jtransformer.cli.arguments import parse, read_experiment
from jtransformer.cli.corpora import Corpora
from jtransformer.cli.finished import is_finished, show_finished
from jtransformer.cli.launch_flags import Workers, launch_flags, read_workers, spread_by
from jtransformer.cli.main import FAILED_RUN, REQUEUE
from jtransformer.cli.plan_tables import print_plan, start_lines
from jtransformer.cli.planning import continued, read_plan
from jtransformer.cli.preflight import (
    check_no_single_run,
    check_packages,
    check_space,
    check_writable,
    locked,
)
from jtransformer.cli.progress import say
from jtransformer.cli.report import show
from jtransformer.cli.supervision import LaunchError, supervise
from jtransformer.cli.track import tracker_directory
from jtransformer.cli.worker import train_here
from jtransformer.spec import DIVIDING_MODES, SpecError, to_tree
from jtransformer.sweep import (
    Cell,
    PairingError,
    Plan,
    executions,
    next_stage,
    states,
    write_launch,
)
from jtransformer.trackers import kept_fed

Tracking = Callable[[], contextlib.AbstractContextManager[None]]


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    own = launch_flags()
    flags.DEFINE_string("track", None, "track", flag_values=own)
    values = parse(argv, takes_config=True, switches=("dry_run",), others=own)
    workdir = Path(values.workdir).expanduser()
    workers = read_workers(values, workdir)
    if values.track is not None and not workers.number:
        raise SpecError("--track", "lasts as long as this command, which trains nothing with "
                        "--workers 0; run `jtransformer track` beside the workers.")  # fmt: skip
    tracking = _tracking(values.track, workdir)
    experiment = read_experiment(Path(values.config), argv)
    workers = spread_by(workers, values, experiment.layout)
    if experiment.sweep is None:
        raise SpecError(values.config, "has no get_sweep(); add one, or use `jtransformer train`.")
    check_packages()
    check_writable(workdir)
    check_no_single_run(workdir)
    corpora = Corpora()
    plan = read_plan(experiment, corpora)
    about = {
        "title": experiment.path.absolute().parent.name,
        "question": experiment.question,
        "command": shlex.join(["jtransformer", "sweep", *argv]),
        "data": _known(plan, workdir, corpora) or corpora.describe(plan.base),
        "threads": _threads(workdir),
        "starts": corpora.taken_over(plan),
    }
    if values.dry_run:
        print_plan(_job(plan, about, workdir, workers).manifest)
        return 0
    with locked(workdir):
        job = _job(plan, about, workdir, workers)
        return _train_and_report(job, tracking)


def _known(plan: Plan, workdir: Path, corpora: Corpora) -> dict[str, Any] | None:
    """Returns what an earlier manifest says of the same data; its yardsticks take a while."""
    old = records.load_manifest(workdir)
    if old is None or old["data"]["sha256"] != corpora.sha256(plan.base):
        return None
    base = to_tree(plan.base)
    same = all(old["base"][part] == base[part] for part in ("data", "objective"))
    return old["data"] if same else None


def _threads(workdir: Path) -> int:
    """Returns among how many threads the sweep divides the work of a CPU, wherever it goes on."""
    old = records.load_manifest(workdir) or {}
    return old.get("threads") or records.cpu_threads()


def _tracking(tracker: str | None, workdir: Path) -> Tracking:
    """Returns what keeps a tracker fed, where one is asked for.

    Raises:
        SpecError: If the tracker is unknown, or its package is missing.
    """
    if tracker is None:
        return contextlib.nullcontext
    into = tracker_directory(workdir, tracker, None)
    return functools.partial(kept_fed, workdir, tracker, into)


class _Job(NamedTuple):
    """A plan that may be carried out in its work directory."""

    plan: Plan
    about: dict[str, Any]
    manifest: dict[str, Any]
    states: dict[str, str]
    workdir: Path
    workers: Workers


def _job(plan: Plan, about: dict[str, Any], workdir: Path, workers: Workers) -> _Job:
    """Holds a plan against what its work directory has; writes nothing."""
    plan, new, grown = continued(plan, workdir, about)
    if grown:
        say(f"The sweep in {workdir} grows by {grown} runs.")
    job = _Job(plan, about, new, states(workdir, new["cells"]), workdir, workers)
    check_space(workdir, [cell.spec for cell in _todo(job)])
    records.use_cpu_threads(new["threads"])
    # Elsewhere than here, each worker compares its own environment.
    if _todo(job) and workers.launcher is None and not workers.launch.accept_environment:
        _check_environment(job)
    if workers.launcher is None and workers.launch.mode in DIVIDING_MODES:
        _check_layout(job)
    return job


def _todo(job: _Job) -> list[Cell]:
    return [cell for cell in job.plan.cells if job.states[cell.fingerprint] == "pending"]


def _train_and_report(job: _Job, tracking: Tracking) -> int:
    if not _todo(job) and is_finished(job.workdir, job.manifest) and _next_stage(job) is None:
        show_finished(job.workdir)
        return 0
    _write_manifest(job)
    write_launch(job.workdir, job.workers.launch)
    for line in start_lines(job.manifest["arms"]):
        say(line)
    if not job.workers.number:
        _say_what_is_planned(job if _todo(job) else _grown(job))
        return 0
    try:
        with tracking():
            failed = _train_to_the_last_stage(job)
    except (PairingError, LaunchError) as error:
        say(f"jtransformer sweep: {error}")
        return FAILED_RUN
    if failed is None:
        say("Stopped as asked; everything is saved. Run the same command to continue.")
        return REQUEUE
    show(job.workdir)
    if failed:
        say(f"{failed} runs failed; each has its traceback in failure.json. Run again to retry.")
    return FAILED_RUN if failed else 0


def _say_what_is_planned(job: _Job | None) -> None:
    if job is None:
        say("Nothing is left to train; `jtransformer report` writes the page.")
        return
    command = f"jtransformer worker --workdir {shlex.quote(str(job.workdir))}"
    decides = job.plan.declaration.search.rungs is not None or job.plan.declaration.extend
    then = "run this again, to decide what is next" if decides else "report"
    say(f"Planned. Start `{command}` as often and wherever you like, then {then}.")


def _train_to_the_last_stage(job: _Job) -> int | None:
    """Trains what is missing, decides from the results what to train next, and so on.

    Returns:
        How many runs have failed; None if it was asked to stop.
    """
    while True:
        failed = _train(job)
        if failed != 0:
            return failed
        grown = _grown(job)
        if grown is None:
            return 0
        job = grown


def _grown(job: _Job) -> _Job | None:
    """Returns the job with what follows from its results, written; None where nothing does."""
    further = _next_stage(job)
    if further is None:
        return None
    job = _job(further, job.about, job.workdir, job.workers)
    _write_manifest(job)
    return job


def _next_stage(job: _Job) -> Plan | None:
    return next_stage(job.plan, records.load_sweep(job.workdir))


def _train(job: _Job) -> int | None:
    """Trains the missing cells; returns how many failed, None if it was asked to stop."""
    if not _todo(job):
        return 0
    launch, number, chosen = job.workers
    try:
        if chosen is None:
            return train_here(job.workdir, job.manifest, launch, lambda: False)
        return supervise(chosen, number, job.workdir, job.manifest, launch)
    finally:
        _write_manifest(job)


def _write_manifest(job: _Job) -> None:
    """Writes sweep.json, with the executions that have been chosen by now."""
    chosen = {"execution": executions(job.workdir)}
    records.write_json(records.SweepFiles(job.workdir).manifest, job.manifest | chosen)


def _check_environment(job: _Job) -> None:
    """Refuses another environment than the one in which the runs were begun."""
    paths = [records.RunFiles(job.workdir / cell.directory).environment for cell in job.plan.cells]
    begun = [found for path in paths if (found := records.read_object(path)) is not None]
    if not begun:
        return
    from jtransformer.training import check_same_environment, environment

    for recorded in begun:
        # The mode is that of its program, which a run is held against when it is continued.
        check_same_environment(recorded, environment(str(recorded.get("mode"))))


def _check_layout(job: _Job) -> None:
    """Refuses a layout that is none for one of the programs, before the first is trained."""
    from jtransformer.cli.group_trainer import GroupTrainer
    from jtransformer.training import Hooks

    trainer = GroupTrainer(Hooks(), job.workers.launch)
    groups = {trainer.group_of(cell.spec): cell.spec for cell in _todo(job)}
    for spec in groups.values():
        trainer.choose(spec, runs=1, updates=1)
