"""Tests that no figure of any run has moved unnoticed, and that small changes do move some."""

import dataclasses
import json

import golden_runs
import pytest

from jtransformer import data
from jtransformer.modules import initial

SLOW = ("head_tags", "head_embedding")
"""They differ from the classifier in a few lines of the head, which have tests of their own."""
PLANTED = "prefix_gemma"
"""The family that takes the least time; its norms have an epsilon of 1e-6."""
UP = "start: layer_0/ffn/up/kernel"


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    return golden_runs.families(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def programs():
    return {}


NAMES = sorted(path.stem for path in golden_runs.FOLDER.glob("*.json"))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in NAMES]
)
def test_no_figure_of_a_run_has_moved(families, programs, name):
    now = golden_runs.figures(families[name], programs)
    found = golden_runs.compared(golden_runs.recorded(name), now)
    assert not found, golden_runs.message(name, found)


def test_every_family_is_recorded(families):
    assert NAMES == sorted(families)


def with_epsilon(family, monkeypatch):
    norm = dataclasses.replace(family.model.norm, epsilon=1e-5)
    return changed(family, model=dataclasses.replace(family.model, norm=norm))


def with_another_start(family, monkeypatch):
    before = initial._kernel_deviation

    def planted(model, path, shape):
        factor = 1.001 if path[-2:] == ("up", "kernel") else 1.0
        return factor * before(model, path, shape)

    monkeypatch.setattr(initial, "_kernel_deviation", planted)
    return family


def with_another_seed(family, monkeypatch):
    return changed(family, seed=1)


def with_another_constant(family, monkeypatch):
    rule = dataclasses.replace(family.run.optimizer.rule, beta2=0.951)
    return changed(family, optimizer=dataclasses.replace(family.run.optimizer, rule=rule))


def with_batches_in_another_order(family, monkeypatch):
    before = data.TrainingBatches.__getitem__
    order = {1: 2, 2: 1}
    monkeypatch.setattr(
        data.TrainingBatches, "__getitem__", lambda rows, t: before(rows, order.get(t, t))
    )
    return family


def changed(family, **changes):
    run = dataclasses.replace(family.run, **changes)
    return family._replace(run=run, model=run.model)


@pytest.mark.parametrize(
    ("plant", "first", "last"),
    [
        (with_epsilon, "update 1: norm of the gradient", "validation: nll"),
        # A thousandth of what one of many matrices starts with: seen there alone.
        (with_another_start, UP, UP),
        (with_another_seed, "batch 1: checksum", "validation: nll"),
        (with_another_constant, "update 4: norm of the gradient", "validation: nll"),
        (with_batches_in_another_order, "batch 2: checksum", "validation: nll"),
    ],
)
def test_a_small_change_is_seen_and_named(families, programs, monkeypatch, plant, first, last):
    planted = plant(families[PLANTED], monkeypatch)
    now = golden_runs.figures(planted, {} if plant is with_another_start else programs)
    found = golden_runs.compared(golden_runs.recorded(PLANTED), now)
    assert (found[0].name, found[-1].name) == (first, last)
    said = golden_runs.message(PLANTED, found)
    assert f"'{first}'" in said and str(found[0]) in said
    assert golden_runs.COMMAND in said and '"Changes to results"' in said


def test_what_moved_is_said_with_figures():
    was = {"batch 1: checksum": 7, "update 1: loss": 2.0, "gone": 1.0, "start: bias": 0.0}
    now = {"batch 1: checksum": 8, "update 1: loss": 2.001, "start: bias": 1e-9, "new": 3.0}
    assert [str(pair) for pair in golden_runs.compared(was, now)] == [
        "batch 1: checksum: was 7, is 8 (+1.43e-01 of it)",
        "update 1: loss: was 2.0, is 2.001 (+5.00e-04 of it)",
        "start: bias: was 0.0, is 1e-09 (+inf of it)",
        "new: was not there, is 3.0",
        "gone: was 1.0, is gone",
    ]
    assert golden_runs.compared({"loss": 1.0}, {"loss": float("nan")})
    assert not golden_runs.compared({"loss": 1.0}, {"loss": 1.0 + 5e-6})


def test_the_command_records_and_says_what_moved(families, programs, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(golden_runs, "FOLDER", tmp_path)
    monkeypatch.setattr(golden_runs, "families", lambda _: {PLANTED: families[PLANTED]})
    figures = golden_runs.figures
    monkeypatch.setattr(golden_runs, "figures", lambda family, _: figures(family, programs))

    def lines():
        golden_runs.main()
        return capsys.readouterr().out.splitlines()

    path = tmp_path / f"{PLANTED}.json"
    first = lines()
    recorded = json.loads(path.read_text())
    assert len(first) == len(recorded)
    path.write_text(json.dumps(recorded | {"update 2: loss": 5.0}))
    (one,) = lines()
    assert one.startswith(f"{PLANTED}: update 2: loss: was 5.0, is ")
    assert lines() == [f"{PLANTED}: nothing moved"]
    assert json.loads(path.read_text()) == recorded
