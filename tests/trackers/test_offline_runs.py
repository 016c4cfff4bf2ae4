"""Tests of W&B's offline runs as W&B itself writes and lists them; no network is there to use."""

import json
import struct
import subprocess
import sys

import pytest
import tracked_sweep

from jtransformer import records
from jtransformer.trackers import feed, tracked_runs

pytest.importorskip("wandb", reason="needs jtransformer[test] (maintainers, 2026-11-30)")

BLOCK, BEGIN = 32768, 7
"""A file of W&B is a LevelDB log behind seven bytes of its own."""
WHOLE, LAST = 1, 4
TWO = {
    ("pre-gelu", 0.01, 0): 2.0,
    ("pre-relu", 0.01, 0): "running",
}
READ = """
import json, sys
from wandb.proto.wandb_internal_pb2 import Record

def plain(items):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}

for line in sys.stdin:
    record = Record.FromString(bytes.fromhex(line))
    run, kind = record.run, record.WhichOneof("record_type")
    about = [run.run_id, run.project, run.run_group, run.display_name]
    value = {
        "history": plain(record.history.item),
        "summary": plain(record.summary.update),
        "run": {"about": about, "config": plain(run.config.update)},
    }
    if kind in value:
        print(json.dumps([kind, value[kind]]))
"""


def contents(path):
    """Yields the records of a LevelDB log."""
    raw, position, record = path.read_bytes(), BEGIN, b""
    while position + 7 <= len(raw):
        if BLOCK - position % BLOCK < 7:
            position += BLOCK - position % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", raw[position : position + 7])
        record += raw[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (WHOLE, LAST):
            yield record
            record = b""


def shown(into):
    """Returns each run that is there: its rows, its summary, and what it says of itself."""
    paths = list(into.glob("offline-run-*/*.wandb"))
    lines = "\n".join(record.hex() for path in paths for record in contents(path))
    done = subprocess.run(
        [sys.executable, "-c", READ], input=lines, capture_output=True, text=True, check=True
    )
    found = []
    for kind, value in map(json.loads, done.stdout.splitlines()):
        if kind == "run":
            value["config"].pop("_wandb")
            found.append(value | {"history": [], "summary": {}})
        elif kind == "summary":
            found[-1]["summary"] |= value
        else:
            found[-1]["history"].append(
                {name: x for name, x in value.items() if name == "_step" or name[0] != "_"}
            )
    by_identity = {run["about"][0]: run for run in found}
    assert len(by_identity) == len(found) == len(paths), "a run is there twice"
    return by_identity


def rows(workdir):
    return {
        run.identity: [
            {"_step": row["step"]} | {k: v for k, v in row.items() if k != "step" and v is not None}
            for row in run.rows
        ]
        for run in tracked_runs(workdir)
    }


def fed(workdir, into):
    """Feeds as a user does, in a process of its own; returns how many rows that added."""
    words = ["track", "--workdir", str(workdir), "--to", "wandb", "--into", str(into), "--json"]
    command = [sys.executable, "-m", "jtransformer", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)["rows"]


def histories(into):
    return {identity: run["history"] for identity, run in shown(into).items()}


def test_one_offline_run_for_each_run_that_grows_with_it(tmp_path):
    workdir, into = tracked_sweep.write(tmp_path, TWO), tmp_path / "shown"
    assert fed(workdir, into) == 10 + 4
    finished, begun = records.read_json(workdir / "sweep.json")["cells"]

    def written(cell):
        # Named after the second, so that a run that is written anew may keep its folder's name.
        (path,) = into.glob(f"offline-run-*-{cell['fingerprint']}/*.wandb")
        return path.read_bytes()

    first, second = written(finished), written(begun)
    tracked_sweep.grow(workdir, 5)
    assert fed(workdir, into) == 1
    assert written(finished) == first and written(begun) != second
    assert feed(workdir, "wandb", into) == 0
    found = shown(into)
    assert {identity: run["history"] for identity, run in found.items()} == rows(workdir)
    run = found[finished["fingerprint"]]
    name = finished["directory"].removeprefix("runs/")
    assert run["about"] == [finished["fingerprint"], "norm_and_ffn", "pre-gelu", name]
    assert run["config"] == tracked_sweep.CONFIGURATION
    assert (run["summary"]["state"], run["summary"]["test_nll"]) == ("done", 2.011)


@pytest.mark.slow
def test_killed_at_any_moment_no_row_is_lost_and_none_is_there_twice(tmp_path):
    workdir, into = tracked_sweep.write(tmp_path, TWO), tmp_path / "shown"
    fed(workdir, into)
    tracked_sweep.grow(workdir, 5)
    # While the new run is described, and before each of the two renamings.
    for moment in (1, 3, 4, 5):
        tracked_sweep.feed_and_die(workdir, "wandb", into, moment)
        assert len(list(into.glob("offline-run-*"))) in (1, 2)
    assert fed(workdir, into) in (1, 5)
    assert histories(into) == rows(workdir)
    assert not list(into.glob(".feeding-*"))
    words = ["sync", "--dry-run", *map(str, into.glob("offline-run-*"))]
    listed = subprocess.run(
        [sys.executable, "-m", "wandb", *words], capture_output=True, text=True, check=False
    )
    assert "Would sync 2 run(s)" in listed.stdout + listed.stderr
