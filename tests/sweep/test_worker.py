"""Tests of workers with a trainer that only writes what training would."""

import dataclasses
import json
import os
import re
import threading
import time

import pytest
from fake_training import CELLS, LAUNCH, RATES, SWEEP, Trainer, failing, failure, status_of, work
from plan_fixture import ABOUT, FFN, plan_of

from jtransformer import records
from jtransformer.spec import SpecError
from jtransformer.sweep import (
    Launch,
    Ledger,
    PairingError,
    Worker,
    cell_spec,
    manifest,
    read_launch,
    write_launch,
)


def test_a_cell_of_the_manifest_is_the_run_of_the_plan():
    plan = plan_of(
        FFN,
        nuisance={"schedule.kind": ("constant", "warmup_cosine"), **RATES},
        seeds=(0, 3),
        match=dict(equal="parameters", by="model.ffn_width", multiple_of=2, tolerance=0.1),
    )
    stored = json.loads(json.dumps(manifest(plan, ABOUT)))
    specs = [cell_spec(stored, cell) for cell in stored["cells"]]
    assert specs == [cell.spec for cell in plan.cells] and len(set(specs)) == len(specs)


def test_one_worker_trains_every_run_in_the_order_of_the_plan(tmp_path):
    trainer = Trainer()
    complete, ended, failed = work(tmp_path, trainer)
    assert complete and failed == 0
    specs = [cell_spec(SWEEP, cell) for cell in CELLS]
    expected = [(s.model.ffn, s.optimizer.learning_rate, s.seed) for s in specs]
    assert trainer.trained == expected
    assert ended == [(cell["directory"], "done") for cell in CELLS]
    again = Trainer()
    assert work(tmp_path, again) == (True, [], 0) and again.trained == []


def test_several_workers_share_the_runs_and_begin_with_different_arms(tmp_path):
    meeting = threading.Barrier(3)

    def meet(spec, directory):
        if not meeting.broken:
            meeting.wait(timeout=30)
        time.sleep(0.02)

    trainers = [Trainer(meet) for _ in range(3)]
    threads = [threading.Thread(target=work, args=(tmp_path, trainer)) for trainer in trainers]
    for thread in threads:
        thread.start()
    while not all(trainer.trained for trainer in trainers):
        time.sleep(0.01)
    meeting.abort()
    for thread in threads:
        thread.join(timeout=60)
    assert {trainer.trained[0][0] for trainer in trainers} == {"relu", "gelu", "swiglu"}
    everything = [run for trainer in trainers for run in trainer.trained]
    assert len(everything) == len(set(everything)) == len(CELLS)


def test_a_run_that_fails_is_isolated_and_keeps_its_traceback(tmp_path):
    trainer = Trainer(failing(1))
    complete, ended, failed = work(tmp_path, trainer)
    assert complete and failed == 1 and len(trainer.trained) == len(CELLS)
    assert ended[0] == (CELLS[0]["directory"], "failed")
    record = failure(tmp_path, CELLS[0])
    assert record["error"] == "ValueError: no such luck" and "Traceback" in record["traceback"]
    assert (record["attempts"], record["launch"]) == (1, "first")
    # Another worker of the launch leaves it alone, another launch does not.
    idle, eager = Trainer(), Trainer()
    assert work(tmp_path, idle)[::2] == (True, 1) and idle.trained == []
    assert work(tmp_path, eager, Launch(identity="second"))[::2] == (True, 0)
    assert len(eager.trained) == 1


@pytest.mark.parametrize("times, failed", [(2, 0), (3, 1)])
def test_retries_are_counted_within_a_launch(tmp_path, times, failed):
    trainer = Trainer(failing(times))
    complete, _, found = work(tmp_path, trainer, dataclasses.replace(LAUNCH, retries=2))
    assert complete and found == failed
    assert len(trainer.trained) == len(CELLS) + 2
    assert not failed or failure(tmp_path, CELLS[0])["attempts"] == 3


def test_a_failure_that_cannot_be_recorded_is_no_endless_loop(tmp_path):
    def fill(spec, directory):
        (directory / f".failure.json.{os.getpid()}.tmp").mkdir()
        raise OSError("disk full")

    complete, ended, failed = work(tmp_path, Trainer(fill))
    assert complete and failed == len(CELLS) and {state for _, state in ended} == {"failed"}


