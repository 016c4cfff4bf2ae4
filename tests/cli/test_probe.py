"""Tests for `jtransformer probe`, on a run that was probed while it was trained."""

import dataclasses
import json

import pytest
import tiny_run
from quickly import quickly

from jtransformer import cli, probes, records
from jtransformer.cli.probe import _heads
from jtransformer.spec import ModelSpec, SpecError
from jtransformer.training import Hooks, Program, Trainer

PROGRAMS = {}


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run of two layers of two heads, probed before its first and behind its last update."""
    root = tmp_path_factory.mktemp("run")
    spec = tiny_run.run_spec(root, probe_steps=(0, 10))
    spec = dataclasses.replace(spec, model=dataclasses.replace(spec.model, layers=2))
    trainer = Trainer(Hooks())
    trainer._programs = PROGRAMS
    tiny_run.program(spec, PROGRAMS)
    trainer.train(spec, root / "run")
    return root / "run"


@pytest.fixture(autouse=True)
def compiled_before(monkeypatch):
    """A command compiles nothing that was compiled before, and quickly what was not."""

    def program(spec):
        return tiny_run.program(spec, PROGRAMS)

    monkeypatch.setattr("jtransformer.training.Program", program)


def measured(capsys, *argv):
    assert cli.main(["probe", *map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def error(capsys, *argv):
    assert cli.main(["probe", *map(str, argv)]) == 2
    said = capsys.readouterr()
    assert not said.out and said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize(("flags", "step"), [([], 10), (["--step", 0], 0), (["--step", 10], 10)])
def test_a_run_is_measured_as_it_was_while_it_was_trained(workdir, capsys, flags, step):
    found = measured(capsys, "--workdir", workdir, *flags)
    assert found == records.read_probe(records.RunFiles(workdir).probe(step))
    assert len(found["maps"]) == 4


def test_a_config_is_measured_at_its_initial_values(workdir, capsys):
    config = tiny_run.config_file(workdir.parent, {}, layers=2)
    found = measured(capsys, "--config", config)
    assert found == records.read_probe(records.RunFiles(workdir).probe(0))
    other = measured(capsys, "--config", config, "--config.seed=1")
    assert other["loss"] != found["loss"] and other["step"] == 0


def test_live_a_config_is_measured_at_what_it_starts_from(workdir, capsys):
    config = tiny_run.config_file(workdir.parent, {}, layers=2)
    found = measured(capsys, "--config", config, f"--config.start_from={workdir}")
    trained = records.read_probe(records.RunFiles(workdir).probe(10))
    assert found["loss"] == pytest.approx(trained["loss"], rel=1e-5)


@pytest.mark.slow
def test_live_batches_and_heads_and_into(workdir, tmp_path, capsys):
    file = tmp_path / "deep" / "probe.json"
    words = ["--workdir", workdir, "--batches", 3, "--heads", "0.1,layer_1/attention/head_0"]
    found = measured(capsys, *words, "--into", file)
    assert json.loads(file.read_text()) == found
    assert found["rows"] == 12
    assert [(one["layer"], one["head"]) for one in found["maps"]] == [(0, 1), (1, 0)]


def test_the_tables_have_a_row_a_layer_a_cell_a_head_and_the_caveat(workdir, capsys):
    assert cli.main(["probe", "--workdir", str(workdir)]) == 0
    text = capsys.readouterr().out
    found = records.read_probe(records.RunFiles(workdir).probe(10))
    for heading in ("gradient norm", "update / weight", "stream RMS", "stretch, FFN"):
        assert heading in text
    gained = found["stacks"]["decoder"]["ablation"]["attention"]
    for value in (*gained[0], *gained[1]):
        assert f"{value:+.4f}" in text
    for layer in (0, 1):
        assert f"{found['stacks']['decoder']['gradient_norm']['layer'][layer]:.3g}" in text
    assert f"step 10: loss {found['loss']:.4f} nats/byte" in text
    assert "not there: " in text and "gelu" in text
    assert probes.CAVEAT in text


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "Give either --workdir RUN or --config FILE, got neither."),
        (["--workdir", "RUN", "--config", "x.py"], "got both."),
        (["--workdir", "RUN", "--step", "-1"], "--step must be at least 0, got -1."),
        (["--workdir", "RUN", "--step", "4"], "--step = 4, and "),
        (["--workdir", "RUN", "--batches", "0"], "--batches must be at least 1, got 0."),
        (["--workdir", "RUN", "--config.seed=1"], "would do nothing with --workdir"),
        (["--config", "x.py", "--step", "1"], "--step would do nothing with --config"),
        (["--workdir", "RUN", "--heads", "0.1"], "--heads would do nothing without --json or --i"),
        (
            ["--workdir", "RUN", "--json", "--heads", "0.2"],
            "'0.2', no head of the model; write LAYER.HEAD, such as 0.0, or a whole name: ",
        ),
        (["--workdir", "RUN", "--json", "--heads", "0,1"], "'0', no head of the model; "),
        (["--workdir", "RUN", "--into", "RUN"], "is a directory; name a file."),
        (["--workdir", "RUN", "--layers", "2"], "--layers is not a flag"),
        (["RUN"], "is not a flag; write --workdir RUN or --config FILE"),
        (["--workdir", "NOWHERE"], "holds no run (spec.json is missing)"),
    ],
)
def test_error_one_sentence(workdir, capsys, flags, said):
    words = [str(workdir) if word == "RUN" else word for word in flags]
    assert said in error(capsys, *words)


def test_error_of_a_wrong_head_is_as_long_for_many_heads():
    with pytest.raises(SpecError) as refused:
        _heads(ModelSpec(layers=12, heads=8), "nine")
    said = str(refused.value)
    assert "layer_0/attention/head_0, …, layer_11/attention/head_7" in said and len(said) < 250


def test_error_data_that_have_changed(workdir, tmp_path, capsys):
    about = records.read_json(workdir / "spec.json")
    (tmp_path / "spec.json").write_text(json.dumps(about | {"data_sha256": "0" * 64}))
    assert "have changed since it was trained" in error(capsys, "--workdir", tmp_path)


def test_a_program_of_a_test_is_one_of_a_command():
    """What stands in for `Program` above is one, compiled with fewer optimisations."""
    (program,) = PROGRAMS.values()
    assert isinstance(program, Program) and program.jit is quickly
