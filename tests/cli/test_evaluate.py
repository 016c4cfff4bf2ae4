"""Tests for `jtransformer evaluate`, and for how answers are asked for and scored."""

import dataclasses
import json
import shutil

import pytest
import tiny_generation

from jtransformer import cli, data
from jtransformer.cli.answers import proportion
from jtransformer.spec import (
    DataSpec,
    EncoderDecoder,
    Learned,
    ModelSpec,
    OptimizerSpec,
    RunSpec,
    Seq2Seq,
    Synthetic,
    TrainingSpec,
    WarmupCosine,
    Words,
    from_tree,
)
from jtransformer.training import run

PAIRS = DataSpec(
    source=Synthetic(symbols=2, smallest=1, largest=5, examples=60),
    tokenizer=Words(),
    rows="padded",
    length=5,
    too_long="cut",
    validation_fraction=0.2,
    test_fraction=0.2,
)
ONE_ROW = RunSpec(
    model=ModelSpec(
        vocabulary=8,
        width=16,
        layers=1,
        heads=2,
        ffn_width=32,
        position=Learned(max_length=6),
    ),
    data=PAIRS,
    optimizer=OptimizerSpec(learning_rate=2e-2),
    schedule=WarmupCosine(warmup_steps=2),
    training=TrainingSpec(steps=12, batch_size=8, evaluate_every=12, checkpoint_every=12),
)
TWO_STACKS = dataclasses.replace(
    ONE_ROW,
    model=dataclasses.replace(ONE_ROW.model, stack=EncoderDecoder(encoder_layers=1)),
    data=dataclasses.replace(PAIRS, length=6, source_length=5),
    objective=Seq2Seq(),
)


@pytest.fixture(scope="module", params=["one row", "two stacks"])
def workdir(request, tmp_path_factory):
    with tiny_generation.compiled_quickly():
        yield trained(request.param, tmp_path_factory)


def trained(kind, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run([{"one row": ONE_ROW, "two stacks": TWO_STACKS}[kind]], folder)
    (found,) = folder.iterdir()
    return found


def measured(capsys, *argv):
    assert cli.main(["evaluate", *map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_different_source_is_answered_once(workdir, capsys):
    found = measured(capsys, "--workdir", workdir, "--part", "test")
    held_out = measured(capsys, "--workdir", workdir)
    # No two examples of the task have one source; the longest fill a row, or are cut in theirs.
    spec = from_tree(json.loads((workdir / "spec.json").read_text())["spec"])
    corpus = data.load(spec.data, spec.objective)
    assert corpus.report.cut > 0
    assert found["examples"] == len(corpus.test) > 0
    assert held_out["examples"] == len(corpus.validation) > 0
    assert {"part", "nll", "exact_match", "token_error_rate"} <= found.keys()
    assert found["sequence_error_rate"] == pytest.approx(1 - found["exact_match"]["value"])
    status = json.loads((workdir / "status.json").read_text())["result"]
    assert found["nll"] == pytest.approx(status["test_nll"], rel=1e-6)
    assert held_out["nll"] == pytest.approx(status["validation_nll"], rel=1e-6)


def test_answers_are_shown_beside_their_references(workdir, capsys):
    assert cli.main(["evaluate", "--workdir", str(workdir), "--examples", "2", "--beams", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "of 2 sources" in lines[2] and lines[-3] == "source  ->  answer  [references]"
    source, _, rest = lines[-1].strip().partition("  ->  ")
    # The task is to copy.
    assert rest.endswith(f"[{source}]")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--part", "tests"], "--part = 'tests' is unknown; did you mean 'test'?"),
        (["--examples", "0"], "--examples must be at least 1, got 0."),
        (["--beams", "0"], "--beams must be"),
        (["--exampels", "3"], "did you mean 'examples'?"),
        (["test"], "test is not a flag"),
        (["--json", "--show", "3"], "--show would do nothing with --json"),
    ],
)
def test_error_flags(tmp_path, capsys, flags, text):
    assert cli.main(["evaluate", "--workdir", str(tmp_path), *flags]) == 2
    assert text in capsys.readouterr().err


def test_error_data_that_have_changed(workdir, tmp_path, capsys):
    copy = shutil.copytree(workdir, tmp_path / "copy")
    about = json.loads((copy / "spec.json").read_text())
    (copy / "spec.json").write_text(json.dumps(about | {"data_sha256": "0" * 64}))
    assert cli.main(["evaluate", "--workdir", str(copy)]) == 2
    assert "have changed since it was trained" in capsys.readouterr().err


def test_error_a_directory_without_a_run(tmp_path, capsys):
    assert cli.main(["evaluate", "--workdir", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_intervals_of_shares():
    """Wilson's interval for 8 of 10, from his formula by hand: (0.4902, 0.9433)."""
    assert proportion(8, 10) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-4)
    assert proportion(0, 5).low == 0 and proportion(5, 5).high == 1


def test_rows_of_another_length_are_read(capsys, tmp_path):
    spec = RunSpec(
        model=ModelSpec(width=16, layers=1, heads=2, ffn_width=32, position=Learned(max_length=12)),
        data=DataSpec(length=6),
        schedule=WarmupCosine(warmup_steps=2),
        training=TrainingSpec(steps=2, evaluate_every=2, checkpoint_every=2),
    )
    run([spec], tmp_path)
    (workdir,) = tmp_path.iterdir()
    found = {}
    for length in (6, 12):
        found[length] = measured(capsys, "--workdir", workdir, f"--length={length}")
        assert found[length]["length"] == length
    assert found[6] == measured(capsys, "--workdir", workdir)
    assert found[6]["nll"] != found[12]["nll"]
    assert cli.main(["evaluate", "--workdir", str(workdir), "--length=13"]) == 2
    assert "--length = 13 does not suit this run" in capsys.readouterr().err
