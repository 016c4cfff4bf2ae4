"""Trains a run again from its directory alone, and compares every figure with the recorded one.

usage: jtransformer reproduce --workdir RUN [flags]

RUN is the directory of one run, also one of a sweep, and is only read. The run is trained in a
fresh directory, in the mode of execution in which it was trained. Where versions, machine, devices
and mode are the same, every row of metrics and the result must be equal to the bit (but for the
speed). Where they are not, each difference is named with what it can do, and the last validation
loss must lie within a band.

  --into DIR    where to train it; an interrupted reproduction continues there (a temporary folder)
  --band NATS   how far apart the last validation losses may be, in the unit of the loss (0.02)
  --json        print one JSON object

The band: another version, device or mode starts from the same values and reads the same batches,
but adds in another order or multiplies in another precision, and training amplifies that, at most
until two runs are as far apart as chance puts them. On the baseline of experiments/norm_and_ffn
another mode on one CPU moves the last loss by 5e-8 nats/byte at the learning rate 0.01 and by
0.0025 at 0.04; chance, the residual sd of its page, is 0.009. The default is twice that: give twice
the one of your sweep. A difference outside of it is one of what was computed.

example: jtransformer reproduce --workdir runs/norm_and_ffn/runs/pre-gelu/learning_rate=0.01-seed0-…

exit code: 0; 1 if a figure differs that must not, or by more than the band; 2 if the run is not
finished or damaged, or its data have changed; 75 if it was asked to stop.
"""

import contextlib
import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from jtransformer import records
from jtransformer.cli.allocation import reuse_memory
from jtransformer.cli.arguments import read_flags
from jtransformer.cli.environments import Change, changes
from jtransformer.cli.imported import folder_of
from jtransformer.cli.main import FAILED_RUN, REQUEUE
from jtransformer.cli.preflight import check_no_sweep, check_space, check_writable, locked
from jtransformer.cli.progress import say
from jtransformer.cli.run_directory import read_about
from jtransformer.cli.starts import Starts
from jtransformer.cli.stopping import stop_requests
from jtransformer.spec import RunSpec, SpecError, fingerprint, from_tree

BAND = 0.02


class Recorded(NamedTuple):
    """A complete run, read.

    Attributes:
        about: Its spec.json.
        spec: What was trained.
        run: Its rows and status.
        environments: Where it was trained; several where it was continued elsewhere.
    """

    about: dict[str, Any]
    spec: RunSpec
    run: records.RunRecord
    environments: list[dict[str, Any]]


def run(argv: list[str]) -> int:
    """Runs the command; see the module's docstring."""
    values = _flags(argv)
    workdir = Path(values.workdir).expanduser()
    recorded = read_recorded(workdir)
    _check_data(workdir, recorded)
    into = None if values.into is None else Path(values.into).expanduser()
    if into is not None:
        _check_into(into, workdir, recorded.about["fingerprint"])
    with _directory(into) as directory:
        check_space(directory, [recorded.spec])
        found = _train_again(recorded, directory)
        if found is None:
            again = "run the same command to continue" if into else "give --into to continue there"
            say(f"jtransformer reproduce: stopped as asked; {again}.")
            return REQUEUE
        verdict = _verdict(recorded, found, values.band)
    if values.json:
        print(json.dumps(verdict))
    else:
        _print(verdict, recorded.spec.loss_unit)
    return 0 if verdict["reproduced"] else FAILED_RUN


