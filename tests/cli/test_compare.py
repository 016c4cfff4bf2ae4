"""Tests of the command that puts several work directories on one page."""

import json

import pytest
from sweep_fixture import DATA, noisy_losses, write_sweep

from jtransformer.cli import main

EVERY = noisy_losses({"pre-gelu": 0.0, "pre-swiglu": -0.03}, seeds=4)


@pytest.fixture
def workdirs(tmp_path):
    for name, seeds in (("a", (0, 1)), ("b", (2, 3))):
        write_sweep(tmp_path / name, {k: v for k, v in EVERY.items() if k[2] in seeds})
    write_sweep(tmp_path / "tokens", EVERY, data=DATA | {"loss_unit": "nats/token"})
    write_sweep(tmp_path / "other" / "a", EVERY, data=DATA | {"sha256": "a" * 64})
    (tmp_path / "file").touch()
    return tmp_path


def compare(folder, *names, into="both", more=()):
    words = [word for name in names for word in ("--workdir", str(folder / name))]
    return main(["compare", *words, "--into", str(folder / into), *more])


def test_a_page_is_written_and_its_table_and_reasons_are_printed(workdirs, capsys):
    assert compare(workdirs, "a", "b") == 0
    text = capsys.readouterr().out
    assert "pooled" in text and "a and b differ in nothing but their seeds" in text
    assert f"page: {workdirs / 'both' / 'index.html'}" in text
    assert (workdirs / "both" / "index.html").exists()


def test_json_has_the_figures_and_the_reasons(workdirs, capsys):
    assert compare(workdirs, "a", "b", "other/a", more=["--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["pooled"] == [[str(workdirs / "a"), "b"]]
    assert {row["directory"] for row in values["arms"]} == {
        str(workdirs / "a"), "b", str(workdirs / "other/a"), "pooled"
    }  # fmt: skip
    (reason,) = [text for text in values["said"] if "is not pooled with" in text]
    assert "the data (SHA-256)" in reason


@pytest.mark.parametrize(
    "names, into, sentence",
    [
        (("a",), "both", "--workdir is given 1 times; a comparison needs two or more"),
        ((), "both", "--workdir is given 0 times"),
        (("a", "a"), "both", "is given twice; name it once"),
        (("a", "nothing"), "both", "holds no sweep (sweep.json is missing)"),
        (
            ("a", "tokens"),
            "both",
            "the loss unit of a is nats/byte and that of tokens is nats/token",
        ),
        (("a", "b"), "b", "holds a sweep; choose another"),
        (("a", "b"), "a/report", "is inside the work directory"),
        (("a", "b"), "other/a/new/place", "is inside the work directory"),
        (("a", "b"), "a/sweep.json", "is inside the work directory"),
        (("a", "b"), "file", "cannot be written"),
    ],
)
def test_a_mistake_is_a_sentence_before_any_work(workdirs, capsys, names, into, sentence):
    before = sorted(workdirs.rglob("*"))
    assert compare(workdirs, *names, into=into) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert sorted(workdirs.rglob("*")) == before


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (["--workdir", "a", "--workdir", "b"], "--into is missing; add --into DIR."),
        (["--workdir", "", "--workdir", "b", "--into", "x"], "--workdir is empty"),
        (
            ["--workdir", "~nobody-here/x", "--workdir", "b", "--into", "x"],
            "is in the home of nobody",
        ),
        (
            ["a", "b", "--into", "x"],
            "a is not a flag; write --workdir DIR --workdir DIR --into DIR",
        ),
        (["--workdirs", "a"], "--workdirs is not a flag"),
    ],
)
def test_a_wrong_line_is_a_sentence(capsys, argv, sentence):
    assert main(["compare", *argv]) == 2
    assert sentence in capsys.readouterr().err
