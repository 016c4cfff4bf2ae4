"""Workers are killed, files damaged, the disk is filled: the sweep ends as a quiet one does.

Every choice is drawn from the seed in the test's name; at which step it strikes is the machine's.
"""

import os
import random
import signal
import subprocess
import time

import pytest
import sweep_chaos as chaos

from jtransformer import records
from jtransformer.sweep.processes import _started

pytestmark = pytest.mark.slow
MOMENTS = 30
LAUNCHER = ("--workers", "3")


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own, where this process may mount one, and whether it is one."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("needs root to mount, as CI is (owner: maintainers, 2026-11-30)")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def unfinished(workdir):
    """Returns the runs that have a checkpoint and no status."""
    found = {path.parents[1] for path in workdir.glob("runs/*/*/checkpoints/[0-9]*") if
             path.name.isdecimal()}  # fmt: skip
    return sorted(run for run in found if not (run / "status.json").exists())


def truncate_a_checkpoint(run):
    """Cuts the largest file of the newest checkpoint of a run."""
    steps = [path for path in (run / "checkpoints").iterdir() if path.name.isdecimal()]
    newest = max(steps, key=lambda path: int(path.name))
    files = [path for path in newest.rglob("*") if path.is_file()]
    largest = max(files, key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)


def fill(disk, process):
    """Fills the disk until the sweep has given up, then makes room again."""
    filler = disk / "filler"
    with open(filler, "wb") as file:
        try:
            while True:
                file.write(bytes(2**20))
                file.flush()
        except OSError:
            pass
        finally:
            try:
                file.close()
            except OSError:
                pass
    code = process.wait(timeout=chaos.PATIENCE_SECONDS)
    filler.unlink()
    return code


def damage(config, workdir, process, chance):
    """Kills all there is once a run has a checkpoint, and damages what is left."""
    while True:
        if process.poll() is not None:
            process = chaos.start(config, workdir, *LAUNCHER)
        time.sleep(0.2)
        if not unfinished(workdir):
            continue
        workers = chaos.workers_of(process)
        for pid in [process.pid, *workers]:
            chaos.hit(pid, signal.SIGKILL)
        process.wait()
        while any(_started(pid) is not None for pid in workers):
            time.sleep(0.05)
        if unfinished(workdir):
            truncate_a_checkpoint(chance.choice(unfinished(workdir)))
            (chance.choice(unfinished(workdir)) / "status.json").write_text('{"torn')
            return


@pytest.mark.parametrize("seed", [20])
def test_chaos_leaves_the_results_of_a_quiet_run(tmp_path, disk, seed):
    chance = random.Random(seed)
    config, workdir = chaos.config_file(tmp_path), disk / "out"
    quiet = chaos.finish(config, tmp_path / "quiet")
    process = chaos.start(config, workdir, *LAUNCHER)
    ended: dict = {}
    number, filled = 0, False

    def look():
        now = chaos.completed(workdir)
        assert {path: now.get(path) for path in ended} == ended, "a run was completed twice or lost"
        ended.update(now)

    while number < MOMENTS:
        time.sleep(chance.uniform(0.2, 1.2))
        if process.poll() is not None:
            assert process.returncode in (1, 75, -signal.SIGKILL), process.returncode
            process = chaos.start(config, workdir, *LAUNCHER)
        look()
        if number in (10, 20):  # The sweep itself; its workers stop when it is gone.
            chaos.hit(process.pid, signal.SIGKILL if number == 10 else signal.SIGTERM)
            process.wait(timeout=chaos.PATIENCE_SECONDS)
            number += 1
            continue
        workers = chaos.workers_of(process)
        signals = (signal.SIGKILL, signal.SIGTERM)
        if workers and chaos.hit(chance.choice(workers), chance.choice(signals)):
            number += 1
        if number > 15 and not filled:
            assert fill(disk, process) != 0
            filled = True
    look()
    assert len(ended) < 24, "the sweep came to its end before it was disturbed as often as planned"
    damage(config, workdir, process, chance)
    assert chaos.finish(config, workdir, *LAUNCHER, tries=3) == quiet
    look()
    assert filled and len(ended) == 24
    events = [row["event"] for path in workdir.rglob("events.jsonl")
              for row in records.read_rows(path)]  # fmt: skip
    assert "completed twice with other results" not in events
    assert "damaged checkpoint" in events and "damaged status" in events
