"""Tests of what the command line accepts: bad input is one sentence and exit code 2, at once."""

import pathlib

import pytest
import tiny_run
from sweep_fixture import write_sweep

from jtransformer.cli import main, preflight
from jtransformer.cli.arguments import read_experiment
from jtransformer.cli.main import COMMANDS
from jtransformer.spec import SpecError, from_tree, prune

SWEEP = dict(
    scientific={"model.ffn": ("relu", "swiglu"), "model.norm_placement": ("pre",)},
    nuisance={"optimizer.learning_rate": (0.01, 0.02)},
    seeds=(0, 1),
    match=dict(equal="parameters", by="model.ffn_width", multiple_of=1, tolerance=0.02),
)


CONFIG = """from jtransformer.config import to_config
from jtransformer.spec import presets
def get_config():
    config = to_config(presets.decoder_lm())
"""
TYPO = """    config.optimizer.learning_rat = 1
    return config
def get_sweep():
    return {"scientific": {"model.layers": (1, 2)}}
"""


@pytest.fixture
def config(tmp_path):
    """Returns a function that writes a config file whose sweep has some changes."""

    def write(**changes):
        return tiny_run.config_file(tmp_path, SWEEP | changes, ffn="relu")

    return write


def refused(capsys, *argv):
    assert main([str(word) for word in argv]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.strip().splitlines()
    assert not captured.out
    return line


CASES = {
    "unknown field": (["--config.model.fnn=gelu"], {}, "did you mean 'ffn'"),
    "unknown group": (["--config.modle.ffn=gelu"], {}, "did you mean 'model'"),
    "group for a field": (["--config.model.position=rope"], {}, "is a group of settings"),
    "bool for int": (["--config.model.layers=True"], {}, "layers"),
    "float for int": (["--config.model.layers=1.5"], {}, "layers"),
    "word for float": (["--config.optimizer.learning_rate=fast"], {}, "learning_rate"),
    "outside its set": (["--config.model.norm_placement=both"], {}, "pre, post, sandwich, branch"),
    "None for a number": (["--config.model.width=None"], {}, "must be an integer, got None"),
    "lower-case word": (["--config.model.head.tokens.tied=maybe"], {}, "must be True or False"),
    "no value": (["--config.model.width"], {}, "has no value"),
    "heads": (["--config.model.heads=3"], {}, "must divide the width, got heads=3, width=16"),
    "nan": (["--config.optimizer.learning_rate=nan"], {}, "must be finite"),
    "below its bound": (["--config.training.steps=0"], {}, "at least 1, got 0"),
    "unread option": (
        ["--config.model.position.learned.max_length=99"],
        {},
        "would do nothing, because model.position.kind is 'sinusoidal'",
    ),
    "unread option at its default": (
        ["--config.model.position.learned.max_length=1024"],
        {},
        "would do nothing",
    ),
    "unreadable text": (
        ["--config.data.source.text_file.path=/nowhere/a.txt"],
        {},
        "cannot be read",
    ),
    "text too short for a sequence": (["--config.data.length=2000"], {}, "give a longer text"),
    "text too short for a batch": (
        ["--config.training.batch_size=500"],
        {},
        "more than the training",
    ),
    "unmatched": (
        [],
        {"match": dict(equal="parameters", by="model.ffn_width", multiple_of=64, tolerance=0.01)},
        "the best multiple of 64 of ffn_width is 64, which misses by",
    ),
    "identical arms": ([], {"scientific": {"model.ffn": ("relu", "relu")}}, "twice"),
    "same seed twice": ([], {"seeds": (0, 0)}, "twice"),
    "unknown part": ([], {"seed": (0,)}, "did you mean 'seeds'"),
    "no baseline": (
        [],
        {"scientific": {"model.ffn": ("gelu", "swiglu")}},
        "no arm equals get_config()",
    ),
    "value after a space": (
        ["--config.training.steps", "5"],
        {},
        "write --config.training.steps=V",
    ),
    "switch with a value": (["--nodry_run=3"], {}, "dry_run"),
    "endless text": (
        ["--config.data.source.text_file.path=/dev/zero"],
        {},
        "is a device, not a file",
    ),
    "unknown flag": (["--wokdir=x"], {}, "is not a flag; did you mean 'workdir'"),
    "stray word": (["runs/a"], {}, "is not a flag"),
}


@pytest.mark.parametrize(("argv", "changes", "message"), CASES.values(), ids=CASES)
def test_bad_input_is_one_sentence_before_any_work(
    capsys, config, tmp_path, argv, changes, message
):
    workdir = tmp_path / "out"
    line = refused(capsys, "sweep", "--config", config(**changes), "--workdir", workdir, *argv)
    assert message in line and line.startswith("jtransformer sweep: ")
    assert not workdir.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not a file"),
        ("def get_config(:\n", "fails in line 1 (SyntaxError"),
        ("import nowhere_to_be_found\n", "fails in line 1 (ModuleNotFoundError"),
        ("\nx = 1 / 0\n", "fails in line 2 (ZeroDivisionError: division by zero)"),
        (CONFIG + "    config.optmizer.learning_rate = 1\n    return config\n", "fails in line 5"),
        (CONFIG + TYPO, "learning_rat is not a setting; did you mean 'learning_rate'?"),
        (CONFIG + "    return config\n\ndef get_sweep():\n    return 1 / 0\n", "fails in line 8"),
        ("raise SystemExit(0)\n", "fails in line 1 (SystemExit: 0)"),
        ("x = 1\n", "has no get_config()"),
        ("def get_config():\n    return {}\n", "must return a ConfigDict"),
    ],
)
def test_a_config_file_that_cannot_be_used_is_named(capsys, tmp_path, content, message):
    path = tmp_path / "config.py"
    if content is not None:
        path.write_text(content)
    line = refused(capsys, "sweep", "--config", path, "--workdir", tmp_path / "out")
    assert message in line and (str(path) in line or content.endswith(TYPO))


