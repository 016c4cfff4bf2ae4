"""Tests of what the benchmark suite makes of its measurements."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import suite
from bench.aims import aims, fastest_torch, ratio
from bench.bench import in_turn, lacking
from bench.curves import AXES, BASE, size_at
from bench.journal import Journal
from bench.peers import PEERS
from bench.processes import python_of
from bench.rounds import ratios, slope, spread
from bench.sizes import SIZES, TINY, rows
from bench.specs import run_of, update_flops
from bench.tables import busy

from jtransformer import accounting

BENCHMARKS = pathlib.Path(suite.__file__).parent


def test_quartiles_are_within_the_values():
    assert spread([3.0]) == (3.0, 3.0, 3.0)
    assert spread([1.0, 2.0, 9.0]) == (1.5, 2.0, 5.5)
    values = [4.0, 1.0, 3.0, 9.0, 5.0, 2.0, 8.0]
    np.testing.assert_allclose(spread(values), np.percentile(values, [25, 50, 75]))


def test_a_spread_is_written_with_its_quartiles():
    assert spread([1.0, 2.0, 9.0]).text(".1f") == "2.0 (1.5–5.5)"
    assert spread([2.0]).text(".1f") == "2.0"


def test_ratios_are_of_one_round():
    assert ratios({0: 3.0, 1: 8.0, 2: 5.0}, {2: 2.0, 1: 4.0, 3: 1.0}) == [2.0, 2.5]


def test_the_exponent_of_a_power_law_is_found():
    x = [1, 2, 5, 10]
    assert slope(x, [3 * v**1.7 for v in x]) == pytest.approx(1.7)


def test_each_peer_begins_a_round_as_often_as_the_others():
    names = ["a", "b", "c"]
    orders = [in_turn(round_, names) for round_ in range(6)]
    assert sorted(order[0] for order in orders) == sorted(names * 2)
    assert all(sorted(order) == names for order in orders)


def test_a_journal_is_read_again(tmp_path):
    path = tmp_path / "deep" / "journal.jsonl"
    Journal(path, {"code": "a"}).write("step", peer="ours", round=0, seconds=1.5)
    assert Journal(path, {"code": "a"}).seconds("step", peer="ours") == {0: 1.5}
    assert Journal(path, {"code": "a"}).seconds("step", peer="linen") == {}


def test_a_line_that_was_cut_is_dropped_and_the_next_stands_alone(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path, {}).write("step", round=0, seconds=1.0)
    with path.open("a") as file:
        file.write('{"kind": "step", "rou')
    again = Journal(path, {})
    assert again.seconds("step") == {0: 1.0}
    again.write("step", round=1, seconds=2.0)
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == [
        "about",
        "step",
        "step",
    ]


def test_a_round_that_lacks_a_measurement_is_made_again(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl", {})
    for peer, rounds in (("ours", (0, 1)), ("linen", (0,))):
        for round_ in rounds:
            journal.write("step", peer=peer, round=round_, seconds=1.0)
    each = [{"peer": "ours"}, {"peer": "linen"}]
    assert journal.rounds_left(3, "step", each) == [1, 2]
    assert journal.rounds_left(2, "step", each[:1]) == []
    journal.write("step", peer="ours", round=1, seconds=7.0)
    assert journal.seconds("step", peer="ours") == {0: 1.0, 1: 7.0}


def test_measurements_of_other_code_are_not_gone_on_with(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path, {"code": "a", "cores": 2})
    with pytest.raises(ValueError, match="code was a, is b; use a new --out"):
        Journal(path, {"code": "b", "cores": 2})


def test_ratios_do_not_see_that_the_machine_slows_down(journal):
    np.testing.assert_allclose(ratio(journal, "S", "linen"), [1.3] * 3)
    assert ratio(journal, "L", "linen") is None
    best, found = fastest_torch(journal, "S")
    assert best == "compiled" and found.median == pytest.approx(1.5)


def test_aims_are_reached_missed_or_not_measured(journal):
    verdicts = {aim.what: aim.verdict for aim in aims(journal)}
    assert verdicts == {
        "S: fastest torch peer (torch.compile) / here": "reached",
        "M: fastest torch peer (torch.compile) / here": "reached",
        "L: fastest torch peer / here": "not measured",
        "M: flax.linen / here": "reached",
        "L: flax.linen / here": "not measured",
        "compile time, scanned: 24 layers / 2 layers": "reached",
    }
    journal.write("compile", form="scan", layers=24, round=0, seconds=9.0)
    assert aims(journal)[-1].verdict == "missed"
    for round_ in range(3):
        journal.write("step", size="M", peer="ours", round=round_, seconds=1e9)
    assert [aim.verdict for aim in aims(journal) if aim.what[:2] == "M:"] == ["missed"] * 2


@pytest.mark.parametrize("size", [*SIZES.values(), TINY])
def test_operations_and_parameters_are_those_of_a_gpt2(size):
    L, D, _, F, T, B, V = size
    matrices = L * (4 * D * D + 2 * D * F) + V * D
    assert update_flops(size) == 3 * B * T * (2 * matrices + L * 4 * T * D)
    biases_and_norms = L * (3 * D + D + F + D + 4 * D) + 2 * D
    assert accounting.parameters(run_of(size).model).total == matrices + biases_and_norms + T * D


def test_a_busy_machine_is_told_of(journal):
    assert busy(journal) == []
    journal.write("moment", when="after", time="one", load=9.0, commit="abc")
    # At the end it is the suite's own work.
    assert busy(journal) == []
    journal.write("moment", when="before", time="two", load=3.25, commit="abc")
    assert "its load was 3.2 before" in busy(journal)[0]


def test_rows_ask_for_the_next_token():
    tokens, labels = rows(TINY)
    assert tokens.shape == labels.shape == (TINY.B, TINY.T)
    np.testing.assert_array_equal(tokens[:, 1:], labels[:, :-1])


@pytest.mark.parametrize("axis", AXES)
def test_every_axis_changes_one_size_and_what_goes_along(axis):
    changed = size_at(axis, AXES[axis].values[-1])
    moved = {name for name in BASE._fields if getattr(BASE, name) != getattr(changed, name)}
    assert moved == ({"D", "F", "N"} if axis == "D" else {axis})
    assert changed.D // changed.N == BASE.D // BASE.N
    assert update_flops(changed) > update_flops(BASE)


def test_a_peer_runs_in_the_python_of_its_most_particular_need():
    pythons = {"torch": "/one", "x_transformers": "/two"}
    found = {name: python_of(name, pythons) for name in PEERS}
    assert found["torch"] == found["transformers"] == "/one"
    assert found["x_transformers"] == "/two"
    assert found["ours"] == found["linen"] == sys.executable


def test_a_missing_peer_is_named_with_what_it_lacks():
    assert lacking({}) == ""
    said = lacking({"transformers": ["torch", "transformers"]})
    assert said == "missing: transformers GPT-2 (no torch, transformers)"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--only typing", "'typing' is none of training, curves, compile, memory"),
        ("--sizes S,XL", "'XL' is none of S, M, L, tiny"),
        ("--peers linen", "--peers needs 'ours'"),
        ("--python pytorch=/x", "is not NEED=PATH"),
    ],
)
def test_the_command_line_names_what_is_wrong(words, said, capsys):
    with pytest.raises(SystemExit):
        suite.parse(["--out", "x", *words.split()])
    assert said in capsys.readouterr().err


def test_a_child_says_what_its_python_lacks_and_ends():
    # Without -S, the packages of this environment would be seen.
    command = [sys.executable, "-S", "-m", "bench.child", "linen"]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(BENCHMARKS)}, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["missing"] == ["jax", "flax", "optax"]