def read_recorded(workdir: Path) -> Recorded:
    """Reads a complete run.

    Raises:
        SpecError: If there is none, or it is not finished.
        DamagedRecord: If one of its files is damaged or missing.
    """
    files = records.RunFiles(workdir)
    about = read_about(files)
    if folder_of(files) is not None:
        raise SpecError(
            "--workdir", f"= {str(workdir)!r} was imported, not trained: there is nothing to train "
            "again; name a run that was trained here."
        )  # fmt: skip
    spec = from_tree(about["spec"])
    start = (about.get("start") or {}).get("sha256")
    is_whole = (start is None) == (spec.start_from is None)
    if not is_whole or (
        fingerprint(spec, about["data_sha256"], records.SCHEMA, start) != about["fingerprint"]
    ):
        raise records.DamagedRecord(
            f"{files.spec} is damaged (its spec is not the one of its fingerprint); restore it "
            "from a copy."
        )
    run = records.load_run(workdir, {"fingerprint": about["fingerprint"], "seed": spec.seed})
    if run.status is None:
        raise SpecError("--workdir", f"= {str(workdir)!r} holds a run that is not finished; train "
                        "it to its end first.")  # fmt: skip
    steps = [row["step"] for row in run.metrics]
    if not steps or steps[-1] != run.status["result"].get("steps"):
        raise records.DamagedRecord(
            f"{files.metrics} is damaged (it does not reach step "
            f"{run.status['result'].get('steps')}); restore it from a copy."
        )
    if run.environment is None:
        raise records.DamagedRecord(
            f"{files.environment} is missing, so that nothing can be said of a difference; "
            "restore it from a copy."
        )
    before = [
        event["before"]
        for event in records.read_rows(files.events)
        if event.get("event") == "continued in another environment"
    ]
    return Recorded(about, spec, run, [*before, run.environment])


def _check_data(workdir: Path, recorded: Recorded) -> None:
    from jtransformer import data

    corpus = data.load(recorded.spec.data, recorded.spec.objective)
    hashes = {
        "data": (corpus.sha256, recorded.about["data_sha256"]),
        "tokenizer": (corpus.tokenizer.sha256, recorded.about["tokenizer_sha256"]),
    }
    if recorded.spec.start_from is not None:
        found = Starts().sha256(recorded.spec) or ""
        hashes["start"] = found, recorded.about["start"]["sha256"]
    for what, (present, expected) in hashes.items():
        if present != expected:
            raise SpecError(
                "",
                f"The {what} of the run in {workdir} {'have' if what == 'data' else 'has'} changed "
                f"since it was trained (SHA-256 {present[:8]} instead of {expected[:8]}); restore "
                f"{'them' if what == 'data' else 'it'}.",
            )


def _check_into(into: Path, workdir: Path, identity: str) -> None:
    """Refuses a directory that holds anything but an earlier attempt at the same run."""
    if into.resolve() == workdir.resolve() or workdir.resolve() in into.resolve().parents:
        raise SpecError("--into", f"= {str(into)!r} is the run itself or in it; choose another.")
    check_writable(into, "--into")
    check_no_sweep(into, "--into")
    files = records.RunFiles(into)
    if files.spec.exists():
        if read_about(files)["fingerprint"] != identity:
            raise SpecError("--into", f"= {str(into)!r} holds another run; choose another.")
        return
    begun = {records.SweepFiles(into).lock.name, files.tokenizer.name}
    others = sorted(path.name for path in into.iterdir()) if into.exists() else []
    others = [name for name in others if name not in begun and not name.startswith(".")]
    if others:
        raise SpecError(
            "--into", f"= {str(into)!r} is not empty (it has {others[0]!r}); choose another."
        )


@contextlib.contextmanager
def _directory(into: Path | None) -> Iterator[Path]:
    if into is not None:
        with locked(into):
            yield into
        return
    with tempfile.TemporaryDirectory(prefix="jtransformer-reproduce-") as folder:
        yield Path(folder)