def test_a_run_that_was_completed_meanwhile_is_not_trained(tmp_path):
    spec = cell_spec(SWEEP, CELLS[1])
    other = tmp_path / CELLS[1]["directory"]

    def complete_the_next(now, directory):
        if now == cell_spec(SWEEP, CELLS[0]):
            other.mkdir(parents=True)
            status = status_of(spec, CELLS[1]["fingerprint"])
            records.write_json(other / "status.json", status)

    trainer = Trainer(complete_the_next)
    assert work(tmp_path, trainer)[0] and len(trainer.trained) == len(CELLS) - 1


@pytest.mark.parametrize("garbage", ["", '{"torn', "[]", "5", '{"state": "done"}'])
def test_a_status_that_is_garbage_is_set_aside_and_made_again(tmp_path, garbage):
    directory = tmp_path / CELLS[0]["directory"]
    directory.mkdir(parents=True)
    (directory / "status.json").write_text(garbage)
    trainer = Trainer()
    assert work(tmp_path, trainer)[::2] == (True, 0) and len(trainer.trained) == len(CELLS)
    assert (directory / "status.json.damaged").read_text() == garbage
    assert records.read_rows(directory / "events.jsonl") == [{"event": "damaged status"}]


@pytest.mark.parametrize("garbage", ["", "{", "[]", "5", '{"attempts": "x", "launch": "first"}'])
def test_a_failure_that_is_garbage_is_tried_again(tmp_path, garbage):
    directory = tmp_path / CELLS[0]["directory"]
    directory.mkdir(parents=True)
    (directory / "failure.json").write_text(garbage)
    assert work(tmp_path, Trainer())[::2] == (True, 0)


def test_error_a_run_that_is_not_the_planned_one(tmp_path):
    class Elsewhere(Trainer):
        def identify(self, spec):
            return "ab" * 32

    with pytest.raises(SpecError, match=f"fingerprint {CELLS[0]['fingerprint'][:8]} and is abab"):
        work(tmp_path, Elsewhere())
    book = Ledger("other", "first")
    assert book.find(tmp_path / CELLS[0]["directory"]).standing == "released"


def test_error_a_status_of_another_run(tmp_path):
    directory = tmp_path / CELLS[3]["directory"]
    directory.mkdir(parents=True)
    status = status_of(cell_spec(SWEEP, CELLS[3]), "cd" * 32)
    records.write_json(directory / "status.json", status)
    with pytest.raises(SpecError, match="belongs to another run .fingerprint cdcdcdcd"):
        Worker("one", tmp_path, SWEEP, LAUNCH)


def test_error_runs_that_are_not_paired_or_not_of_the_planned_size(tmp_path):
    with pytest.raises(PairingError, match="holds 5 parameters, the plan says"):
        work(tmp_path / "size", Trainer(changes=lambda: {"result": {"parameters": 5}}))
    counted = iter(range(100))
    differing = Trainer(changes=lambda: {"pairing": {"first_batch": str(next(counted))}})
    with pytest.raises(PairingError, match="The batches of .* differ although seed and settings"):
        work(tmp_path / "pairs", differing)


def test_a_launch_is_read_as_it_was_written(tmp_path):
    launch = Launch(retries=3, lease_seconds=9.5, accept_environment=True)
    write_launch(tmp_path, launch)
    assert read_launch(tmp_path) == launch and launch.identity != Launch().identity


def test_error_no_launch_or_a_damaged_one(tmp_path):
    with pytest.raises(SpecError, match="has no launch.json; plan the sweep first"):
        read_launch(tmp_path)
    for garbage in ("", "[]", '{"identity": "x"}'):
        (tmp_path / "launch.json").write_text(garbage)
        with pytest.raises(records.DamagedRecord, match=r"launch.json is damaged"):
            read_launch(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [{"retries": "1"}, {"lease_seconds": None}, {"workers": True}, {"mode": 3}, {"retries": 1.5}],
)
def test_error_a_launch_with_a_value_of_another_type(tmp_path, wrong):
    (tmp_path / "launch.json").write_text(json.dumps(dataclasses.asdict(LAUNCH) | wrong))
    ((name, value),) = wrong.items()
    with pytest.raises(records.DamagedRecord, match=re.escape(f"({name} is {value!r})")):
        read_launch(tmp_path)
