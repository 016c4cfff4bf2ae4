"""Tests that a run has one owner at a time, whatever happens to its owners."""

import errno
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import children
import pytest

from jtransformer import records
from jtransformer.sweep import Ledger, is_worked_on, ledger
from jtransformer.sweep.processes import _started, is_gone, this_process

LEASE = 0.8
RACER = """
import pathlib, sys
from jtransformer.sweep import Ledger
root, ledger = pathlib.Path(sys.argv[1]), Ledger(sys.argv[2], "launch")
for line in sys.stdin:
    run = root / line.strip()
    found = ledger.find(run)
    print(int(ledger.take(run, found) is not None), flush=True)
"""
OWNER = f"""
import os, pathlib, signal, sys, time
from jtransformer.sweep import Ledger
run = pathlib.Path(sys.argv[1])
pause = run / "pause"
ledger = Ledger("owner", "launch", {LEASE})
claim = ledger.take(run, ledger.find(run))
print("owner", flush=True)
while True:
    # By itself, since a signal from outside may land between the question and the row.
    if pause.exists():
        pause.unlink()
        os.kill(os.getpid(), signal.SIGSTOP)
    if not claim.held():
        break
    with open(run / "metrics.jsonl", "a") as file:
        file.write("row\\n")
    time.sleep(0.002)
print("lost", flush=True)
"""


def start(code, *words):
    command = [sys.executable, "-c", code, *map(str, words)]
    return children.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(racer, line):
    racer.stdin.write(f"{line}\n")
    racer.stdin.flush()


def pause(owner, run):
    """Has an owner stop between two rows."""
    (run / "pause").touch()
    end_at = time.monotonic() + 20
    while state(owner) != "T":
        assert time.monotonic() < end_at and owner.poll() is None
        time.sleep(0.01)


def state(process):
    """Returns the letter of a process's state; proc(5), /proc/[pid]/stat, field 3."""
    text = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
    return text.rpartition(")")[2].split()[0]


def claims(run):
    return sorted(path.name for path in (run / "claims").iterdir())


def take(book, run):
    return book.take(run, book.find(run))


def until_silent(book, run):
    end_at = time.monotonic() + 20 * LEASE
    while (found := book.find(run)).standing == "held":
        assert time.monotonic() < end_at
        time.sleep(LEASE / 20)
    return found


def test_of_processes_that_claim_at_once_exactly_one_wins(tmp_path):
    racers = [start(RACER, tmp_path, name) for name in "abc"]
    won = []
    for number in range(300):
        for racer in racers:
            ask(racer, number)
        won.append([int(racer.stdout.readline()) for racer in racers])
    assert all(sum(row) == 1 for row in won)
    assert all(any(row[i] for row in won) for i in range(3)), "one process always won: no race"
    assert all(claims(tmp_path / str(number)) == ["1.json"] for number in range(300))


def test_of_processes_that_take_over_at_once_exactly_one_wins(tmp_path):
    racers = [start(RACER, tmp_path, name) for name in "ab"]
    gone = start("")
    process = this_process() | {"pid": gone.pid, "started": 1}
    gone.communicate()
    for number in range(100):
        folder = tmp_path / str(number) / "claims"
        folder.mkdir(parents=True)
        (folder / "1.json").write_text(json.dumps({"process": process, "released": False}))
        for racer in racers:
            ask(racer, number)
        assert sum(int(racer.stdout.readline()) for racer in racers) == 1
        assert claims(tmp_path / str(number)) == ["1.json", "2.json"]


def test_a_claim_is_held_until_it_is_released(tmp_path):
    book, other = Ledger("a", "launch"), Ledger("b", "launch")
    claim = take(book, tmp_path)
    assert claim.held() and is_worked_on(tmp_path)
    assert other.find(tmp_path).standing == "held" and take(other, tmp_path) is None
    claim.release()
    assert not claim.held() and not is_worked_on(tmp_path)
    assert other.find(tmp_path) == ledger.Found("released", 1, 0)
    second = take(other, tmp_path)
    assert second.held() and second.grace_seconds == 0 and claims(tmp_path) == ["1.json", "2.json"]
    claim.release()
    assert second.held()
    second.release()


def test_an_owner_that_was_killed_is_superseded_at_once(tmp_path):
    owner = start(OWNER, tmp_path)
    assert owner.stdout.readline() == "owner\n"
    book = Ledger("b", "launch", 1000.0)
    assert book.find(tmp_path).standing == "held" and is_worked_on(tmp_path)
    owner.kill()
    # Not yet waited for, so its number is still taken.
    while book.find(tmp_path).standing == "held":
        time.sleep(0.01)
    assert not is_worked_on(tmp_path)
    claim = take(book, tmp_path)
    assert claim.held() and claim.grace_seconds == 0
    claim.release()


