"""Tests for cli.joins, cli.hosts and cli.member of jtransformer: one run of several processes."""

import pathlib
import shutil
import socket
import threading
import time

import pytest
from started import (
    EVERY,
    LONG,
    PATIENCE_SECONDS,
    STEPS,
    assert_close,
    finish,
    has_rows,
    members,
    start,
    train,
    wait_until,
)

from jtransformer import records
from jtransformer.cli import joins, main
from jtransformer.cli.joins import Join


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--processes", "0"], "--processes must be at least 1, got 0."),
        (["--processes=2", "--distributed=auto"], "--distributed joins one process to others, "),
        (["--distributed", "here"], "--distributed must be auto, or HOST:PORT,N,I as in"),
        (["--distributed", "h:65536,2,0"], "has the port 65536; use one of 1 to 65535."),
        (["--distributed", "h:0,2,0"], "has the port 0; use one of 1 to 65535."),
        (["--distributed", "h:1,2,2"], "is process 2 of 2; they are numbered from 0."),
        (["--processes=5"], "5 processes divide the 4 rows of an update among them, and"),
        (["--processes=5", "--mesh=fsdp=2,tensor=2"], "the 4 devices of 'fsdp=2, tensor=2'"),
        (["--distributed=auto", "--coordinator_timeout=0"], "must be at least 1 second, got 0."),
        (["--coordinator_timeout=9"], "--coordinator_timeout would do nothing: this process"),
        (["--distributed=h:1,5,0"], "each needs one; use at most 4."),
        (["--processes=2", "--config.model.heads=3"], "model.heads"),
        (["--processes=2", "--config.model.head=3"], "model.head"),
    ],
)
def test_a_mistake_is_one_sentence_before_a_process_starts(
    config, tmp_path, capfd, words, sentence
):
    argv = ["train", "--config", str(config), "--workdir", str(tmp_path / "out"), *words]
    assert main(argv) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert sentence in line and not (tmp_path / "out").exists()


def test_processes_get_what_followed_the_command_but_who_they_are():
    argv = ["--config", "c", "--processes", "2", "--workdir=w", "--distributed=auto", "--mesh", "x"]
    assert list(joins.without(joins.FLAGS, argv)) == [
        "--config",
        "c",
        "--workdir=w",
        "--mesh",
        "x",
    ]


def test_asked_to_stop_while_others_are_missing_it_stops_at_once(config, tmp_path):
    words = ["--distributed", f"127.0.0.1:{joins._free_port()},2,0"]
    process = start(config, tmp_path / "run", *words)
    wait_until(lambda: members(process), process)
    process.terminate()
    begun = time.monotonic()
    code, (line,) = finish(process, tmp_path / "run")
    assert code == 75 and "stopped as asked" in line
    assert time.monotonic() - begun < joins.START_SECONDS / 4


@pytest.mark.parametrize("seconds", [1, 2])
def test_without_a_first_process_the_others_say_so_in_time(config, tmp_path, capfd, seconds):
    where = f"127.0.0.1:{joins._free_port()}"
    words = [f"--distributed={where},2,1", f"--coordinator_timeout={seconds}"]
    begun = time.monotonic()
    assert main(["train", "--config", str(config), "--workdir", str(tmp_path / "out"), *words]) == 2
    assert seconds <= time.monotonic() - begun < seconds + 20
    (line,) = capfd.readouterr().err.splitlines()
    assert line == (
        f"jtransformer train: --distributed = {where},2,1 found no process 0 at {where} within "
        f"{seconds} s (Connection refused); start that one too, give its host and port, or wait "
        "longer by --coordinator_timeout."
    )
    assert not (tmp_path / "out").exists()


def test_one_that_comes_before_the_first_waits_for_it(tmp_path):
    port, came = joins._free_port(), []
    join = Join(f"127.0.0.1:{port}", 2, 1, seconds=30)
    waiting = threading.Thread(target=lambda: came.append(joins.await_first(join)))
    waiting.start()
    time.sleep(2 * joins.KNOCK_SECONDS)
    assert waiting.is_alive() and not came
    with socket.create_server(("127.0.0.1", port)):
        waiting.join(timeout=30)
    assert came == [None]
    # The first of all, and one that a scheduler starts, look for nobody.
    assert joins.await_first(join._replace(process=0)) is None and joins.await_first(Join()) is None


