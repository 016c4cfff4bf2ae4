"""Tests of how workers are started; Ray and Slurm themselves are in test_launchers_clusters.py."""

import os
import signal
import subprocess
import sys
import time

import pytest

from jtransformer.spec import SpecError
from jtransformer.sweep.launchers import launcher, local
from jtransformer.sweep.launchers.child import start_worker, stop_worker


def until_ended(handle):
    end = time.monotonic() + 120
    while handle.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    return handle.poll()


@pytest.mark.parametrize(
    "name, words, message",
    [
        ("Local", [], "--launcher must be one of local, ray, slurm, got 'Local'"),
        ("local", ["cpus=2"], "--option cpus=2 is no setting of local; it has none"),
        ("ray", ["gpu=1"], "is no setting of ray; use one of address, cpus, gpus, tpus"),
        ("slurm", ["time=9"], "use one of partition, account, qos, constraint, minutes, cpus"),
        ("slurm", ["minutes"], "has no value; write minutes=VALUE"),
        ("slurm", ["minutes=1.5"], "must be a whole number above 0, got '1.5'"),
        ("slurm", ["cpus=0"], "must be a whole number above 0, got '0'"),
        ("ray", ["gpus=nan"], "must be a number above 0, got 'nan'"),
        ("ray", ["gpus=inf"], "must be a number above 0, got 'inf'"),
        ("slurm", ["partition="], "must not be empty; leave it out"),
    ],
)
def test_error_an_unknown_launcher_or_setting_is_answered_with_the_allowed(
    tmp_path, name, words, message
):
    with pytest.raises(SpecError) as caught:
        launcher(name, words, tmp_path)
    assert message in str(caught.value)


def test_settings_are_read_as_what_they_are(tmp_path):
    ray = launcher("ray", ["gpus=0.5", "address=auto"], tmp_path)
    assert (ray.gpus, ray.address, ray.cpus, ray.tpus) == (0.5, "auto", 1.0, None)
    slurm = launcher("slurm", ["minutes=90", "partition=a=b", "memory_gb=2.5"], tmp_path)
    assert (slurm.minutes, slurm.partition, slurm.memory_gb) == (90, "a=b", 2.5)


def test_cores_and_gpus_are_divided_among_all_workers():
    cores = list(range(5))
    shares = [local.share(cores, place, 2) for place in range(2)]
    assert shares == [[0, 2, 4], [1, 3]]
    assert [local.share([7], place, 3) for place in range(3)] == [[7]] * 3
    assert local.shared_gpus(1, 2, []) == {}
    assert local.shared_gpus(1, 2, ["3", "5", "8"]) == {local.VISIBLE: "5"}
    crowded = [local.shared_gpus(place, 3, ["3", "5"]) for place in range(3)]
    assert [one[local.VISIBLE] for one in crowded] == ["3", "5", "3"]
    assert {one[local.MEMORY] for one in crowded} == {"0.375"}
    assert local.visible_gpus({local.VISIBLE: "3,GPU-a"}) == ["3", "GPU-a"]
    assert local.visible_gpus({local.VISIBLE: ""}) == []


def test_a_local_worker_has_its_cores_its_log_and_an_end(tmp_path):
    before = os.sched_getaffinity(0)
    handles = launcher("local", [], tmp_path).submit(2)
    assert [until_ended(handle) for handle in handles] == [2, 2]
    logs = [handle.log.read_text() for handle in handles]
    assert all("holds no sweep (sweep.json is missing)" in log for log in logs)
    assert {handle.log.parent for handle in handles} == {tmp_path / "workers"}
    assert os.sched_getaffinity(0) == before


def test_a_worker_that_is_started_again_takes_the_place_of_the_one_that_ended(tmp_path):
    chosen = launcher("local", [], tmp_path)
    first, second = chosen.submit(2)
    until_ended(first), until_ended(second)
    (again,) = chosen.submit(1)
    assert again.log == first.log
    until_ended(again)


def test_a_child_is_not_ended_by_the_warnings_of_a_scheduler(tmp_path):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    process = start_worker(tmp_path, tmp_path / "workers/a.log", tmp_path)
    process.send_signal(signal.SIGUSR2)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=120) == 2  # It found no sweep.
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_a_child_that_is_stopped_says_so(tmp_path):
    (tmp_path / "workers").mkdir()
    process = start_worker(tmp_path, tmp_path / "workers/a.log", tmp_path)
    assert stop_worker(process) in (-signal.SIGTERM, 2, 75)


@pytest.mark.parametrize("name, extra", [("ray", "ray"), ("slurm", "submitit")])
def test_error_a_launcher_whose_package_is_missing(tmp_path, name, extra):
    code = f"""
import pathlib, sys
sys.modules["{extra}"] = None
from jtransformer.sweep.launchers import launcher
launcher("{name}", [], pathlib.Path(sys.argv[1])).submit(1)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert f"pip install 'jtransformer[{name}]'" in done.stderr