def test_an_owner_that_was_paused_writes_nothing_once_it_was_superseded(tmp_path):
    owner = start(OWNER, tmp_path)
    assert owner.stdout.readline() == "owner\n"
    book, metrics = Ledger("b", "launch", LEASE), tmp_path / "metrics.jsonl"
    while not metrics.exists():
        time.sleep(0.01)
    assert book.find(tmp_path).standing == "held"
    time.sleep(2 * LEASE)
    assert book.find(tmp_path).standing == "held", "an owner that renews was taken for silent"
    pause(owner, tmp_path)
    found = until_silent(book, tmp_path)
    assert found.standing == "silent"
    claim = book.take(tmp_path, found)
    assert claim.grace_seconds == LEASE / 2
    before = metrics.read_bytes()
    owner.send_signal(signal.SIGCONT)
    assert owner.stdout.readline() == "lost\n"
    assert metrics.read_bytes() == before and claim.held()
    assert claims(tmp_path) == ["1.json", "2.json"]
    claim.release()


def test_an_owner_that_nobody_superseded_goes_on_after_a_pause(tmp_path):
    owner = start(OWNER, tmp_path)
    assert owner.stdout.readline() == "owner\n"
    pause(owner, tmp_path)
    time.sleep(2 * LEASE)
    metrics = tmp_path / "metrics.jsonl"
    before = metrics.stat().st_size if metrics.exists() else 0
    owner.send_signal(signal.SIGCONT)
    end_at = time.monotonic() + 20
    while not metrics.exists() or metrics.stat().st_size <= before + 40:
        assert time.monotonic() < end_at and owner.poll() is None
        time.sleep(0.01)


def test_an_owner_that_cannot_renew_gives_up_after_its_lease(tmp_path):
    claim = take(Ledger("a", "launch", LEASE), tmp_path)
    (tmp_path / "claims").rename(tmp_path / "away")
    assert claim.held()
    time.sleep(2 * LEASE)
    assert not claim.held()
    claim.release()


@pytest.mark.parametrize(
    "garbage", ["", "{", "null", "[]", '"held"', '{"process": 5}', '{"lease_seconds": "x"}', "\0\0"]
)
def test_a_claim_that_is_garbage_is_taken_over_after_a_lease(tmp_path, garbage):
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "3.json").write_text(garbage)
    book = Ledger("b", "launch", LEASE)
    assert book.find(tmp_path).standing == "held" and take(book, tmp_path) is None
    found = until_silent(book, tmp_path)
    claim = book.take(tmp_path, found)
    assert claim.held() and claims(tmp_path) == ["3.json", "4.json"]
    claim.release()


def test_what_is_no_claim_is_not_looked_at(tmp_path):
    (tmp_path / "claims").mkdir()
    for name in (".1.json.abc.tmp", "x.json", "7", "²3.json"):
        (tmp_path / "claims" / name).write_text("")
    assert Ledger("b", "launch").find(tmp_path) == ledger.Found("free", 0, 0)


def test_kills_without_a_new_row_are_counted_within_a_launch(tmp_path):
    gone = start("")
    process = this_process() | {"pid": gone.pid, "started": 1}
    gone.communicate()
    content = {"launch": "one", "process": process, "released": False}
    content |= {"killed": 2, "metrics_bytes": 0}
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "1.json").write_text(json.dumps(content))
    assert Ledger("b", "one").find(tmp_path) == ledger.Found("gone", 1, 3)
    assert Ledger("b", "two").find(tmp_path) == ledger.Found("gone", 1, 0)
    records.append_row(tmp_path / "metrics.jsonl", {"step": 1})
    assert Ledger("b", "one").find(tmp_path) == ledger.Found("gone", 1, 0)


def test_a_process_is_known_by_place_number_and_start():
    present = this_process()
    assert not is_gone(present)
    assert is_gone(present | {"started": present["started"] + 1})
    for name in ("host", "boot", "namespace"):
        assert not is_gone(present | {name: "another", "started": 1})
    assert not is_gone({}) and not is_gone(present | {"pid": "x"})
    child = start("import time; print('began', flush=True); time.sleep(60)")
    assert child.stdout.readline() == "began\n"
    began = present | {"pid": child.pid, "started": _started(child.pid)}
    assert not is_gone(began)
    child.kill()
    while _started(child.pid) is not None:
        time.sleep(0.01)
    assert is_gone(began), "one that has ended and was not waited for was taken for alive"
    child.communicate()
    assert is_gone(began)


@pytest.mark.parametrize("number", sorted(records.files.WITHOUT_LINKS))
def test_files_are_created_once_without_links_too(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "x.json"
    assert records.create_json(path, {"a": 1}) and not records.create_json(path, {"a": 2})
    assert records.read_json(path) == {"a": 1} and list(tmp_path.iterdir()) == [path]


def test_error_a_disk_that_cannot_link_is_reported_and_leaves_nothing(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OSError, match="no space"):
        records.create_json(tmp_path / "x.json", {})
    assert not list(tmp_path.iterdir())


def test_of_threads_that_create_a_file_exactly_one_does(tmp_path):
    made = []

    def create(name):
        made.append(records.create_json(tmp_path / "x.json", {"by": name}))

    threads = [threading.Thread(target=create, args=(name,)) for name in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.count(True) == 1 and len(list(tmp_path.iterdir())) == 1


def test_error_where_no_claim_can_be_written(tmp_path):
    (tmp_path / "claims").write_text("a file where the directory of claims should be")
    with pytest.raises(OSError, match="claims"):
        take(Ledger("a", "launch"), tmp_path)
