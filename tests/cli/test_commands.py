"""Tests of the commands that look at a work directory or train one run."""

import json
import re

import tiny_run
from sweep_fixture import write_sweep

from jtransformer import records
from jtransformer.cli import main
from jtransformer.cli.main import COMMANDS
from jtransformer.sweep import Ledger

STATES = {
    ("relu", 0.01, 0): 2.0,
    ("relu", 0.01, 1): "diverged",
    ("gelu", 0.01, 0): "failed",
    ("gelu", 0.01, 1): "running",
    ("gelu", 0.02, 0): "pending",
    ("gelu", 0.02, 1): "pending",
}


def test_status_counts_every_state(capsys, tmp_path):
    workdir = write_sweep(tmp_path / "out", STATES)
    assert main(["status", "--workdir", str(workdir)]) == 0
    text = capsys.readouterr().out
    assert "1 done, 1 diverged, 1 failed, 0 running, 1 interrupted, 2 pending of 6 runs" in text
    assert "failed: runs/gelu/" in text
    assert main(["status", "--workdir", str(workdir), "--json"]) == 0
    counts = {"done": 1, "diverged": 1, "failed": 1, "running": 0, "interrupted": 1, "pending": 2}
    assert json.loads(capsys.readouterr().out) == counts
    cells = records.read_json(workdir / "sweep.json")["cells"]
    book, claims = Ledger("a", "launch"), []
    for cell in cells[2:4]:  # The failed one, tried again, and the one that was begun.
        directory = workdir / cell["directory"]
        claims.append(book.take(directory, book.find(directory)))
    assert main(["status", "--workdir", str(workdir), "--json"]) == 0
    claimed = {"running": 2, "interrupted": 0, "failed": 0}
    assert json.loads(capsys.readouterr().out) == counts | claimed
    for claim in claims:
        claim.release()
    assert main(["status", "--workdir", str(workdir), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == counts


def test_train_prints_rows_and_its_result_and_does_nothing_twice(capsys, tmp_path):
    config = tiny_run.config_file(tmp_path, {}, ffn="relu")
    argv = ["train", "--config", str(config), "--workdir", str(tmp_path / "run")]
    assert main(argv) == 0
    first = capsys.readouterr().out.splitlines()
    status = records.read_json(tmp_path / "run/status.json")
    assert [line.split()[1] for line in first[:-1]] == ["2", "4", "5", "6", "8", "10"]
    assert f"validation {status['result']['validation_nll']:.4f}" in first[-1]
    assert main(argv) == 0
    assert capsys.readouterr().out.splitlines() == first[-1:]
    assert not any("peak" in line for line in first)  # not known of a CPU

    # What the run's records say of its devices counts, wherever they are read.
    recorded = records.read_json(tmp_path / "run/environment.json")
    recorded |= {"device_kind": "TPU v5 lite", "mode": "mesh, fsdp=4, tensor=2"}
    records.write_json(tmp_path / "run/environment.json", recorded)
    assert main(argv) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r".*, 0\.0% of the peak of 8 TPU v5 lite", line)


def test_train_refuses_what_it_cannot_read_and_leaves_no_directory(capsys, tmp_path):
    config = tiny_run.config_file(tmp_path, {}, ffn="relu")
    workdir = tmp_path / "run"
    argv = ["train", "--config", str(config), "--workdir", str(workdir)]
    assert main([*argv, "--config.data.source.text_file.path=/nowhere/a.txt"]) == 2
    assert "cannot be read" in capsys.readouterr().err and not workdir.exists()


def test_overview_names_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert main([]) == 2
