"""Tests of `jtransformer report`: the page once, followed, and its numbers on the terminal."""

import json
import signal
import subprocess
import sys
import threading
import time

import children
import pytest
from sweep_fixture import noisy_losses, write_sweep

from jtransformer import __version__, records
from jtransformer.cli import main
from jtransformer.cli.watching import with_seconds

LOSSES = noisy_losses({"pre-gelu": 0.0, "pre-swiglu": -0.03}, seeds=2)
FEW = {("pre", 0.004, 0): 2.1, ("pre", 0.004, 1): 2.2, ("pre", 0.004, 2): 2.2}
BEGUN = FEW | {("pre", 0.004, 1): "pending", ("pre", 0.004, 2): "pending"}


def report(workdir, *flags):
    return main(["report", "--workdir", str(workdir), *flags])


def test_json_is_all_that_is_printed_and_nothing_is_written(capsys, tmp_path):
    workdir = write_sweep(tmp_path, LOSSES)
    assert report(workdir, "--section", "verdict", "--json") == 0
    assert json.loads(capsys.readouterr().out)["section"] == "verdict"
    assert report(workdir, "--json") == 0
    assert "sections" in json.loads(capsys.readouterr().out)
    assert report(workdir, "--section", "verdict") == 0
    assert capsys.readouterr().out.startswith("## Verdict")
    assert not (workdir / "report").exists()


@pytest.mark.parametrize(
    "flags, sentence",
    [
        (["--section", "typo"], "no section is named 'typo'; use verdict, curves"),
        (["--watch=0"], "must be a number of seconds from 1 on"),
        (["--watch=nan"], "must be a number of seconds"),
        (["--watch=inf"], "must be a number of seconds"),
        (["--watch", "--json"], "leave one out"),
        (["--watch", "soon"], "soon"),
    ],
)
def test_what_cannot_be_done_is_said(capsys, tmp_path, flags, sentence):
    assert report(write_sweep(tmp_path, LOSSES), *flags) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    "given, read",
    [
        (["--watch"], ["--watch=30"]),
        (["--watch", "--workdir", "x"], ["--watch=30", "--workdir", "x"]),
        (["--watch", "5"], ["--watch", "5"]),
        (["--watch=5"], ["--watch=5"]),
        ([], []),
    ],
)
def test_seconds_may_be_left_out(given, read):
    assert with_seconds(given) == read


def test_a_sweep_that_is_over_is_written_and_left(capsys, tmp_path):
    workdir = write_sweep(tmp_path, FEW)
    assert report(workdir, "--watch", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "3 of 3 runs finished; page written in" in lines[0]
    assert sum("page written" in line for line in lines) == 1
    page = (workdir / "report/index.html").read_text()
    assert 'http-equiv="refresh"' not in page and records.report_is_current(workdir, __version__)


@pytest.mark.slow
def test_a_watch_writes_when_records_change_and_stops_when_asked(tmp_path):
    workdir = write_sweep(tmp_path / "begun", BEGUN)
    ended = write_sweep(tmp_path / "ended", FEW)
    page = workdir / "report/index.html"
    code = "import sys; from jtransformer.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "report", "--workdir", str(workdir), "--watch=1"]
    watching = children.start(command, stdout=subprocess.PIPE, text=True)
    stop = threading.Timer(100, watching.kill)
    stop.start()
    assert "1 of 3 runs finished; page" in watching.stdout.readline()
    assert '<meta http-equiv="refresh" content="1' in page.read_text()
    assert {path.suffix for path in (workdir / "report/figures").iterdir()} == {".csv"}
    assert ".svg" not in page.read_text().partition("text/plain")[0]
    # Whatever it writes meanwhile, without a change, would say the same as before.
    time.sleep(2.5)
    directory = records.load_manifest(workdir)["cells"][1]["directory"]
    (ended / directory).rename(workdir / directory)
    assert "2 of 3 runs finished; page" in watching.stdout.readline()
    watching.send_signal(signal.SIGTERM)
    rest = watching.stdout.read()
    assert watching.wait() == 0
    stop.cancel()
    assert "page:" in rest and "page written" not in rest
    assert 'http-equiv="refresh"' not in page.read_text()
    kinds = {path.suffix for path in (workdir / "report/figures").iterdir()}
    assert kinds == {".csv", ".svg", ".pdf", ".png"}