def _train_again(recorded: Recorded, directory: Path) -> records.RunRecord | None:
    """Returns the run, trained; None if it was asked to stop."""
    from jtransformer.training import Hooks, Interrupted, Trainer, environment

    # More or fewer than the run had would move its bits; where this host is another, it is said.
    records.use_cpu_threads((recorded.run.environment or {}).get("threads"))
    reuse_memory(recorded.spec)
    execution = _execution(recorded.run)
    files = records.RunFiles(directory)
    if files.environment.exists():
        moved = changes([records.read_json(files.environment)], environment(execution.label))
        if moved:
            name, _, before, now, _ = moved[0]
            raise SpecError("--into", f"= {str(directory)!r} was begun in another environment "
                            f"({name} {before} -> {now}); choose another.")  # fmt: skip
    say(f"Training {recorded.spec.training.steps} steps in {directory} ({execution.label}).")
    with stop_requests() as should_stop:
        trainer = Trainer(Hooks(should_stop=should_stop))
        cells = [(recorded.spec, directory)]
        try:
            with contextlib.closing(trainer.train_group(cells, execution)) as ended:
                error = next(ended).error
        except Interrupted:
            return None
    if error is not None:
        raise error
    cell = {"fingerprint": recorded.about["fingerprint"], "seed": recorded.spec.seed}
    return records.load_run(directory, cell)


def _execution(run: records.RunRecord) -> Any:
    """Returns the mode in which the run was trained, or one by one where it cannot be had here."""
    import jax

    from jtransformer.training import LOOP, Execution

    try:
        execution = Execution.from_label(str((run.environment or {}).get("mode")))
    except SpecError:  # Of a version that has other modes; then the difference is named.
        return LOOP
    return execution if execution.all_devices <= jax.local_device_count() else LOOP


def _verdict(recorded: Recorded, found: records.RunRecord, band: float) -> dict[str, Any]:
    """Compares two complete runs, and says whether that is the difference to be expected."""
    run = recorded.run
    assert run.status is not None and found.status is not None and found.environment is not None
    moved = changes(recorded.environments, found.environment)
    difference = records.first_difference(run, found)
    before, after = (status["result"]["validation_nll"] for status in (run.status, found.status))
    apart = None if before is None or after is None else after - before
    within = run.state == found.state and (apart is None or abs(apart) <= band)
    return {
        "reproduced": difference is None or (bool(moved) and within),
        "bitwise": difference is None,
        "rows": len(run.metrics),
        "first_difference": None if difference is None else difference._asdict(),
        "environment": [change._asdict() for change in moved],
        "state": {"recorded": run.state, "found": found.state},
        "validation_nll": {"recorded": before, "found": after, "difference": apart},
        "band": band,
    }


def _print(verdict: dict[str, Any], unit: str) -> None:
    moved = [Change(**change) for change in verdict["environment"]]
    if verdict["bitwise"]:
        where = "although the environment differs" if moved else "in the same environment"
        print(f"Reproduced {where}: {verdict['rows']} rows and the result are equal to the bit.")
    else:
        difference = records.Difference(**verdict["first_difference"])
        print(
            f"{'Reproduced' if verdict['reproduced'] else 'Not reproduced'}: {_why(verdict, unit)}"
        )
        print(f"The first difference: {difference}.")
    for change in moved:
        was = f"{change.name} was {change.recorded!r} and is {change.present!r}"
        print(f"- {change.kind}: {was}; {change.explanation}.")


def _why(verdict: dict[str, Any], unit: str) -> str:
    if not verdict["environment"]:
        return "figures differ although the environment is the same."
    states, losses = verdict["state"], verdict["validation_nll"]
    if states["recorded"] != states["found"]:
        return f"the run was {states['recorded']} and is {states['found']}."
    if losses["difference"] is None:
        return f"the run is {states['found']} as it was."
    side = "within" if verdict["reproduced"] else "outside"
    return (
        f"the last validation loss was {losses['recorded']:.4f} and is {losses['found']:.4f} "
        f"{unit}, which is {side} the band of {verdict['band']:g}."
    )


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    for name in ("workdir", "into"):
        flags.DEFINE_string(name, None, name, flag_values=values)
    flags.DEFINE_float("band", BAND, "band", flag_values=values)
    flags.DEFINE_bool("json", False, "json", flag_values=values)
    read_flags(values, argv, stray="write --workdir RUN")
    if not values.workdir:
        raise SpecError("--workdir", "is missing; add --workdir RUN.")
    if not 0 <= values.band < math.inf:
        raise SpecError("--band", f"must be a number of at least 0, got {values.band}.")
    return values