def test_a_sweep_and_a_single_run_do_not_share_a_directory(capsys, config, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/spec.json").write_text("{}")
    line = refused(capsys, "sweep", "--config", config(), "--workdir", tmp_path / "run")
    assert "holds a single run" in line
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep/sweep.json").write_text("{}")
    line = refused(capsys, "train", "--config", config(), "--workdir", tmp_path / "sweep")
    assert "holds a sweep" in line


@pytest.mark.parametrize("content", ["{torn", "[]", "{}", '{"schema": 1}', '{"schema": 99}'])
def test_a_damaged_manifest_is_named(capsys, config, tmp_path, content):
    (tmp_path / "sweep.json").write_text(content)
    for command in (("sweep", "--config", config()), ("status",), ("report",)):
        line = refused(capsys, *command, "--workdir", tmp_path)
        assert "sweep.json" in line and ("damaged" in line or "format" in line)


@pytest.mark.parametrize("command", ["sweep", "report"])
def test_missing_packages_are_named_before_any_work(capsys, monkeypatch, config, tmp_path, command):
    monkeypatch.setattr(preflight, "PACKAGES", ("numpy", "package_of_nobody"))
    words = ["--config", config()] if command == "sweep" else []
    if command == "report":
        write_sweep(tmp_path / "out", {("relu", 0.01, 0): "pending"})
    line = refused(capsys, command, *words, "--workdir", tmp_path / "out")
    assert "package_of_nobody are missing" in line and "pip install" in line


def test_dry_run_checks_the_directory_too(capsys, config):
    words = ("--config", config(), "--workdir", "/proc/nowhere", "--dry_run")
    assert "cannot be written" in refused(capsys, "sweep", *words)


def test_missing_flags_are_named(capsys, config):
    assert "--workdir" in refused(capsys, "sweep", "--config", config())
    assert "--config" in refused(capsys, "sweep", "--workdir", "x")


def test_unknown_command_offers_the_nearest(capsys):
    assert "did you mean 'sweep'" in refused(capsys, "sweeep")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(capsys, command):
    assert main([command, "--help"]) == 0
    assert f"example: jtransformer {command} " in capsys.readouterr().out


def test_overrides_reach_the_plan(capsys, config, tmp_path):
    argv = ["sweep", "--config", str(config()), "--workdir", str(tmp_path / "out"), "--dry_run"]
    assert main(argv) == 0
    narrow = capsys.readouterr().out
    assert main([*argv, "--config.model.ffn_width=48"]) == 0
    assert capsys.readouterr().out != narrow
    assert main([*argv, "--config.optimizer.gradient_clip=None"]) == 0
    assert main([*argv, "--config.optimizer.weight_decay=1"]) == 0
    assert not (tmp_path / "out").exists()


def test_optional_settings_are_set_and_unset(config):
    """CFG-02: flags that take their type from the present value refuse the one or the other."""
    words = {"model.head_width": "8", "training.average_decay": "0.5"}
    words |= {"optimizer.gradient_clip": "None"}
    argv = [f"--config.{path}={word}" for path, word in words.items()]
    for given, expected in (([], (None, None, 1.0)), (argv, (8, 0.5, None))):
        run = from_tree(prune(read_experiment(config(), given).tree))
        found = run.model.head_width, run.training.average_decay, run.optimizer.gradient_clip
        assert found == expected


def test_an_option_that_one_arm_reads_may_be_set(capsys, config, tmp_path):
    changes = {
        "scientific": {"model.position.kind": ("sinusoidal", "learned")},
        "match": None,
    }
    argv = ["sweep", "--config", str(config(**changes)), "--workdir", str(tmp_path / "out")]
    argv += ["--dry_run", "--config.model.position.learned.max_length=99"]
    assert main(argv) == 0
    assert "learned" in capsys.readouterr().out


def test_a_status_or_report_without_a_sweep_is_refused(capsys, tmp_path):
    for command in ("status", "report"):
        assert "holds no sweep" in refused(capsys, command, "--workdir", tmp_path)


def test_config_files_are_not_compiled_beside_themselves(capsys, config, tmp_path):
    main(["sweep", "--config", str(config()), "--workdir", str(tmp_path / "out"), "--dry_run"])
    assert not list(pathlib.Path(tmp_path).rglob("__pycache__"))


def test_a_name_too_long_for_the_disk_is_refused(capsys, config, tmp_path):
    line = refused(capsys, "sweep", "--config", config(), "--workdir", tmp_path / ("x" * 300))
    assert "cannot be written" in line


SIZES = """
from typing import Literal

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config(size: Literal["small", "large"] = "small"):
    config = to_config(presets.decoder_lm(width=32, layers=2))
    config.training.steps = {"small": 50, "large": 60}[size]
    return config


def get_sweep(size: str = "small"):
    return dict(seeds=(0,) if size == "small" else (0, 1))


def get_layout():
    return dict(data=2)
"""


def test_a_size_behind_a_config_file_reaches_each_function_that_takes_it(tmp_path):
    path = tmp_path / "config.py"
    path.write_text(SIZES)
    for size, steps, seeds in ((path, 50, 1), (f"{path}:small", 50, 1), (f"{path}:large", 60, 2)):
        found = read_experiment(pathlib.Path(size), [])
        assert found.path == path and found.run_spec().training.steps == steps
        assert len(found.sweep["seeds"]) == seeds and found.layout.devices == 2
    with pytest.raises(SpecError, match="no size of the file; did you mean 'large'"):
        read_experiment(pathlib.Path(f"{path}:larg"), [])
    (odd := tmp_path / "with:colon.py").write_text(SIZES)
    assert read_experiment(odd, []).path == odd


def test_a_size_of_a_file_that_has_one_is_refused(config):
    with pytest.raises(SpecError, match="has one size; leave out ':large'"):
        read_experiment(pathlib.Path(f"{config()}:large"), [])
