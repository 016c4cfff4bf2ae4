"""Tests for jtransformer.cli.layouts: where a layout is said, and which one counts."""

import pytest
import tiny_run
from absl import flags

from jtransformer.cli import main
from jtransformer.cli.arguments import read_experiment
from jtransformer.cli.launch_flags import launch_flags, read_workers, spread_by
from jtransformer.cli.layouts import AskedSpread, define_layout_flags, layout_of, read_spread
from jtransformer.spec import Layout, SpecError

OWN = Layout(fsdp=4)
SPREADS = {
    "": AskedSpread("mesh", OWN),
    "--mesh=data=2,tensor=2": AskedSpread("mesh", Layout(data=2, tensor=2)),
    "--mode=mesh": AskedSpread("mesh", OWN),
    "--mode=pmap --mesh=data=8": AskedSpread("pmap", Layout(data=8)),
    "--mode=loop": AskedSpread("loop"),
    "--mode=vmap": AskedSpread("vmap"),
}
REFUSED = {
    "--mode=": "--mode is empty; write a mode, or leave it out.",
    "--mesh=planes=2": "--mesh = 'planes=2': planes is no part of a layout",
    "--mode=loop --mesh=fsdp=2": "--mesh = 'fsdp=2' has no meaning for --mode loop; use mesh or",
    "--mode=pmap": "--mesh = 'fsdp=4' is not for --mode pmap, which divides rows alone; use data=4",
}


def read(words, own=OWN):
    values = flags.FlagValues()
    define_layout_flags(values)
    values(["jtransformer", *words.split()])
    return read_spread(values, own)


@pytest.mark.parametrize("words", SPREADS)
def test_the_command_line_counts_more_than_the_file(words):
    assert read(words) == SPREADS[words]


def test_without_a_layout_the_command_decides():
    assert read("", None) == AskedSpread()
    assert read("--mode=mesh", None) == AskedSpread("mesh")


@pytest.mark.parametrize("words", REFUSED)
def test_what_has_no_meaning_is_refused(words):
    with pytest.raises(SpecError, match=REFUSED[words]):
        read(words)


def test_a_launch_says_what_each_run_of_a_sweep_is_spread_over(tmp_path):
    def launched(*words, own=None):
        values = launch_flags()
        values(["jtransformer", *words])
        return spread_by(read_workers(values, tmp_path), values, own).launch

    assert (launched().mode, launched().mesh) == ("auto", None)
    assert (launched(own=OWN).mode, launched(own=OWN).mesh) == ("mesh", "fsdp=4")
    given = launched("--mesh=tensor=2,data=2")
    assert (given.mode, given.mesh) == ("mesh", "data=2, tensor=2")
    with pytest.raises(SpecError, match="--runs_at_once = 2 has no meaning for --mode mesh"):
        launched("--mode=mesh", "--runs_at_once=2")
    with pytest.raises(SpecError, match="--steps_per_dispatch = 2 has no meaning for --mode pmap"):
        launched("--mode=pmap", "--steps_per_dispatch=2")


WRONG = {
    "a list": ([2], r"file.py get_layout\(\) must return a dict such as .*, got list"),
    "a name": ({"fsd": 2}, r"file.py get_layout\(\) has 'fsd'; did you mean 'fsdp'"),
    "a value": ({"fsdp": 0}, r"file.py: get_layout\(\).fsdp must be at least 1, got 0"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_file_that_returns_no_layout_is_refused(what):
    found, message = WRONG[what]
    with pytest.raises(SpecError, match=message):
        layout_of(found, "file.py")


def test_train_reads_the_layout_of_its_file_and_refuses_what_is_not_here(tmp_path, capsys):
    config = tiny_run.config_file(tmp_path, {})
    config.write_text(config.read_text() + "\n\ndef get_layout():\n    return {'fsdp': 2}\n")
    assert read_experiment(config, []).layout == Layout(fsdp=2)
    said = {
        "": "--mesh = 'fsdp=2' takes 2 devices and there is 1; make an axis smaller.",
        "--mesh=data=1,tensor=4": "--mesh = 'tensor=4' takes 4 devices and there is 1",
        "--mode=vmap": "--mode = 'vmap' is not for one run; ",
        "--mode=pmap --mesh=data=2": "devices = 2 is more than this process has (1)",
    }
    for words, sentence in said.items():
        command = ["train", f"--config={config}", f"--workdir={tmp_path / 'run'}", *words.split()]
        assert main(command) == 2
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_sweep_is_refused_before_it_is_written_down(tmp_path, capsys):
    """Else the work directory would belong to a sweep that was never begun."""
    sweep = dict(scientific={"model.ffn": ("relu", "gelu")}, seeds=(0,), metric="validation/nll")
    config = tiny_run.config_file(tmp_path, sweep)
    workdir = tmp_path / "sweep"
    command = ["sweep", f"--config={config}", f"--workdir={workdir}", "--mesh=fsdp=2"]
    assert main(command) == 2
    assert "--mesh = 'fsdp=2' takes 2 devices and there is 1" in capsys.readouterr().err
    assert not (workdir / "sweep.json").exists()