def test_a_port_in_use_is_answered_with_a_free_one(config, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = ["--distributed", f"127.0.0.1:{taken.getsockname()[1]},1,0"]
        code, (line,) = finish(start(config, tmp_path / "run", *words), tmp_path / "run")
    assert code == 2 and "with a port that is free there." in line


def test_gpus_are_dealt_in_order(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.delenv("JAX_PLATFORMS")
    assert joins._gpus(2) == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="= 3 do not divide the 4 GPUs"):
        joins._gpus(3)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert joins._gpus(3) == [None] * 3
    assert joins._joined("10.0.0.1:99,4,3") == Join("10.0.0.1:99", 4, 3)


@pytest.fixture(scope="module")
def by_two(config, tmp_path_factory):
    """A run that two processes have trained, undisturbed."""
    workdir = tmp_path_factory.mktemp("two") / "run"
    return workdir, train(config, workdir, "--processes=2", *LONG)


@pytest.fixture(scope="module")
def by_four(config, tmp_path_factory):
    """A run that four processes have trained, undisturbed."""
    workdir = tmp_path_factory.mktemp("four") / "run"
    return workdir, train(config, workdir, "--processes=4", *LONG)


def files_of(workdir):
    found = {str(path.relative_to(workdir)) for path in workdir.rglob("*") if path.is_file()}
    return {path for path in found if not path.startswith("checkpoints")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["by_two", "by_four"])
def test_several_processes_record_what_one_does(config, tmp_path, request, name):
    """On the same mesh: sums of the gradients are added in another order, and nothing else."""
    workdir, found = request.getfixturevalue(name)
    count = 4 if name == "by_two" else 8
    expected = train(config, tmp_path / "one", f"--mesh=fsdp={count}", *LONG, devices=count)
    assert_close(found, expected, 1e-5)
    assert files_of(workdir) == files_of(tmp_path / "one")
    own, other = (
        records.read_json(records.RunFiles(path).environment)
        for path in (workdir, tmp_path / "one")
    )
    assert own.pop("process_count") == count // 2 and other.pop("process_count") == 1
    own.pop("xla_flags"), other.pop("xla_flags")
    assert own == other and own["mode"] == f"mesh, fsdp={count}"
    # One row a line, each once: nobody but the first process writes.
    assert len(records.RunFiles(workdir).metrics.read_text().splitlines()) == STEPS // EVERY
    shown = pathlib.Path(f"{workdir}.out").read_text().splitlines()
    assert len(shown) == STEPS // EVERY + 1 and "Gloo" not in "".join(shown)


@pytest.fixture(scope="module")
def stopped(config, tmp_path_factory):
    """A run of four processes that was asked to stop, where it stood and what was said."""
    workdir = tmp_path_factory.mktemp("stopped") / "run"
    process = start(config, workdir, "--processes=4", *LONG)
    wait_until(has_rows(workdir, 4), process)
    process.terminate()
    return workdir, *finish(process, workdir)


@pytest.mark.slow
def test_asked_to_stop_all_stop_at_one_update_and_go_on(config, tmp_path, stopped, by_four):
    workdir, code, errors = stopped
    assert code == 75 and len(errors) == 1
    assert errors[0].startswith("jtransformer train: stopped at step ")
    step = max(int(path.name) for path in (workdir / "checkpoints").iterdir())
    assert errors[0] == f"jtransformer train: stopped at step {step}; run again to continue"
    shutil.copytree(workdir, tmp_path / "run")
    assert train(config, tmp_path / "run", "--processes=4", *LONG) == by_four[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "devices"),
    [([], 1), (["--mesh=fsdp=8"], 8), (["--processes=2", "--mesh=data=2,tensor=2"], 2)],
)
def test_another_number_of_processes_and_devices_goes_on_with_the_same_batches(
    config, tmp_path, stopped, by_four, words, devices
):
    workdir = tmp_path / "run"
    shutil.copytree(stopped[0], workdir)
    code, (line,) = finish(start(config, workdir, *words, *LONG, devices=devices), workdir)
    assert code == 2 and "process_count 4 -> " in line and "--accept_environment" in line
    found = train(config, workdir, *words, "--accept_environment", *LONG, devices=devices)
    assert_close(found, by_four[1], 1e-4)


@pytest.mark.slow
def test_a_mistake_that_only_a_process_can_find_is_one_sentence(config, tmp_path):
    """The same in each of four processes."""
    words = ["--processes=4", "--config.training.batch_size=4000"]
    code, errors = finish(start(config, tmp_path / "run", *words), tmp_path / "run")
    assert code == 2 and len(errors) == 1
    assert errors[0].startswith("jtransformer train: training.batch_size = 4000 sequences")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_in_use_is_one_sentence(config, tmp_path):
    workdir = tmp_path / "run"
    # So long that the first still trains when the second has started, however busy the machine is.
    words = ["--processes=2", *LONG, "--config.training.steps=60000"]
    process = start(config, workdir, *words)
    wait_until(has_rows(workdir, 1), process)
    second = start(config, workdir, *words)
    try:
        code, errors = finish(second, workdir)
        assert code == 2 and len(errors) == 1 and "is in use by process" in errors[0]
    finally:
        process.terminate()
    assert process.wait(timeout=PATIENCE_SECONDS) == 75
