"""Every command that README.md or a --help shows is run here, as it is written, or elsewhere."""

import importlib
import pathlib
import re
import shlex
import shutil

import pytest

from jtransformer.cli.main import COMMANDS, main

ROOT = pathlib.Path(__file__).parents[2]
SMALL = '''"""The sweep of this name in small: its settings, of fewer arms and seeds, narrow."""

import importlib.util

SPEC = importlib.util.spec_from_file_location("large", {path!r})
large = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(large)


def get_config():
    config = large.get_config()
    config.model.width, config.model.heads, config.model.ffn_width = 16, 2, 24
    config.data.length, config.training.batch_size = 12, 2
    return config


def get_sweep():
    post = {{"model.norm_placement": "post", "model.ffn": "swiglu"}}
    return dict(
        arms={{"pre-gelu": {{}}, "post-swiglu": post}},
        nuisance={{"optimizer.learning_rate": (1e-2,)}},
        seeds=(0, 1),
        match=dict(equal="nothing"),
    )
'''
PAIRS = '''"""Reversed words."""

from jtransformer.config import to_config
from jtransformer.spec import presets


def get_config():
    config = to_config(presets.translation(width=16, layers=1))
    config.training.steps, config.schedule.noam.warmup_steps = 2, 1
    config.data.source.synthetic.examples = 200
    return config
'''
CONFIG, SWEEP = "experiments/norm_and_ffn/config.py", "runs/norm_and_ffn"
EXECUTED = [
    f"jtransformer sweep --config {CONFIG} --workdir {SWEEP}",
    "jtransformer sweep --config FILE --workdir DIR --dry_run",
    "jtransformer sweep --config FILE --workdir /shared/DIR --workers 0",
    f"jtransformer worker --workdir {SWEEP}",
    "jtransformer worker --workdir DIR",
    "jtransformer worker --workdir /shared/DIR",
    f"jtransformer status --workdir {SWEEP}",
    "jtransformer status --workdir /shared/DIR",
    f"jtransformer report --workdir {SWEEP}",
    "jtransformer report --workdir /shared/DIR",
    f"jtransformer report --workdir {SWEEP} --section power --json",
    f"jtransformer reproduce --workdir {SWEEP}/runs/pre-gelu/learning_rate=0.01-seed0-…",
    f"jtransformer track --workdir {SWEEP} --to tensorboard",
    "jtransformer compare --workdir runs/monday --workdir runs/friday --into runs/both",
    f"jtransformer plan --config {CONFIG} --noise 0.009 --measure",
    f"jtransformer check --config {CONFIG}",
    f"jtransformer draw --config {CONFIG} --against post-swiglu",
    f"jtransformer draw --config {CONFIG} --out FILE.svg",
    f"jtransformer train --config {CONFIG} --workdir runs/one",
    "jtransformer train --config FILE --workdir runs/one",
    'jtransformer generate --workdir runs/one --prompt "In the beginning"',
    'jtransformer generate --workdir runs/one --prompt "In the beginning" --temperature 0.8',
    "jtransformer probe --workdir runs/one --step 400",
    "jtransformer evaluate --workdir runs/reverse --part test",
    "jtransformer count --preset gpt2_small --length 1024",
    "jtransformer count --preset t5_small",
]
"""In an order in which each finds what those before it left."""
ELSEWHERE = {
    "jtransformer sweep --config FILE --workdir DIR --workers 4": (
        "tests/sweep/test_chaos.py",
        '("--workers", "3")',
    ),
    "jtransformer sweep --config FILE --workdir DIR --workers 16 --launcher ray --option gpus=1": (
        "tests/sweep/test_launchers_clusters.py",
        '"--launcher", "ray"',
    ),
    "jtransformer sweep --config FILE --workdir DIR --workers 16 --launcher slurm "
    "--option partition=gpu --option minutes=240": (
        "tests/sweep/test_launchers_clusters.py",
        '"slurm"',
    ),
    "jtransformer sweep --config experiments/from_hugging_face/config.py --workdir runs/window": (
        "tests/interop/test_start.py",
        'main(["sweep", "--config", str(config)',
    ),
    "jtransformer train --config FILE --workdir DIR --mesh fsdp=4,tensor=2": (
        "tests/cli/test_on_a_mesh.py",
        '"--mesh=fsdp=4,tensor=2"',
    ),
    "jtransformer train --config FILE --workdir DIR --mode pmap": (
        "tests/cli/test_on_a_mesh.py",
        '"--mode=pmap"',
    ),
    "jtransformer train --config FILE --workdir DIR --processes 4": (
        "tests/cli/test_hosts.py",
        '"--processes=2"',
    ),
    "jtransformer train --config FILE --workdir DIR --distributed auto": (
        "tests/cli/test_hosts_lost.py",
        '"--distributed=auto"',
    ),
    "jtransformer compile --config experiments/scale/decoder_7b.py --topology v5e:16x16": (
        "tests/cli/test_compile_slices.py",
        '"compile"',
    ),
    "jtransformer compile --config experiments/scale/decoder_7b.py --topology v5e:16x16 --search": (
        "tests/cli/test_compile_slices.py",
        '"--search"',
    ),
    "jtransformer plan --config FILE --topology v5e:2x4": (
        "tests/cli/test_compile_slices.py",
        '"plan"',
    ),
    "jtransformer import_hf models/gpt2 --workdir runs/gpt2": (
        "tests/interop/test_commands.py",
        '"import_hf"',
    ),
    "jtransformer export_hf runs/gpt2 models/mine": (
        "tests/interop/test_commands.py",
        '"export_hf"',
    ),
    'jtransformer diff runs/gpt2 models/gpt2 --text "In the beginning"': (
        "tests/diff/test_foreign.py",
        '"diff"',
    ),
}
"""Commands that need devices, a scheduler or a model that is not here: where such a one is run."""


