"""A sweep that is killed anywhere and started again ends as one that nothing disturbed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import children
import pytest
import tiny_run

from jtransformer import records

SWEEP = dict(
    scientific={"model.ffn": ("relu", "swiglu")},
    nuisance={"optimizer.learning_rate": (0.01, 0.02)},
    seeds=(0, 1),
    match=dict(equal="parameters", by="model.ffn_width", multiple_of=1, tolerance=0.02),
)
COMMAND = "import sys; from jtransformer.cli import main; sys.exit(main())"
REQUEUE = 75


def command(config, workdir, *more):
    words = ["sweep", "--config", str(config), "--workdir", str(workdir), *more]
    return [sys.executable, "-c", COMMAND, *words]


def finished(config, workdir):
    done = subprocess.run(command(config, workdir), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(config, workdir):
    return children.start(
        command(config, workdir), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def wait_for(condition, process, seconds=120):
    """Waits until a condition holds or the process has ended; returns whether it held."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if condition():
            return True
        time.sleep(0.001)
    return False


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def runs_done(workdir):
    return {path.parent: path.stat().st_mtime_ns for path in workdir.glob("runs/*/*/status.json")}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """A config file and the results of its sweep, undisturbed."""
    root = tmp_path_factory.mktemp("sweep")
    config = tiny_run.config_file(root, SWEEP, ffn="relu")
    finished(config, root / "quiet")
    return config, root / "quiet"


def csv(workdir):
    return (workdir / "report/results.csv").read_bytes()


@pytest.mark.slow
def test_killed_in_mid_checkpoint_and_at_random(experiment, tmp_path):
    config, quiet = experiment
    workdir = tmp_path / "out"
    chance = random.Random(0)

    def writing():
        return any(workdir.glob("runs/*/*/checkpoints/*orbax-checkpoint-tmp*"))

    process = start(config, workdir)
    assert wait_for(writing, process), "no checkpoint was seen being written"
    kill(process)
    kept = runs_done(workdir)
    process = start(config, workdir)
    wait_for(lambda: len(runs_done(workdir)) > len(kept) + 1, process)
    time.sleep(chance.uniform(0, 0.3))
    kill(process)
    kept = runs_done(workdir)
    assert kept
    finished(config, workdir)
    after = runs_done(workdir)
    assert {path: after[path] for path in kept} == kept, "a finished run was made again"
    assert csv(workdir) == csv(quiet)


@pytest.mark.slow
def test_sigterm_saves_and_asks_to_be_started_again(experiment, tmp_path):
    config, quiet = experiment
    workdir = tmp_path / "out"
    process = start(config, workdir)
    assert wait_for(lambda: any(workdir.glob("runs/*/*/metrics.jsonl")), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == REQUEUE
    stopped = [path for path in workdir.glob("runs/*/*") if not (path / "status.json").exists()]
    assert all(any((path / "checkpoints").iterdir()) for path in stopped)
    finished(config, workdir)
    assert csv(workdir) == csv(quiet)


def test_a_closed_pipe_is_no_success(experiment, tmp_path):
    config, _ = experiment
    reader, writer = os.pipe()
    os.close(reader)
    words = command(config, tmp_path / "out")
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, timeout=300)
    os.close(writer)
    assert done.returncode == 1


@pytest.mark.slow
def test_another_environment_is_refused_unless_accepted(experiment, tmp_path):
    config, quiet = experiment
    workdir = tmp_path / "out"
    subprocess.run(["cp", "-a", str(quiet), str(workdir)], check=True)
    first = min(runs_done(workdir))
    (first / "status.json").unlink()
    environment = records.read_json(first / "environment.json")
    records.write_json(first / "environment.json", environment | {"jax": "0.0.1"})
    refused = subprocess.run(command(config, workdir), capture_output=True, text=True)
    assert refused.returncode == 2 and "jax 0.0.1 -> " in refused.stderr
    accepted = command(config, workdir, "--accept_environment")
    assert subprocess.run(accepted, capture_output=True).returncode == 0
    assert csv(workdir) == csv(quiet)


@pytest.mark.slow
def test_a_run_that_fails_leaves_its_traceback_and_is_tried_again(experiment, tmp_path):
    config, quiet = experiment
    workdir = tmp_path / "out"
    subprocess.run(["cp", "-a", str(quiet), str(workdir)], check=True)
    first, second = sorted(runs_done(workdir))[:2]
    for directory in (first, second):
        (directory / "status.json").unlink()
    # A file where the directory of checkpoints should be.
    shutil.rmtree(first / "checkpoints")
    (first / "checkpoints").write_text("")
    failed = subprocess.run(command(config, workdir), capture_output=True, text=True)
    assert failed.returncode == 1 and "1 runs failed" in failed.stderr
    assert "Traceback" in records.read_json(first / "failure.json")["traceback"]
    assert (second / "status.json").exists()
    (first / "checkpoints").unlink()
    finished(config, workdir)
    assert not (first / "failure.json").exists() and csv(workdir) == csv(quiet)


def test_a_second_process_is_refused_while_the_first_runs(experiment, tmp_path):
    config, _ = experiment
    workdir = tmp_path / "out"
    process = start(config, workdir)
    assert wait_for((workdir / "sweep.json").exists, process)
    second = subprocess.run(command(config, workdir), capture_output=True, text=True, timeout=120)
    kill(process)
    assert second.returncode == 2 and f"in use by process {process.pid}" in second.stderr


