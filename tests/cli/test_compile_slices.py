"""Tests of `jtransformer compile --search` and `plan --topology` for a TPU slice, without a TPU."""

import importlib.util
import json
import os
import pathlib
import shlex
import subprocess
import sys

import pytest
import tiny_run

from jtransformer.cli.arguments import read_experiment
from jtransformer.spec import Layout

if importlib.util.find_spec("libtpu") is None:
    pytest.skip(
        "needs libtpu, of the extra tpu-plan, as CI has it (owner: maintainers, 2026-11-30)",
        allow_module_level=True,
    )

ROOT = pathlib.Path(__file__).parents[2]
LIMIT = 2
SWEEP = dict(scientific={"model.ffn": ("relu", "swiglu")}, seeds=(0, 1))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return tiny_run.config_file(tmp_path_factory.mktemp("config"), SWEEP, ffn="relu")


def answer(*argv, flags=""):
    """Runs a command as a user does and returns the object that it prints, and what it says."""
    code = "import sys; from jtransformer.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": flags}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, argv), "--topology", "v5e:2x2", "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_search_ranks_what_it_compiled_and_goes_on_from_there(config, tmp_path):
    words = ["compile", "--config", config, "--cache", tmp_path, "--search"]
    found, said = answer(*words, "--limit", LIMIT)
    assert len(found["tried"]) == LIMIT and f"[{LIMIT}/{LIMIT}]" in said
    assert not any(one["cached"] for one in found["tried"])
    counted = (found[name] for name in ("too_large", "spared", "left"))
    assert LIMIT + sum(counted) == found["candidates"] and found["left"] > 0
    seconds = [one["roofline"]["seconds"] for one in found["tried"]]
    assert seconds == sorted(seconds) and seconds[0] > 0
    # The command that is printed is the best one, and a command.
    best, train = found["tried"][0], shlex.split(found["command"])
    mesh = next(word for word in train if word.startswith("--mesh="))
    assert Layout.parse(mesh.removeprefix("--mesh=")).label == best["mesh"]
    run = read_experiment(config, train).run_spec()
    assert run.model.rematerialize == best["rematerialize"]
    assert run.training.microbatches == best["microbatches"]
    more, _ = answer(*words, "--limit", LIMIT + 1)
    assert sum(one["cached"] for one in more["tried"]) == LIMIT
    assert len(more["tried"]) == LIMIT + 1


def test_a_sweep_is_compiled_for_the_slice(config, tmp_path):
    words = ["plan", "--config", config, "--cache", tmp_path, "--mesh", "fsdp=2,data=2"]
    found, _ = answer(*words)
    assert (found["topology"], found["mesh"]) == ("v5e:2x2", "data=2, fsdp=2")
    for group in found["groups"]:
        program = group["ahead"]
        assert program["refusal"] is None and program["memory"]["fits"]
        seconds = program["roofline"]["seconds"]
        assert group["device_seconds"] == pytest.approx(seconds * group["updates"] * 4)


def test_flags_of_another_back_end_do_not_end_the_process(config, tmp_path):
    words = ["plan", "--config", config, "--cache", tmp_path]
    found, _ = answer(*words, flags="--xla_force_host_platform_device_count=8 --xla_unknown=1")
    assert [group["ahead"]["refusal"] for group in found["groups"]] == [None, None]
