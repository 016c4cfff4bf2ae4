"""Tests of what becomes of runs whose claims are lost or silent, or whose workers vanished."""

import errno
import json
import subprocess
import sys
import time

import children
import pytest
from fake_training import CELLS, LAUNCH, SWEEP, Trainer, failure, vanished, work

from jtransformer import records
from jtransformer.sweep import ClaimLost, Launch, Ledger, Worker, cell_spec, worker

HOLDER = """
import pathlib, sys, time
from jtransformer.sweep import Ledger
book, run = Ledger("other", sys.argv[2]), pathlib.Path(sys.argv[1])
book.take(run, book.find(run))
print("holds", flush=True)
time.sleep(60)
"""


def test_a_worker_that_lost_its_claim_records_nothing_and_goes_on(tmp_path):
    one = Worker("one", tmp_path, SWEEP, LAUNCH)
    first = cell_spec(SWEEP, CELLS[0])
    files = records.RunFiles(tmp_path / CELLS[0]["directory"])
    lost = []

    def lose(spec, directory):
        one.guard(spec)
        if spec == first and not lost:
            (files.claims / "2.json").write_text(json.dumps({"released": True}))
            lost.append(spec)
            for claim in [claim for _, claim in one._working.values()]:
                claim._renew()
            one.guard(spec)

    trainer = Trainer(lose)
    assert one.work(trainer, on_done=lambda *_: None, should_stop=lambda: False)
    assert len(trainer.trained) == len(CELLS) + 1 and not files.failure.exists()
    assert sorted(path.name for path in files.claims.iterdir()) == [f"{n}.json" for n in (1, 2, 3)]
    assert json.loads((files.claims / "1.json").read_text())["released"] is False


def test_an_error_after_the_claim_was_lost_is_not_a_failure_of_the_run(tmp_path):
    one = Worker("one", tmp_path, SWEEP, LAUNCH)
    first, seen = cell_spec(SWEEP, CELLS[0]), []
    files = records.RunFiles(tmp_path / CELLS[0]["directory"])

    def lose(spec, directory):
        if spec == first and not seen:
            (files.claims / "2.json").write_text(json.dumps({"released": True}))
            seen.append(spec)
            one._working[spec][1]._renew()
            raise OSError("the files were taken away")

    assert one.work(Trainer(lose), on_done=lambda *_: None, should_stop=lambda: False)
    assert one.failed() == 0 and not files.failure.exists()


def test_guard_raises_only_for_a_claim_that_is_lost(tmp_path):
    one, calls = Worker("one", tmp_path, SWEEP, LAUNCH), []

    def check(spec, directory):
        one.guard(spec)
        assert one.cell_of(spec)["directory"] in str(directory)
        calls.append(spec)

    assert one.work(Trainer(check), on_done=lambda *_: None, should_stop=lambda: False)
    with pytest.raises(ClaimLost):  # Released by now.
        one.guard(calls[-1])


def test_a_run_that_kills_its_workers_comes_last_and_fails_in_the_end(tmp_path):
    vanished(tmp_path, CELLS[0], killed=worker.MOST_KILLED - 1)
    vanished(tmp_path, CELLS[1], killed=0)
    trainer = Trainer()
    complete, ended, failed = work(tmp_path, trainer)
    assert complete and failed == 1
    assert [directory for directory, _ in ended[-2:]] == [
        CELLS[1]["directory"],
        CELLS[0]["directory"],
    ]
    record = failure(tmp_path, CELLS[0])
    assert "vanished 5 times in a row" in record["error"] and record["attempts"] == 1
    again = Trainer()
    assert work(tmp_path, again, Launch(identity="second"))[::2] == (True, 0)
    assert len(again.trained) == 1


def test_a_worker_waits_for_the_runs_of_others_and_takes_them_over(tmp_path):
    run = tmp_path / CELLS[0]["directory"]
    holder = children.start(
        [sys.executable, "-c", HOLDER, str(run), "first"], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "holds\n"
    trainer = Trainer()

    def kill_once_all_else_is_done():
        if len(trainer.trained) == len(CELLS) - 1 and holder.poll() is None:
            holder.kill()
            holder.wait()
        return False

    complete, ended, _ = work(tmp_path, trainer, should_stop=kill_once_all_else_is_done)
    holder.communicate()
    assert complete and ended[-1] == (CELLS[0]["directory"], "done")
    assert sorted(path.name for path in (run / "claims").iterdir()) == ["1.json", "2.json"]


def test_a_worker_that_is_asked_to_stop_has_released_everything(tmp_path):
    trainer = Trainer()
    complete, _, _ = work(tmp_path, trainer, should_stop=lambda: len(trainer.trained) == 2)
    assert not complete and len(trainer.trained) == 2

    class Interrupted(BaseException):
        pass

    def interrupt(spec, directory):
        raise Interrupted

    with pytest.raises(Interrupted):
        work(tmp_path, Trainer(interrupt))
    book = Ledger("other", "first")
    standings = [book.find(tmp_path / cell["directory"]).standing for cell in CELLS]
    assert standings == ["released"] * 3 + ["free"] * (len(CELLS) - 3)
    assert not list(tmp_path.rglob("failure.json"))


def test_a_silent_owner_is_given_half_a_lease_before_its_run_is_begun(tmp_path):
    claims = tmp_path / CELLS[0]["directory"] / "claims"
    claims.mkdir(parents=True)
    elsewhere = {"host": "elsewhere", "pid": 1}
    (claims / "1.json").write_text(json.dumps({"process": elsewhere, "lease_seconds": 0.6}))
    waited = []

    def note(spec, directory):
        if directory == claims.parent:
            waited.append(time.time() - (claims / "2.json").stat().st_mtime)

    complete, ended, _ = work(tmp_path, Trainer(note))
    assert complete and len(ended) == len(CELLS)
    assert len(waited) == 1 and waited[0] > 0.29


@pytest.mark.parametrize("in_the_way", ["claims", "."], ids=["claims", "directory"])
def test_a_run_that_cannot_be_claimed_fails_alone(tmp_path, in_the_way):
    blocked = tmp_path / CELLS[1]["directory"] / in_the_way
    blocked.parent.mkdir(parents=True)
    blocked.write_text("not a directory")
    trainer = Trainer()
    complete, ended, failed = work(tmp_path, trainer)
    assert complete and failed == 1 and len(trainer.trained) == len(CELLS) - 1
    assert (CELLS[1]["directory"], "failed") in ended
    if in_the_way == "claims":
        error = failure(tmp_path, CELLS[1])["error"]
        assert "cannot be claimed" in error and str(blocked) in error
    blocked.unlink()
    assert work(tmp_path, Trainer(), Launch(identity="second"))[::2] == (True, 0)


def test_a_full_disk_is_the_end_of_all(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "claims")

    monkeypatch.setattr(Ledger, "take", full)
    with pytest.raises(OSError, match="No space"):
        work(tmp_path, Trainer())