def test_a_finished_sweep_is_reported_again_without_training(experiment):
    config, quiet = experiment
    before, table = runs_done(quiet), csv(quiet)
    assert "relu" in finished(config, quiet)
    assert runs_done(quiet) == before and csv(quiet) == table


def test_a_finished_sweep_answers_without_jax_or_statistics(experiment):
    config, quiet = experiment
    page = quiet / "report" / "index.html"
    before = page.stat().st_mtime_ns
    heavy = {"jax", "flax", "grain", "pandas", "scipy", "statsmodels", "altair"}
    words = command(config, quiet)
    words[2] = (
        f"import sys; from jtransformer.cli import main; main(); print({heavy} & {{*sys.modules}})"
    )
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.stdout.endswith("set()\n"), done.stderr
    assert "nothing to train" in done.stdout and "swiglu" in done.stdout
    assert page.stat().st_mtime_ns == before
    (quiet / "report" / "made_from.txt").write_text("made from something else\n")
    finished(config, quiet)
    assert page.stat().st_mtime_ns > before


def test_another_sweep_in_the_directory_is_refused_with_what_differs(experiment):
    config, quiet = experiment
    more = ["--config.training.steps=11"]
    refused = subprocess.run(command(config, quiet, *more), capture_output=True, text=True)
    assert refused.returncode == 2
    assert "holds another sweep (base.training.steps: 10 there, 11 here" in refused.stderr


@pytest.mark.slow
def test_a_sweep_may_grow_and_keeps_what_it_has(experiment, tmp_path):
    config, quiet = experiment
    workdir = tmp_path / "out"
    subprocess.run(["cp", "-a", str(quiet), str(workdir)], check=True)
    before = runs_done(workdir)
    grown = SWEEP | {"seeds": (7, 0, 1)}
    finished(tiny_run.config_file(tmp_path, grown, **_model(config)), workdir)
    after = runs_done(workdir)
    assert len(after) == 12 and {path: after[path] for path in before} == before


@pytest.mark.slow
def test_a_finished_sweep_may_be_judged_anew_and_its_page_says_so(experiment, tmp_path):
    config, quiet = experiment
    workdir = tmp_path / "out"
    subprocess.run(["cp", "-a", str(quiet), str(workdir)], check=True)
    before, page = runs_done(workdir), workdir / "report" / "index.html"
    ruled = tiny_run.config_file(tmp_path, SWEEP | {"verdict": {"margin": 5.0}}, **_model(config))
    assert "is equivalent to relu within the margin of 5 nats" in finished(ruled, workdir)
    assert runs_done(workdir) == before and csv(workdir) == csv(quiet)
    said = "The margin was changed after 8 runs had finished: from none to 5 nats/byte."
    assert said in page.read_text(encoding="utf-8")
    written = page.stat().st_mtime_ns
    assert "nothing to train" in finished(ruled, workdir)
    assert page.stat().st_mtime_ns == written
    assert "from 5 nats/byte to none" in finished(config, workdir)
    assert said in page.read_text(encoding="utf-8"), "what was tried stays"


def _model(config):
    return {"ffn": json.loads((config.parent / "run.json").read_text())["model"]["ffn"]}


def test_a_damaged_status_is_made_again_and_a_damaged_pairing_is_refused(experiment, tmp_path):
    config, quiet = experiment
    workdir = tmp_path / "out"
    subprocess.run(["cp", "-a", str(quiet), str(workdir)], check=True)
    first, second = sorted(runs_done(workdir))[:2]
    (first / "status.json").write_text('{"torn')
    finished(config, workdir)
    assert csv(workdir) == csv(quiet)
    status = records.read_json(second / "status.json")
    status["pairing"]["initial"]["embedding/table"]["hash"] = "0" * 16
    records.write_json(second / "status.json", status)
    (first / "status.json").unlink()
    failed = subprocess.run(command(config, workdir), capture_output=True, text=True)
    assert failed.returncode == 1
    assert "initial values of embedding/table" in failed.stderr


@pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root to mount, as CI is (owner: maintainers, 2026-11-29)"
)
def test_unwritable_and_full_disks_are_refused_before_any_work(experiment, tmp_path):
    config, _ = experiment
    disk = tmp_path / "disk"
    disk.mkdir()
    for option, message in (("ro,size=20m", "cannot be written"), ("size=1m", "MiB free, but")):
        subprocess.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(disk)], check=True)
        try:
            words = command(config, disk / "out")
            refused = subprocess.run(words, capture_output=True, text=True, timeout=120)
            assert not list(disk.rglob("runs"))
        finally:
            subprocess.run(["umount", str(disk)], check=True)
        assert refused.returncode == 2 and message in refused.stderr, refused.stderr


@pytest.mark.exhaustive
def test_killed_at_many_random_moments(experiment, tmp_path):
    config, quiet = experiment
    workdir = tmp_path / "out"
    chance = random.Random(1)
    for _ in range(20):
        process = start(config, workdir)
        number = len(runs_done(workdir))
        wait_for(lambda: len(runs_done(workdir)) > number, process, chance.uniform(1, 12))  # noqa: B023
        time.sleep(chance.uniform(0, 0.2))
        kill(process)
    finished(config, workdir)
    assert csv(workdir) == csv(quiet)
