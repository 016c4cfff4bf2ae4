"""Tests that runs are spread over devices, in a process that has eight."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

TESTS = pathlib.Path(__file__).parents[1]
PROGRAM = """
import json, pathlib, sys
import jax
import tiny_run
from jtransformer import records
from jtransformer.training import LOOP, Execution, Hooks, Interrupted, Trainer

root = pathlib.Path(sys.argv[1])
base = tiny_run.run_spec(root)
runs = {str(seed): tiny_run.with_seed(base, seed) for seed in range(10)}
EIGHT = Execution(mode="spread", runs_at_once=8, devices=8)
TWO_EACH = Execution(mode="spread", runs_at_once=4, devices=2)
programs, made = {}, {}
tiny_run.program(base, programs)


def train(name, execution, **hooks):
    trainer = Trainer(Hooks(**hooks))
    trainer._programs, trainer._compiled = programs, made
    cells = [(spec, root / name / seed) for seed, spec in runs.items()]
    for one in trainer.train_group(cells, execution):
        if one.error is not None:
            raise one.error


train("loop", LOOP)
for name, execution in {"eight": EIGHT, "two each": TWO_EACH}.items():
    train(name, execution)
asked = iter(range(10**9))
try:
    train("again", EIGHT, should_stop=lambda: next(asked) >= 4)
except Interrupted:
    train("again", EIGHT)
found = {}
for name in ("loop", "eight", "two each", "again"):
    found[name] = []
    for seed in runs:
        rows = records.read_rows(root / name / seed / "metrics.jsonl")
        mode = records.read_json(root / name / seed / "environment.json")["mode"]
        found[name].append([mode, [{**row, "tokens_per_second": None} for row in rows]])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_runs_on_several_devices_are_what_they_are_in_turn(tmp_path):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    found = json.loads(
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": f"{TESTS}:{TESTS.parent}"},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    )
    modes = {name: {mode for mode, _ in runs} for name, runs in found.items()}
    assert modes == {
        "loop": {"loop"},
        "eight": {"spread, 8 runs, 8 devices"},
        "two each": {"spread, 4 runs, 2 devices"},
        "again": {"spread, 8 runs, 8 devices"},
    }
    # Stopped and continued: the same bits. Otherwise losses agree, as for every other execution.
    assert found["again"] == found["eight"]
    for name in ("eight", "two each"):
        for (_, ours), (_, theirs) in zip(found[name], found["loop"], strict=True):
            for mine, other in zip(ours, theirs, strict=True):
                for key in ("train_loss", "validation_nll", "gradient_norm"):
                    if other[key] is not None:
                        np.testing.assert_allclose(mine[key], other[key], rtol=1e-4)
