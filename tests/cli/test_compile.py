"""Tests of `jtransformer compile`, on the devices at hand."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import tiny_run

from jtransformer import ahead
from jtransformer.accounting import chip, flops, parameters
from jtransformer.cli import main
from jtransformer.cli.compile_tables import print_report, print_search, shortage
from jtransformer.cli.targets import LOCAL, cache_directory
from jtransformer.spec import Layout, to_tree

ROOT = pathlib.Path(__file__).parents[2]
V5E = chip("v5e")


pytestmark = pytest.mark.usefixtures("compilers")


# Under the hook that checks shapes, the state of decoding cannot be lowered: another process.
IN_ANOTHER_PROCESS = """
import contextlib, io, json, sys
from jtransformer.cli import main
answers = []
for argv in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["compile", *argv])
    answers.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(config, cache):
    """What the command says, asked four times: in figures, again, of other sizes, in words."""
    usual = ["--config", str(config), "--cache", str(cache)]
    sizes = ["--decode_rows", "3", "--decode_length", "5"]
    asked = [[*usual, "--json"], [*usual, "--json"], [*usual, "--json", *sizes], usual]
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, json.dumps(asked)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [code for code, _, _ in found] == [0] * len(asked), found
    return [(out, err) for _, out, err in found]


def refused(capsys, *argv):
    assert main(["compile", *map(str, argv)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("jtransformer compile: ")
    return err


@pytest.mark.slow
def test_the_report_is_that_of_the_run(answers, config):
    first, again = (json.loads(out) for out, _ in answers[:2])
    spec = tiny_run.run_spec(config.parent)
    total = parameters(spec.model).total
    for name in ("train", "decode"):
        assert not first["programs"][name]["cached"] and again["programs"][name]["cached"]
        assert first["programs"][name]["fingerprint"] == again["programs"][name]["fingerprint"]
        assert first["programs"][name]["memory"]["parameters"] == 4 * total
        # The speed of a CPU is not known, and nothing is made up.
        assert first["programs"][name]["roofline"] is None
    assert first["fits"] and first["devices"] == 1 and first["config"] == str(config)
    tokens = spec.training.batch_size * spec.data.length
    work = first["programs"]["train"]["work"]
    assert work["model_flops"] == tokens * flops(spec.model, length=16).training
    assert work["tokens"] == tokens


def test_decoding_takes_its_own_sizes(answers):
    usual, found = json.loads(answers[0][0]), json.loads(answers[2][0])
    assert found["programs"]["decode"]["work"]["tokens"] == 3
    held, before = (one["programs"]["decode"]["memory"]["cache"] for one in (found, usual))
    # Keys and values of one layer, and a few numbers that say how far they reach.
    assert 2 * 3 * 5 * 16 * 4 <= held < before


def test_the_text_says_what_is_known(answers):
    out, err = answers[3]
    for words in (
        "on local (1 device), mesh data=1", "parameters", "optimizer", "update of 64 tokens",
        "no estimate, because the speed of these devices is not known", "fingerprint",
        "kept from an earlier compile", "decoding step: fits",
    ):  # fmt: skip
        assert words in out, words
    assert "compiling for local" in err


def compiled_on_a_chip(config, cache, *, capacity):
    """Returns the record of the run on a device that is taken for a v5e of some capacity."""
    local = ahead.topology(ahead.LOCAL)
    known = local._replace(chip=V5E, capacity=capacity, devices=local.devices[:1])
    spec = tiny_run.run_spec(config.parent)
    return ahead.compile_run(spec, known, Layout(), what=("train",), cache=cache).to_record()


def test_a_known_chip_has_a_time_and_a_shortage(capsys, config, cache):
    report = {"config": "[red]", **compiled_on_a_chip(config, cache, capacity=1000)}
    print_report(report)
    text = capsys.readouterr().out
    found = report["programs"]["train"]["roofline"]
    for words in (
        "time: about", f"{found['bound']} bounds it", "tokens/s, utilisation", "1000 bytes",
        "update: does not fit: it takes", "[red]",
    ):  # fmt: skip
        assert words in text, words
    memory = report["programs"]["train"]["memory"]
    assert "of 1000 bytes" in str(shortage(memory))
    assert shortage(memory | {"fits": True}) is None
    refusal = shortage(memory | {"refusal": "RESOURCE_EXHAUSTED"})
    assert refusal == "the compiler refused it (RESOURCE_EXHAUSTED)"


def test_a_search_is_shown_with_the_command_that_uses_it(capsys, config, cache):
    program = compiled_on_a_chip(config, cache, capacity=2**30)["programs"]["train"]
    choice = {"mesh": "fsdp=4", "rematerialize": "everything", "microbatches": 2}
    large = program | {"memory": program["memory"] | {"fits": False}}
    found = {
        "config": "c.py",
        "topology": "v5e:2x2",
        "tried": [choice | program, choice | {"mesh": "tensor=4"} | large],
        "candidates": 9,
        "too_large": 3,
        "spared": 1,
        "left": 3,
        "command": "jtransformer train --mesh=fsdp=4",
    }
    print_search(found)
    text = capsys.readouterr().out
    for words in (
        "fsdp=4", "tensor=4", "everything", "9 candidates: 2 compiled, 3 too large",
        "3 left untried", "to train so: jtransformer train --mesh=fsdp=4",
    ):  # fmt: skip
        assert words in text, words
    print_search(found | {"command": None})
    assert "none of those compiled fits" in capsys.readouterr().out


def test_the_cache_is_with_what_else_a_user_keeps(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    assert cache_directory(None) == tmp_path / "kept/jtransformer/compile"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory(None) == tmp_path / ".cache/jtransformer/compile"
    assert cache_directory("none") is None
    assert cache_directory(str(tmp_path / "own")) == tmp_path / "own"
    # Made only when something is kept.
    assert not list(tmp_path.iterdir())
    (tmp_path / ".cache").write_text("a file")
    assert cache_directory(None) is None
    assert "nothing is kept" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--topology", "v9:2x2"], "topology 'v9:2x2' is unknown"),
        (["--mesh", "fsdp"], "--mesh = 'fsdp': fsdp must have a number"),
        (["--mesh", "fsdp=64"], "layout 'fsdp=64' is for 64 devices"),
        (["--limit", "3"], "--limit would do nothing without --search"),
        (["--search"], "topology 'local' has no known chip"),
        (["--search", "--decode_rows", "2"], "--decode_rows would do nothing with --search"),
        (["--decode_rows", "0"], "--decode_rows must be at least 1, got 0"),
        (["--cache", ""], "--cache is empty"),
    ],
)
def test_errors_are_a_sentence(capsys, config, words, sentence):
    assert sentence in refused(capsys, "--config", config, *words)


def test_the_devices_at_hand_have_one_name():
    assert LOCAL == ahead.LOCAL


# Refused once the environment is set: no libtpu is needed.
FOR_A_SLICE = """
import contextlib
from absl import flags
from jtransformer.cli.targets import define_target, read_target
from jtransformer.spec import SpecError
values = flags.FlagValues()
define_target(values, topology="v9:2x2")
values(["compile", "--cache=none"])
with contextlib.suppress(SpecError):
    read_target(values, None)
import jax
print(jax.config.jax_platforms)
"""


def test_for_devices_that_are_not_here_jax_stays_on_the_cpu():
    """It would start the GPU or TPU of this machine otherwise, and take its memory."""
    own = {name: word for name, word in os.environ.items() if name != "JAX_PLATFORMS"}
    found = subprocess.check_output(
        [sys.executable, "-c", FOR_A_SLICE], text=True, cwd=ROOT, env=own
    )
    assert found.strip() == "cpu"


def test_a_config_is_needed(capsys):
    assert "--config is missing" in refused(capsys)


def test_an_encoder_does_not_decode(capsys, tmp_path, cache):
    spec = tiny_run.masked_run_spec(tmp_path)
    path = tiny_run.config_file(tmp_path, {})
    (tmp_path / "run.json").write_text(json.dumps(to_tree(spec)))
    words = refused(capsys, "--config", path, "--decode_rows", "2")
    assert "--decode_rows would do nothing: an encoder" in words
    argv = ["compile", "--config", str(path), "--cache", str(cache), "--json"]
    assert main(argv) == 0
    assert list(json.loads(capsys.readouterr().out)["programs"]) == ["train"]
