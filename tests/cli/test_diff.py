"""Tests for `jtransformer diff`, on a run and on functions."""

import json

import numpy as np
import pytest
import tiny_run

from jtransformer import cli
from jtransformer.training import Hooks, Trainer

CODE = """
import numpy as np

def model(tokens):
    embedded = np.eye(8)[tokens % 8]
    return {"embedded": embedded, "logits": embedded * 2.0}

def tripled(tokens):
    return {**model(tokens), "logits": model(tokens)["logits"] * 1.5}

def shorter(tokens):
    return {"embedded": model(tokens)["embedded"][:, 1:]}

def failing(tokens):
    raise RuntimeError("no weights")

number = 3
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A module of functions in the present directory."""
    name = f"code_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return name


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    Trainer(Hooks()).train(tiny_run.run_spec(root), root / "run")
    return root / "run"


def answered(capsys, *argv, code):
    assert cli.main(["diff", *map(str, argv)]) == code
    said = capsys.readouterr()
    return said.out if code < 2 else said.err


def test_equal_functions_are_equal(code, capsys):
    said = answered(capsys, f"{code}:model", f"{code}:model", "--tokens", "1 2 3", code=0)
    assert "Equal: all 2 places agree within rounding." in said


def test_the_first_difference_is_marked_and_explained(code, capsys):
    said = answered(capsys, f"{code}:model", f"{code}:tripled", "--tokens", "1 2; 3 4", code=1)
    assert "<- first" in said
    assert "The first difference is at logits: 1, relative" in said
    assert "Explained by relation: times 1.5 the difference at logits falls from 1 to 0." in said


def test_shapes_that_differ_are_said(code, capsys):
    said = answered(capsys, f"{code}:model", f"{code}:shorter", "--tokens", "1 2 3", code=1)
    assert "shapes differ: [1, 3, 8] and [1, 2, 8]" in said
    assert "1 places of A alone are not compared, such as logits." in said


def test_json_has_every_place(code, capsys):
    words = (f"{code}:model", f"{code}:tripled", "--tokens", "1 2", "--json")
    found = json.loads(answered(capsys, *words, code=1))
    assert [row["place"] for row in found["places"]] == ["embedded", "logits"]
    assert not found["equal"] and found["first"]["place"] == "logits"
    assert found["explanations"][0]["best"][0]["hypothesis"] == "times 1.5"


def test_flags_may_stand_before_the_sides(code, capsys):
    answered(capsys, "--json", f"{code}:model", f"{code}:model", code=2)
    said = answered(capsys, "--tokens=1 2", f"{code}:model", f"{code}:model", code=0)
    assert "Equal" in said


@pytest.mark.slow
def test_a_run_is_compared_with_itself_and_with_a_function(workdir, code, capsys):
    words = (workdir, workdir, "--text", "the dog walks", "--gradients", "--json")
    found = json.loads(answered(capsys, *words, code=0))
    assert found["equal"] and len(found["places"]) > 15 and len(found["gradients"]) > 8
    assert np.isfinite([row["tolerance"] for row in found["places"]]).all()
    said = answered(capsys, workdir, f"{code}:model", code=1)
    assert "The first difference is at embedded (shapes differ" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Name two sides before the flags, got 0; usage: jtransformer diff A B"),
        (["{code}:model"], "Name two sides before the flags, got 1"),
        (["{code}:model", "nowhere"], "nowhere is neither the directory of a run"),
        (["{code}:model", "{code}:modle"], "did you mean 'model'?"),
        (["{code}:model", "{code}:number"], "is no function of"),
        (["{code}:model", "nothing_here:f"], "nothing_here:f cannot be imported"),
        (["{code}:model", "{code}:model"], "--tokens must be given"),
        (["{code}:model", "{code}:failing", "--tokens", "1 2"], "fails (RuntimeError: no weights)"),
        (["{code}:model", "{code}:model", "--tokens", "1 x"], "must be numbers"),
        (["{code}:model", "{code}:model", "--tokens", "1; 2 3"], "rows of one length"),
        (["{code}:model", "{code}:model", "--tokens", "1 -2"], "must lie in 0"),
        (["{code}:model", "{code}:model", "--tokens", "1", "--length", "3"], "would do nothing"),
        (["{code}:model", "{code}:model", "--text", "a b"], "neither side has one; use --tokens"),
        (["{code}:model", "{code}:model", "--tokens", "1 2", "--padding", "2"], "leaves nothing"),
        (["{code}:model", "{code}:model", "--length", "1"], "--length must be at least 2, got 1"),
        (["{code}:model", "{code}:model", "--tokns", "1"], "--tokns is not a flag"),
        (
            ["{code}:model", "{code}:model", "--tokens", "1 2", "--gradients"],
            "returned no gradients",
        ),
    ],
)
def test_mistakes_are_told_in_one_sentence(words, said, code, capsys):
    error = answered(capsys, *(word.format(code=code) for word in words), code=2)
    assert said in error and error.count("\n") == 1


def test_help_shows_an_example(capsys):
    assert cli.main(["diff", "--help"]) == 0
    assert "example: jtransformer diff" in capsys.readouterr().out
