"""Tests of `jtransformer check`."""

import json
import os
import time

import pytest
import tiny_run

from jtransformer.cli import check, main
from jtransformer.spec import presets

LIGHT = "tree of parameters,other rows of the batch,labels of the data,sinusoidal positions"


def judged(capsys, *argv, code=0):
    assert main(["check", *map(str, argv), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def refused(capsys, *argv):
    assert main(["check", *map(str, argv)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("jtransformer check: ")
    return err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("trained")
    config = tiny_run.config_file(directory, {})
    workdir = directory / "run"
    assert main(["train", "--config", str(config), "--workdir", str(workdir)]) == 0
    return config, workdir


def test_a_config_is_judged(capsys, config):
    found = judged(capsys, "--config", config, "--laws", LIGHT)
    assert found["passed"] and found["counts"] == {"pass": 4, "fail": 0, "not applicable": 0}
    assert [row["name"] for row in found["rows"]] == [
        "other rows of the batch",
        "labels of the data",
        "tree of parameters",
        "sinusoidal positions",
    ]


@pytest.mark.slow
def test_a_run_is_judged_with_what_it_has_learned(capsys, trained):
    _, workdir = trained
    capsys.readouterr()
    of_run = judged(capsys, "--workdir", workdir, "--laws", LIGHT)
    assert of_run["passed"] and of_run["name"] == str(workdir)
    assert main(["check", "--workdir", str(workdir), "--laws", "tree of parameters"]) == 0
    assert "1 laws hold, 0 are broken" in capsys.readouterr().out


def test_a_broken_law_ends_with_1_and_is_named(capsys, monkeypatch, config):
    """The formula lacks a parameter that the model has."""
    from jtransformer.cli import check_trees

    right = check_trees.expected_shapes

    def wrong(spec):
        return {path: shape for path, shape in right(spec).items() if path != "embedding/table"}

    monkeypatch.setattr(check_trees, "expected_shapes", wrong)
    law = "tree of parameters"
    found = judged(capsys, "--config", config, "--laws", law, code=1)
    assert not found["passed"] and found["rows"][0]["figure"] == 1.0
    assert main(["check", "--config", str(config), "--laws", law]) == 1
    assert f"broken: {law}: " in capsys.readouterr().out


def test_what_cannot_be_judged_is_refused(capsys, config, tmp_path):
    assert "got none of them" in refused(capsys)
    assert "got --workdir and --preset" in refused(capsys, "--workdir", "a", "--preset", "gpt")
    assert "did you mean 'gpt2_small'" in refused(capsys, "--preset", "gpt2_smal")
    line = refused(capsys, "--preset", "gpt2_small", "--config.model.width=8")
    assert "would do nothing with --preset" in line
    line = refused(capsys, "--config", config, "--checkpoint", "best")
    assert "--checkpoint" in line and "would do nothing" in line
    assert "at least 4, got 3" in refused(capsys, "--config", config, "--length", "3")
    line = refused(capsys, "--config", config, "--laws", "cached decodin")
    assert "did you mean 'cached decoding'" in line
    assert "holds no run" in refused(capsys, "--workdir", tmp_path)
    learned = ("--config.model.position.kind=learned",)
    learned += ("--config.model.position.learned.max_length=16", "--length", "17")
    assert "exceeds the 16 positions" in refused(capsys, "--config", config, *learned)


def test_a_model_too_large_for_the_memory_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(check, "_available", lambda: 10**9)
    line = refused(capsys, "--preset", "llama2_7b")
    assert "6,738,415,616 parameters" in line and "needs 108 GB, and 1 GB are free" in line


def test_the_length_shows_small_windows_and_not_more_than_there_is():
    class Values:
        length = None

    model = presets.gpt2_small()
    assert check._length(Values, model) == check.USUAL_LENGTH
    assert check._available() < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_every_law_of_a_config_and_of_its_run(capsys, trained):
    config, workdir = trained
    capsys.readouterr()
    for subject in (("--config", config), ("--workdir", workdir)):
        begin = time.process_time()
        found = judged(capsys, *subject)
        # Of the process, since other processes share the machine: 41 s on one, 2026-12-01.
        assert time.process_time() - begin < 60
        assert found["passed"], [row for row in found["rows"] if row["verdict"] == "fail"]
        assert found["counts"]["pass"] >= 33
