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


def truncate_a_checkpoint(workdir, chance):
    """Cuts the largest file of the newest checkpoint of a run that has not ended."""
    runs = {path.parents[1] for path in workdir.glob("runs/*/*/checkpoints/[0-9]*")}
    begun = sorted(run for run in runs if not (run / "status.json").exists())
    if not begun:
        return False
    steps = (chance.choice(begun) / "checkpoints").glob("[0-9]*")
    newest = max((path for path in steps if path.name.isdecimal()), key=lambda p: int(p.name))
    files = [path for path in newest.rglob("*") if path.is_file() and path.stat().st_size > 1]
    if not files:
        return False
    largest = max(files, key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)
    return True


def spoil_a_status(workdir, chance):
    """Writes garbage where the status of a run that has not ended will be."""
    runs = [path.parent for path in workdir.glob("runs/*/*/spec.json")]
    open_ = sorted(run for run in runs if not (run / "status.json").exists())
    if not open_:
        return False
    (chance.choice(open_) / "status.json").write_text('{"torn')
    return True


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


@pytest.mark.parametrize("seed", [20])
def test_chaos_leaves_the_results_of_a_quiet_run(tmp_path, disk, seed):
    chance = random.Random(seed)
    config, workdir = chaos.config_file(tmp_path), disk / "out"
    quiet = chaos.finish(config, tmp_path / "quiet")
    process = chaos.start(config, workdir, *LAUNCHER)
    ended: dict = {}
    spoiled = {truncate_a_checkpoint: False, spoil_a_status: False}
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
            workers = chaos.children(process)
            chaos.hit(process.pid, signal.SIGKILL if number == 10 else signal.SIGTERM)
            process.wait(timeout=chaos.PATIENCE_SECONDS)
            number += 1
            continue
        workers = chaos.children(process)
        signals = (signal.SIGKILL, signal.SIGTERM)
        if workers and chaos.hit(chance.choice(workers), chance.choice(signals)):
            number += 1
        for spoil in spoiled:
            spoiled[spoil] = spoiled[spoil] or (number > 5 and spoil(workdir, chance))
        if number > 15 and not filled:
            assert fill(disk, process) != 0
            filled = True
    look()
    assert len(ended) < 24, "the sweep came to its end before it was disturbed as often as planned"
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=chaos.PATIENCE_SECONDS)
    assert chaos.finish(config, workdir, *LAUNCHER, tries=3) == quiet
    look()
    assert all(spoiled.values()) and filled and len(ended) == 24
    events = [row["event"] for path in workdir.rglob("events.jsonl")
              for row in records.read_rows(path)]  # fmt: skip
    assert "completed twice with other results" not in events
    assert "damaged checkpoint" in events and "damaged status" in events
