"""Runs over eight devices as a user meets them: stopped, continued, repeated, read on one."""

import json
import shutil
import subprocess
import sys

import pytest
import several_processes
import tiny_run
from started import LONG, assert_close, finish, has_rows, kept, start, train, wait_until
from tiny_run import deterministic

from jtransformer import records

MESH = "--mesh=fsdp=4,tensor=2"
OTHER = "--mesh=data=8"
EIGHT = 8
# Of four updates and more at a learning rate of 0.01, from the same values: as for other numbers
# of processes, in test_hosts.py.
TOLERANCE = 1e-4
# Arms of one program.
SWEEP = dict(scientific={"optimizer.weight_decay": (0.1, 0.2)}, seeds=(0, 1))


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return tiny_run.config_file(tmp_path_factory.mktemp("config"), SWEEP)


@pytest.fixture(scope="module")
def undisturbed(config, tmp_path_factory):
    """A run over a mesh, and what it has recorded."""
    workdir = tmp_path_factory.mktemp("mesh") / "run"
    return workdir, train(config, workdir, MESH, *LONG, devices=EIGHT)


@pytest.fixture(scope="module")
def stopped(config, tmp_path_factory):
    """The same run, asked to stop when a third of it was done."""
    workdir = tmp_path_factory.mktemp("stopped") / "run"
    process = start(config, workdir, MESH, *LONG, devices=EIGHT)
    wait_until(has_rows(workdir, 6), process)
    process.terminate()
    code, (line,) = finish(process, workdir)
    assert code == 75 and line.startswith("jtransformer train: stopped at step ")
    return workdir


def called(config, *words, devices=1):
    """Runs a command to its end, which must be a good one; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "jtransformer", *map(str, words)],
        env=several_processes.environment(devices, **kept(config)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_bits(config, tmp_path, stopped, undisturbed):
    workdir = shutil.copytree(stopped, tmp_path / "run")
    assert train(config, workdir, MESH, *LONG, devices=EIGHT) == undisturbed[1]
    mode = records.read_json(records.RunFiles(workdir).environment)["mode"]
    assert mode == "mesh, fsdp=4, tensor=2"


@pytest.mark.slow
@pytest.mark.parametrize("words", [[OTHER], [OTHER, "--mode=pmap"], ["--mode=loop"]], ids=" ".join)
def test_another_layout_goes_on_where_it_is_accepted(config, tmp_path, stopped, undisturbed, words):
    workdir = shutil.copytree(stopped, tmp_path / "run")
    code, lines = finish(start(config, workdir, *words, *LONG, devices=EIGHT), workdir)
    assert code == 2 and "mode mesh, fsdp=4, tensor=2 -> " in lines[-1]
    assert "--accept_environment" in lines[-1]
    words = [*words, "--accept_environment"]
    assert_close(train(config, workdir, *words, *LONG, devices=EIGHT), undisturbed[1], TOLERANCE)


@pytest.mark.slow
def test_a_run_over_a_mesh_is_reproduced_to_the_bit_and_on_one_device_within_the_band(
    config, undisturbed
):
    words = "reproduce", "--workdir", undisturbed[0], "--json"
    again = json.loads(called(config, *words, devices=EIGHT))
    assert again["bitwise"] and not again["environment"]
    alone = json.loads(called(config, *words))
    assert alone["reproduced"] and abs(alone["validation_nll"]["difference"]) < TOLERANCE
    moved = {change["name"]: change["present"] for change in alone["environment"]}
    assert moved["mode"] == "loop" and moved["device_count"] == 1


@pytest.mark.slow
def test_one_device_evaluates_a_run_of_eight_and_generates_from_it(config, undisturbed):
    workdir, (status, _) = undisturbed
    found = json.loads(called(config, "evaluate", "--workdir", workdir, "--json"))
    recorded = status["result"]["validation_nll"]
    assert found["nll"] == pytest.approx(recorded, rel=TOLERANCE)
    words = "--prompt", "the dog", "--limit", 8, "--json"
    (added,) = json.loads(called(config, "generate", "--workdir", workdir, *words))["continuations"]
    assert len(added["tokens"]) == 8


def runs_of(workdir):
    """Returns what the runs of a sweep have recorded, and in which modes."""
    found = {path.parent.name: path.parent for path in workdir.glob("runs/*/*/status.json")}
    files = map(records.RunFiles, found.values())
    modes = {records.read_json(each.environment)["mode"] for each in files}
    return {name: deterministic(path) for name, path in found.items()}, modes


@pytest.mark.slow
def test_the_runs_of_a_sweep_are_spread_in_turn(config, tmp_path):
    spread = {
        "loop": ["--mode=loop"],
        "mesh, data=2": ["--mesh=data=2"],
        "pmap, 2 devices": ["--mode=pmap", "--mesh=data=2"],
    }
    found = {}
    for mode, words in spread.items():
        workdir = tmp_path / mode
        called(config, "sweep", "--config", config, "--workdir", workdir, *words, devices=EIGHT)
        found[mode], modes = runs_of(workdir)
        assert modes == {mode} and len(found[mode]) == 4
    for runs in found.values():
        for name, run in runs.items():
            assert_close(run, found["loop"][name], TOLERANCE)
