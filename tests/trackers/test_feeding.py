"""Tests of what trackers are told, and of the command's answers to mistakes."""

import json
import shutil
import threading

import pytest
import tracked_sweep

from jtransformer import records
from jtransformer.cli import main
from jtransformer.trackers import Fed, feed, feeding, kept_fed, tracked_runs


def refused(capsys, *argv):
    assert main(["track", *map(str, argv)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_a_single_run_is_named_by_its_seed_and_fingerprint(tmp_path):
    workdir = tracked_sweep.write(tmp_path)
    cell = records.read_json(workdir / "sweep.json")["cells"][0]
    single = shutil.copytree(workdir / cell["directory"], tmp_path / "single")
    about = {"fingerprint": cell["fingerprint"], "spec": {"seed": 0}}
    (single / "spec.json").write_text(json.dumps(about))
    (run,) = tracked_runs(single)
    assert run.name == f"run/seed0-{cell['fingerprint'][:8]}"
    assert (run.project, run.config) == ("single", {"arm": "run", "seed": 0})
    assert run.known == Fed(400, "done") and run.result["test_nll"] == 2.011


def test_a_row_is_as_late_as_its_tokens_took(tmp_path):
    workdir = tracked_sweep.write(tmp_path)
    run = tracked_runs(workdir)[0]
    taken = [later - sooner for sooner, later in zip(run.seconds, run.seconds[1:], strict=False)]
    assert taken == pytest.approx([40 * 512 / 65000.0] * 9, rel=1e-3)


def test_runs_without_a_row_are_not_there_yet(tmp_path):
    assert [len(run.rows) for run in tracked_runs(tracked_sweep.write(tmp_path))] == [10, 3, 4]


def test_a_tracker_is_fed_beside_the_work_and_behind_it(tmp_path, monkeypatch):
    workdir, into = tracked_sweep.write(tmp_path), tmp_path / "shown"
    fed = threading.Event()

    def add(run, into):
        known[run.name] = run.known.step
        fed.set()
        return 0

    known = {}
    stub = feeding.Tracker("json", "tensorboard", add)
    monkeypatch.setitem(feeding.TRACKERS, "tensorboard", stub)
    monkeypatch.setattr(feeding, "FEED_SECONDS", 0.01)
    with kept_fed(workdir, "tensorboard", into):
        assert fed.wait(60)
        assert sorted(known.values()) == [120, 160, 400]
        tracked_sweep.grow(workdir, 5)
    assert sorted(known.values()) == [120, 200, 400]


def test_what_goes_wrong_with_a_tracker_does_not_end_the_work(tmp_path, monkeypatch):
    workdir, failed = tracked_sweep.write(tmp_path), threading.Event()

    def add(run, into):
        failed.set()
        raise OSError("no space left")

    stub = feeding.Tracker("json", "tensorboard", add)
    monkeypatch.setitem(feeding.TRACKERS, "tensorboard", stub)
    monkeypatch.setattr(feeding, "FEED_SECONDS", 0.01)
    done = []
    with pytest.raises(OSError, match="no space left"):
        with kept_fed(workdir, "tensorboard", tmp_path / "shown"):
            assert failed.wait(60)
            done.append("work")
    assert done == ["work"]


def test_a_status_that_is_damaged_for_a_while_is_waited_for(tmp_path, monkeypatch):
    workdir, seen = tracked_sweep.write(tmp_path), threading.Event()
    status = next(workdir.glob("runs/pre-gelu/*-seed0-*/status.json"))
    whole, real = status.read_bytes(), feeding.tracked_runs

    def read(workdir):
        try:
            return real(workdir)
        except records.DamagedRecord:
            seen.set()
            raise

    stub = feeding.Tracker("json", "tensorboard", lambda run, into: 0)
    monkeypatch.setitem(feeding.TRACKERS, "tensorboard", stub)
    monkeypatch.setattr(feeding, "tracked_runs", read)
    monkeypatch.setattr(feeding, "FEED_SECONDS", 0.01)
    status.write_text('{"torn')
    with kept_fed(workdir, "tensorboard", tmp_path / "shown"):
        assert seen.wait(60)
        status.write_bytes(whole)
    status.write_text('{"torn')
    with pytest.raises(records.DamagedRecord):
        with kept_fed(workdir, "tensorboard", tmp_path / "shown"):
            pass


def test_error_flags(capsys, tmp_path):
    assert "--to is missing; add --to TRACKER" in refused(capsys, "--workdir", tmp_path)
    assert "--workdir is missing" in refused(capsys, "--to", "wandb")
    text = refused(capsys, "--workdir", tmp_path, "--to", "tensorbord")
    assert "'tensorbord' is not a tracker; use one of tensorboard, wandb." in text


def test_error_a_missing_package_is_named_with_its_extra(capsys, tmp_path, monkeypatch):
    workdir = tracked_sweep.write(tmp_path)
    missing = feeding.Tracker("nosuchpackage", "tensorboard", feeding.event_files.add)
    monkeypatch.setitem(feeding.TRACKERS, "tensorboard", missing)
    text = refused(capsys, "--workdir", workdir, "--to", "tensorboard")
    assert "The package nosuchpackage is missing" in text
    assert "pip install 'jtransformer[tensorboard]'" in text
    assert not (workdir / "tensorboard").exists()
    with pytest.raises(ValueError, match="is not a tracker"):
        feed(workdir, "mlflow", tmp_path)


def test_error_a_directory_without_runs(capsys, tmp_path, monkeypatch):
    present = feeding.Tracker("json", "tensorboard", feeding.event_files.add)
    monkeypatch.setitem(feeding.TRACKERS, "tensorboard", present)
    text = refused(capsys, "--workdir", tmp_path, "--to", "tensorboard")
    assert "holds no sweep and no run" in text
