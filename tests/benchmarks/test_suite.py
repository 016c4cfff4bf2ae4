"""Tests that the benchmark suite runs from its command to its page."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import time

import children
import pytest
import suite
from bench import compiling, curves, memory, page, training
from bench.bench import Bench, Plan
from bench.journal import Journal
from bench.peers import PEERS
from bench.sizes import SIZES, TINY

ROOT = pathlib.Path(__file__).parents[2]
TINY_RUN = "--sizes tiny --only training --seconds 0.01".split()


def lines(folder):
    text = (folder / suite.NAME).read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
def test_the_suite_measures_and_writes_its_page(tmp_path, capsys):
    """In one run: two JAX peers, and one that no Python here has."""
    present = ["ours", "linen"]
    argv = [*TINY_RUN, "--rounds", "2", "--out", str(tmp_path), "--peers", "ours,linen"]
    suite.main(argv)
    found = lines(tmp_path)
    steps = [(one["peer"], one["round"]) for one in found if one["kind"] == "step"]
    assert steps == [("ours", 0), ("linen", 0), ("linen", 1), ("ours", 1)]
    prepared = [one for one in found if one["kind"] == "prepared"]
    assert [one["peer"] for one in prepared] == present
    assert {one["parameters"] for one in prepared} == {7232}
    assert all(one["losses"][-1] < one["losses"][0] for one in prepared)
    # An untrained model knows nothing: ln 32, but for the size of its initial values.
    assert all(one["losses"][0] == pytest.approx(3.466, abs=0.05) for one in prepared)
    assert "wrote" in capsys.readouterr().out.splitlines()[-1]
    assert "flax.linen" in (tmp_path / "results.md").read_text()


def test_a_page_shows_what_was_measured_and_names_who_is_missing(journal, tmp_path):
    index = page.write(tmp_path / "out", journal, SIZES, "the command", suite.NAME)
    text, summary = index.read_text(), (index.parent / "results.md").read_text()
    for shown in (text, summary):
        assert "Missing: transformers GPT-2 (no transformers)" in shown
        assert "the command" in shown
        # Ratios of size S; its time is 10 ms in the first round, 20 and 40 ms in the others.
        assert "1.30" in shown and "20.0 (15.0–30.0)" in shown
        # Scanned: (3 + 0.24) / (3 + 0.02) s.
        assert "24 layers take 1.07 times as long as 2" in shown
    # Memory as the square of the length, time as that of every size.
    assert "| 2.00 |" in summary.split("## What an update holds")[1]
    assert summary.count("| 2.00 | 2.00 |") == len(curves.AXES)
    names = ["step_ratios", "compile", "memory", *[f"curve_{axis}" for axis in curves.AXES]]
    for name in names:
        assert f"figures/{name}.csv" in text
        assert (index.parent / "figures" / f"{name}.svg").stat().st_size > 1000


@pytest.mark.slow
def test_each_size_is_trained_in_a_process_of_its_own(tmp_path):
    journal = Journal(tmp_path / suite.NAME, {})
    bench = Bench(journal, ["ours"], {}, Plan(rounds=1, seconds=0.01))
    first = bench._processes["ours"]
    training.measure(bench, {"one": TINY, "other": TINY})
    assert {one["size"] for one in journal.of("step")} == {"one", "other"}
    assert bench._processes["ours"] is not first and first._process.returncode == 0
    bench.close()


@pytest.mark.exhaustive
def test_all_parts_measure(tmp_path):
    journal = Journal(tmp_path / suite.NAME, {})
    bench = Bench(journal, ["ours"], {}, Plan(rounds=2, seconds=0.01))
    values = {"L": (1, 2), "D": (32, 64), "T": (8, 16), "B": (2, 4), "V": (32, 64)}
    axes = {axis: curves.AXES[axis]._replace(values=values[axis]) for axis in values}
    curves.measure(bench, axes, TINY)
    assert len(journal.of("curve")) == 2 * 2 * 5
    compiling.measure(bench, (1, 2), TINY)
    scanned = journal.of("compile", form="scan")
    assert [one["layers"] for one in scanned] == [1, 2, 1, 2]
    assert [one["layers"] for one in journal.of("compile", form="loop")] == [1, 2]
    base = TINY._replace(T=512, B=4, V=1024)
    memory.measure(bench, (512,), base)
    held = {one["variant"]: one["temporaries"] for one in journal.of("memory")}
    assert held.keys() == memory.VARIANTS.keys()
    # Each way does something, and all together do the most.
    assert all(held["plain"] != held[name] for name in held if name != "plain"), held
    assert min(held, key=held.get) == "all of these"
    count = len(lines(tmp_path))
    for part in (lambda: curves.measure(bench, axes, TINY), lambda: memory.measure(bench, (512,))):
        part()
    assert len(lines(tmp_path)) == count
    bench.close()


@pytest.mark.slow
def test_an_interrupted_suite_goes_on(tmp_path):
    argv = [*TINY_RUN, "--rounds", "2", "--out", str(tmp_path), "--peers", "ours,linen"]
    command = [sys.executable, suite.__file__, *argv]
    process = children.start(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    said = next(line for line in process.stdout if line.startswith("step"))
    children.end(process)
    assert "round=0" in said
    before = lines(tmp_path)
    # What it started ends by itself, its input being gone.
    time.sleep(1)
    suite.main(argv)
    after = lines(tmp_path)
    assert after[: len(before)] == before
    journal = Journal(tmp_path / suite.NAME, {})
    each = [{"size": "tiny", "peer": peer} for peer in ("ours", "linen")]
    assert journal.rounds_left(2, "step", each) == []


@pytest.mark.slow
def test_all_peers_train_the_same_model(tmp_path, capsys):
    """Peers that are not installed are named; those that are agree in parameters and first loss."""
    suite.main([*TINY_RUN, "--rounds", "1", "--out", str(tmp_path)])
    lacking = [
        peer.title
        for peer in PEERS.values()
        if any(importlib.util.find_spec(need) is None for need in peer.needs)
    ]
    last = capsys.readouterr().out.splitlines()[-1]
    assert all(title in last for title in lacking) and ("missing" in last) == bool(lacking)
    prepared = {one["peer"]: one for one in lines(tmp_path) if one["kind"] == "prepared"}
    assert [PEERS[name].title for name in PEERS if name not in prepared] == lacking
    for name, one in prepared.items():
        assert one["parameters"] == (7024 if name == "x_transformers" else 7232)
