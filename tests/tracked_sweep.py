"""A small sweep in several states, what trackers are to say of it, and a feed that is killed."""

import json
import pathlib
import subprocess
import sys

from sweep_fixture import write_sweep

from jtransformer import records

STATES = {
    ("pre-gelu", 0.01, 0): 2.0,
    ("pre-gelu", 0.01, 1): "diverged",
    ("pre-relu", 0.01, 0): "running",
    ("pre-relu", 0.01, 1): "pending",
}
CONFIGURATION = {
    "model.norm_placement": "pre",
    "model.ffn": "gelu",
    "model.ffn_width": 256,
    "optimizer.learning_rate": 0.01,
    "arm": "pre-gelu",
    "seed": 0,
}
"""What the first of its runs is known by."""
ROWS = 10 + 3 + 4
"""Rows that its runs have."""
KILLED = pathlib.Path(__file__).parent / "trackers/killed.py"


def write(directory: pathlib.Path, states: dict = STATES) -> pathlib.Path:
    """Writes the sweep, or another with other states."""
    return write_sweep(directory / "out", states)


def running(workdir: pathlib.Path) -> pathlib.Path:
    """Returns the directory of the run that is under way."""
    (directory,) = (workdir / "runs/pre-relu").glob("*-seed0-*")
    return directory


def grow(workdir: pathlib.Path, number: int) -> None:
    """Gives the run under way its row of that number."""
    path = running(workdir) / "metrics.jsonl"
    row = records.read_rows(path)[-1]
    row |= {"step": number * 40, "tokens": number * 40 * 512, "train_nll": 2.0 + number}
    with open(path, "a") as file:
        file.write(json.dumps(row) + "\n")


def feed_and_die(workdir: pathlib.Path, tracker: str, into: pathlib.Path, moment: int) -> int:
    """Feeds in a process of its own, killed at a moment; returns how many there are for 0."""
    words = [sys.executable, str(KILLED), *map(str, (workdir, tracker, into, moment))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (-9 if moment else 0), done.stderr
    return 0 if moment else int(done.stdout)