def written():
    """Returns the commands of README.md and of every --help, without remarks behind them."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    found = [line.partition("#")[0] for block in blocks for line in block.splitlines()]
    text = re.sub(r"^```.*?^```", "", readme, flags=re.DOTALL | re.MULTILINE)
    found += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text) if " --" in code]
    for name in COMMANDS:
        said = importlib.import_module(f"jtransformer.cli.{name}").__doc__ or ""
        found += re.findall(r"^example: (.*)", said, re.MULTILINE)
    begun = (re.search(r"jtransformer [a-z_]+ .*", line) for line in found)
    return {match.group().strip() for match in begun if match}


def test_every_example_has_its_place():
    assert written() == {*EXECUTED, *ELSEWHERE}
    for path, words in ELSEWHERE.values():
        assert words in (ROOT / path).read_text(encoding="utf-8"), path


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder with a small experiment of the name that examples use."""
    (tmp_path / CONFIG).parent.mkdir(parents=True)
    (tmp_path / CONFIG).write_text(SMALL.format(path=str(ROOT / CONFIG)))
    (tmp_path / "pairs.py").write_text(PAIRS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JTRANSFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path


def words_of(command):
    """Returns what is typed: FILE and DIR stand for the sweep, … for the rest of a name."""
    for name, value in (("/shared/DIR", SWEEP), ("DIR", SWEEP), (" FILE ", f" {CONFIG} ")):
        command = command.replace(name, value)
    words = shlex.split(command)[1:]
    return [
        str(next(pathlib.Path().glob(word.replace("…", "*")))) if "…" in word else word
        for word in words
    ]


@pytest.mark.slow  # four runs, and every command once: 95 s on one core
def test_every_example_runs(here, capsys):
    assert main(["train", "--config", "pairs.py", "--workdir", "runs/reverse"]) == 0
    done = []
    for command in EXECUTED:
        if command.startswith("jtransformer compare"):
            for day in ("monday", "friday"):
                shutil.copytree(SWEEP, f"runs/{day}")
        if (words := words_of(command)) not in done:
            code = main(words)
            assert code == 0, f"{command}: {capsys.readouterr().err}"
            done.append(words)
