"""Tests of `jtransformer worker`, and of the sweep that only plans for it."""

import subprocess
import sys

import pytest
import sweep_chaos
import tiny_run

from jtransformer import records
from jtransformer.cli import main

SWEEP = dict(scientific={"model.ffn": ("relu", "gelu")}, seeds=(0,))
REQUEUE = 75


def worker(workdir, *more):
    words = ["worker", "--workdir", str(workdir), *more]
    return subprocess.run(
        [sys.executable, "-m", "jtransformer", *words],
        capture_output=True,
        text=True,
        env=sweep_chaos.environment(),
        timeout=sweep_chaos.PATIENCE_SECONDS,
    )


def states(workdir):
    return [run.state for run in records.load_sweep(workdir).runs]


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A work directory with a plan and nothing else."""
    root = tmp_path_factory.mktemp("planned")
    config, workdir = tiny_run.config_file(root, SWEEP, ffn="relu"), root / "out"
    words = ["--config", str(config), "--workdir", str(workdir), "--workers", "0"]
    assert main(["sweep", *words]) == 0
    assert states(workdir) == ["pending", "pending"] and not (workdir / "report").exists()
    return workdir


@pytest.mark.slow
def test_a_worker_whose_parent_has_gone_stops_and_one_without_goes_on_to_the_end(planned):
    orphan = worker(planned, "--parent", "1")
    assert orphan.returncode == REQUEUE and "everything is saved" in orphan.stderr
    assert states(planned) == ["pending", "pending"]
    done = worker(planned)
    assert done.returncode == 0, done.stderr
    assert "[2/2] gelu seed 0: done" in done.stdout and states(planned) == ["done", "done"]
    assert not [path for path in planned.rglob("claims/*") if path.name != "1.json"]


def test_error_nothing_is_planned_or_launched(tmp_path, capsys):
    assert main(["worker", "--workdir", str(tmp_path)]) == 2
    assert "holds no sweep (sweep.json is missing)" in capsys.readouterr().err
    assert main(["worker"]) == 2
    assert "--workdir is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--workers=-1", "--workers must be at least 0, got -1"),
        ("--retries=-1", "--retries must be at least 0, got -1"),
        ("--lease=0", "--lease must be a number of seconds above 0, got 0.0"),
        ("--lease=inf", "--lease must be a number of seconds above 0, got inf"),
        ("--lease=nan", "--lease must be a number of seconds above 0, got nan"),
        ("--launcher=loca", "--launcher must be one of local, ray, slurm, got 'loca'"),
        ("--option=cpus=1", "is no setting of local; it has none"),
        (
            "--workers=0 --track=wandb",
            "--track lasts as long as this command, which trains nothing",
        ),
        ("--compile_cache=", "--compile_cache is empty; write a path, or leave it out"),
        ("--compile_cache=~nobody-at-all/a", "is in the home of nobody"),
        ("--compile_cache=/dev/null/a", "--compile_cache = '/dev/null/a' cannot be written"),
    ],
)
def test_error_flags_of_the_sweep(tmp_path, capsys, flag, message):
    words = ["--config", str(tmp_path / "c.py"), "--workdir", str(tmp_path), *flag.split()]
    assert main(["sweep", *words]) == 2
    assert message in capsys.readouterr().err
