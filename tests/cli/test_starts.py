"""Tests that every command starts a run with what it takes over, and says so."""

import dataclasses
import json
import shutil

import pytest
import tiny_run
from plan_fixture import TREE, sha

from jtransformer import records
from jtransformer.cli import main
from jtransformer.spec import fingerprint, replace
from jtransformer.sweep import adopt, cell_spec, make_plan, manifest, read_declaration
from jtransformer.training import Trainer

SWEEP = dict(scientific={"model.ffn_width": (32, 48)}, seeds=(0, 1))
WIDE = "layer_*/ffn/in/kernel (of shape 16x32 there instead of 16x48)"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A trained run."""
    folder = tmp_path_factory.mktemp("source")
    spec = tiny_run.run_spec(folder, steps=4, evaluate_every=4, checkpoint_every=4)
    Trainer().train(spec, folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def words(source, tmp_path_factory):
    """What every command is given: a config, and what is to be started from."""
    config = tiny_run.config_file(tmp_path_factory.mktemp("config"), SWEEP)
    return ["--config", str(config), f"--config.start_from={source}"]


@pytest.fixture(scope="module")
def workdir(words, tmp_path_factory):
    """A sweep that was planned, and trained by a worker."""
    workdir = tmp_path_factory.mktemp("sweep") / "out"
    assert main(["sweep", *words, "--workdir", str(workdir), "--workers", "0"]) == 0
    assert main(["worker", "--workdir", str(workdir)]) == 0
    return workdir


def said(capsys, *words, code=0):
    capsys.readouterr()
    assert main(list(map(str, words))) == code
    out, err = capsys.readouterr()
    return " ".join(out.split()), err


@pytest.mark.slow
def test_a_worker_starts_every_run_with_it_and_the_page_says_so(words, workdir, source, capsys):
    runs = records.load_sweep(workdir).runs
    assert [run.state for run in runs] == ["done"] * 4
    for run in runs:
        start = records.read_json(workdir / run.cell["directory"] / "spec.json")["start"]
        (arm,) = (
            arm
            for arm in records.load_sweep(workdir).manifest["arms"]
            if arm["name"] == run.cell["arm"]
        )
        # What was planned from the spec alone is what training has found.
        assert start == arm["start"]
        assert len(start["new"]) == (0 if arm["baseline"] == arm["name"] else 2)
    said(capsys, "report", "--workdir", workdir)
    page = (workdir / "report" / "index.html").read_text()
    assert "Runs start with parameters that were trained before" in page
    assert "has taken over 13 of 13 parameters, 100 % of the numbers" in page and WIDE in page
    assert "arms do not take over the same trained numbers" in page
    # The same command finds nothing to do, also where its start has another name by now.
    moved = shutil.copytree(source, workdir.parent / "moved")
    other = [*words[:2], f"--config.start_from={moved}", "--workdir", workdir]
    _, err = said(capsys, "sweep", *other)
    assert "grows" not in err
    assert [run.state for run in records.load_sweep(workdir).runs] == ["done"] * 4


@pytest.mark.slow
def test_a_dry_run_says_what_is_taken_as_the_plan_does(words, tmp_path, capsys):
    out, _ = said(capsys, "sweep", *words, "--workdir", tmp_path / "out", "--dry_run")
    shown, _ = said(capsys, "plan", *words)
    assert WIDE in shown and "Warning: arms do not" in shown
    assert "13 of 13 parameters" in out and WIDE in out
    assert "Warning: arms do not take over the same trained numbers (" in out


@pytest.mark.slow
def test_a_plan_has_what_is_taken(words, capsys):
    figures, _ = said(capsys, "plan", *words, "--json")
    starts = [arm["start"]["numbers"] for arm in json.loads(figures)["arms"]]
    assert starts[0]["taken"] == starts[0]["all"] and starts[1]["taken"] < starts[1]["all"]


@pytest.mark.slow
def test_train_and_reproduce_start_alike(words, workdir, source, tmp_path, capsys):
    alone = ["--config.model.ffn_width=48", "--workdir", str(tmp_path / "run")]
    out, _ = said(capsys, "train", *words, *alone)
    assert f"taken over from {source}: 11 of 13 parameters" in out and WIDE in out
    (cell,) = (
        run.cell
        for run in records.load_sweep(workdir).runs
        if run.cell["seed"] == 0 and run.cell["arm"].endswith("48")
    )
    # The worker had many lanes or one: its rows are those of the same mode alone.
    mode = records.read_json(workdir / cell["directory"] / "environment.json")["mode"]
    if mode == records.read_json(tmp_path / "run" / "environment.json")["mode"]:
        expected = tiny_run.deterministic(tmp_path / "run")
        assert tiny_run.deterministic(workdir / cell["directory"]) == expected
    out, _ = said(capsys, "reproduce", "--workdir", workdir / cell["directory"])
    assert "are equal to the bit" in out
    torn = shutil.copytree(workdir / cell["directory"], tmp_path / "torn")
    about = records.read_json(torn / "spec.json")
    del about["start"]
    (torn / "spec.json").write_text(json.dumps(about))
    assert "is damaged" in said(capsys, "reproduce", "--workdir", torn, code=2)[1]


@pytest.mark.parametrize("command", ["sweep", "train"])
def test_error_a_start_that_is_not_there(words, tmp_path, capsys, command):
    other = [*words[:2], f"--config.start_from={tmp_path / 'nothing'}"]
    _, err = said(capsys, command, *other, "--workdir", tmp_path / "out", code=2)
    assert "start_from = " in err and "holds neither a run" in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_law_drawn_settings_and_later_stages_keep_what_runs_start_from():
    """Also where a plan is continued from its manifest, or trained from it alone."""
    tree = replace(TREE, {"start_from": "there", "schedule.warmup_cosine.warmup_steps": 4})
    search = dict(strategy="halving", rungs=2, keep=2, trials=4, seed=5)
    rates = {"optimizer.learning_rate": dict(low=1e-3, high=1e-1, scale="log")}
    declaration = read_declaration(
        dict(scientific={"model.ffn": ("relu", "gelu")}, nuisance=rates, search=search)
    )
    plan = make_plan(tree, declaration, sha, start_sha256=lambda spec: "5" * 64)
    about = dict(title="", question="", command="", data={})
    record = manifest(plan, about)
    again = adopt(dataclasses.replace(plan), record)
    for found, cell in zip(again.cells, record["cells"], strict=True):
        spec = cell_spec(record, cell)
        assert spec.start_from == "there" and found.spec == spec
        expected = fingerprint(spec, sha(spec), records.SCHEMA, "5" * 64)
        assert cell["fingerprint"] == expected == found.fingerprint
