"""Processes that train one run and are lost, killed, started apart, or short of a disk."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import several_processes
import tiny_slurm
from started import (
    EVERY,
    LONG,
    PATIENCE_SECONDS,
    STEPS,
    finish,
    has_rows,
    members,
    start,
    train,
    wait_until,
)
from tiny_run import deterministic

from jtransformer import records


@pytest.fixture(scope="module")
def by_two(config, tmp_path_factory):
    """A run that two processes have trained, undisturbed."""
    workdir = tmp_path_factory.mktemp("two") / "run"
    return workdir, train(config, workdir, "--processes=2", *LONG)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_job_in_one_sentence_and_a_restart_resumes(
    config, tmp_path, by_two, victim
):
    workdir = tmp_path / "run"
    process = start(config, workdir, "--processes=2", *LONG)
    wait_until(has_rows(workdir, 6), process)
    processes = members(process)
    os.kill(processes[victim], signal.SIGKILL)
    begin = time.monotonic()
    code, errors = finish(process, workdir)
    assert code == 1 and time.monotonic() - begin < 10
    assert errors == [
        f"jtransformer train: process {victim} of 2 was ended by SIGKILL; run the same command to "
        "continue from the newest checkpoint."
    ]
    for number in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)
    assert len(records.read_rows(records.RunFiles(workdir).metrics)) < STEPS // EVERY
    assert train(config, workdir, "--processes=2", *LONG) == by_two[1]


@pytest.mark.slow
def test_processes_that_are_started_apart_find_one_another(config, tmp_path, by_two):
    address = several_processes.free_address()
    workdir = tmp_path / "run"
    each = [
        start(config, tmp_path / f"{n}" / "run", f"--workdir={workdir}",
              f"--distributed={address},2,{n}", *LONG)
        for n in range(2)
    ]  # fmt: skip
    for n, process in enumerate(each):
        assert finish(process, tmp_path / f"{n}" / "run") == (0, [])
    assert deterministic(workdir) == by_two[1]
    assert (tmp_path / "1/run.out").read_text() == ""


@pytest.mark.slow
def test_a_lost_process_ends_those_that_were_started_apart(config, tmp_path):
    address, workdir = several_processes.free_address(), tmp_path / "run"
    each = [
        start(config, tmp_path / f"{n}" / "run", f"--workdir={workdir}",
              f"--distributed={address},2,{n}", *LONG)
        for n in range(2)
    ]  # fmt: skip
    wait_until(has_rows(workdir, 4), each[0])
    os.kill(members(each[1])[0], signal.SIGKILL)
    for n, process in enumerate(each):
        code, errors = finish(process, tmp_path / f"{n}" / "run")
        assert code == 1 and len(errors) == 1, errors
        assert f"process {n} of 2 " in errors[0] and "run the same command" in errors[0]
    assert "was ended by SIGKILL" in errors[0]


@contextlib.contextmanager
def small_disk(folder, megabytes):
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root to mount, as CI is (owner: maintainers, 2026-12-01)"
)
def test_a_full_disk_of_the_first_process_ends_all(config, tmp_path):
    noisy = config.with_name("noisy.py")
    # As libraries do that are shut down in the middle of a save, now and then.
    noise = "import sys\nif sys.argv[0].endswith('member.py'): print('noise', file=sys.stderr)\n"
    noisy.write_text(config.read_text() + noise)
    with small_disk(tmp_path / "disk", 20) as disk:
        workdir = disk / "run"
        # What it prints goes to another disk.
        process = start(noisy, tmp_path / "run", f"--workdir={workdir}", "--processes=2", *LONG)
        wait_until(has_rows(workdir, 4), process)
        with contextlib.suppress(OSError), open(disk / "filler", "wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        code, errors = finish(process, tmp_path / "run")
    assert code == 1 and len(errors) == 1, errors
    # A row that cannot be written is named; what orbax cannot write, its log has.
    assert re.match("jtransformer train: process [01] of 2 ", errors[0])
    assert "No space left on device" in errors[0] or "what it printed is in" in errors[0]


@pytest.mark.slow
@pytest.mark.skipif(
    not tiny_slurm.is_installed(),
    reason="needs slurm-wlm, munge and root (owner: maintainers, 2026-11-30)",
)
def test_slurm_starts_the_processes(config, tmp_path, by_two):
    workdir, command = tmp_path / "run", [sys.executable, "-m", "jtransformer", "train"]
    words = ["--config", str(config), "--workdir", str(workdir), "--distributed=auto", *LONG]
    with tiny_slurm.running(tmp_path / "slurm") as slurm:
        done = subprocess.run(
            ["srun", "--ntasks=2", *command, *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            env=several_processes.environment(2, SLURM_CONF=slurm["SLURM_CONF"]),
        )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert deterministic(workdir) == by_two[1]
    assert len(done.stdout.splitlines()) == STEPS // EVERY + 1
