"""Tests for jtransformer.stats.audit: what each arm changed, took and had in common."""

import numpy as np
import pytest
from sweep_fixture import RATES, noisy_losses, runs_of, write_sweep

from jtransformer.records import load_sweep
from jtransformer.stats import ABSENT, Change, analyse, audit
from jtransformer.stats.changes import changes

LOW, MIDDLE, HIGH = RATES
LOSSES = noisy_losses({"pre-gelu": 0.0, "pre-swiglu": -0.03, "post-relu": 0.03})
NORM, FFN = "model.norm_placement", "model.ffn"


@pytest.fixture
def record(tmp_path):
    return load_sweep(write_sweep(tmp_path, LOSSES))


def audited(record):
    found = audit(record, analyse(record))
    return found, {arm.name: arm for arm in found.arms}


def test_null_of_a_fair_sweep(record):
    found, arms = audited(record)
    assert found.environment == () and found.apart == {} and found.fairness.runs == 27
    for arm in arms.values():
        assert arm.batches == (9, 0) and arm.values.unequal == 0 and arm.stopped == ()
        assert arm.budgets == ((400, 204800),) and arm.added == {}
        assert arm.timing == (4.1, 65000.0)


def test_more_than_one_setting_is_a_joint_change(record):
    arms = audited(record)[1]
    assert {name: arm.joint for name, arm in arms.items()} == {
        "pre-gelu": False,
        "pre-swiglu": False,
        "post-relu": True,
    }
    assert [c for c in arms["post-relu"].changes if not c.part] == [
        Change(NORM, "post", "pre", part=False),
        Change(FFN, "relu", "gelu", part=False),
    ]


def test_what_was_solved_for_is_listed_and_no_change_of_its_own(record):
    swiglu = audited(record)[1]["pre-swiglu"]
    assert swiglu.changes[-1] == Change("model.ffn_width", 170, ABSENT, part=True)
    assert not swiglu.joint


@pytest.mark.parametrize(
    "own, baseline, matched, counted",
    [
        ({"a.kind": "x", "a.x.rate": 3}, {"a.kind": "y"}, {}, ["a.kind"]),
        ({"a.kind": "x"}, {"a.kind": "y", "a.y.rate": 3}, {}, ["a.kind"]),
        ({"a.kind": "x", "a.x.rate": 3}, {"a.kind": "x", "a.x.rate": 4}, {}, ["a.x.rate"]),
        ({"a.kind": "x", "ab": 3}, {"a.kind": "y", "ab": 4}, {}, ["a.kind", "ab"]),
        ({"b": None}, {"b": 2}, {}, ["b"]),
        ({"b": 1, "w": 8}, {"b": 2, "w": 9}, {"w": 8}, ["b"]),
        ({"b": 1}, {"b": 1}, {}, []),
    ],
)
def test_what_comes_with_another_change_is_not_counted(own, baseline, matched, counted):
    found = changes({"factors": own, "matched": matched}, {"factors": baseline})
    assert [change.path for change in found if not change.part] == counted


def test_runs_are_counted_that_share_their_batches(record):
    for run in runs_of(record, "post-relu", LOW):
        run.status["pairing"]["last_batch"] = "another"
    for run in runs_of(record, "pre-swiglu", HIGH):
        run.status["pairing"]["sampling"] = "another"
    arms = audited(record)[1]
    assert arms["pre-gelu"].batches == (9, 0) and arms["pre-swiglu"].batches == (6, 0)
    assert arms["post-relu"].batches == (9, 3)
    runs_of(record, "pre-gelu")[0].status["pairing"]["last_batch"] = "another"
    # Which of the baseline's runs of seed 0 is right nobody knows.
    assert audited(record)[1]["pre-gelu"].batches == (9, 3)


def test_initial_values_are_counted_that_are_shared(record):
    for run in runs_of(record, "post-relu"):
        run.status["pairing"]["initial"]["embedding/table"]["hash"] = "another"
    arms = audited(record)[1]
    # Three seeds of an embedding, and of a first matrix unless it is a gated one.
    assert arms["pre-gelu"].values == (6, 0) and arms["pre-swiglu"].values == (3, 0)
    assert arms["post-relu"].values == (6, 3)


def test_times_are_medians_at_the_choice(record):
    for run, seconds in zip(runs_of(record, "post-relu", MIDDLE), (5.0, 9.0, 6.0), strict=True):
        run.status["timing"] = {"wall_seconds": seconds, "tokens_per_second": 10 * seconds}
    assert audited(record)[1]["post-relu"].timing == (6.0, 60.0)


@pytest.mark.parametrize("name", ["device_kind", "device_count", "mode", "platform"])
def test_times_of_other_machines_are_not_compared(record, name):
    for run in runs_of(record, "post-relu", HIGH):
        run.environment[name] = "another"
    assert audited(record)[1]["post-relu"].timing is not None, "not at the choice"
    runs_of(record, "post-relu", MIDDLE)[0].environment[name] = "another"
    arms = audited(record)[1]
    assert arms["post-relu"].timing is None and arms["pre-swiglu"].timing is not None
    for run in runs_of(record, "pre-gelu"):
        run.environment[name] = "a third"
    arms = audited(record)[1]
    assert arms["pre-swiglu"].timing is None and arms["pre-gelu"].timing is not None


def test_an_environment_says_whose_values_differ(record):
    for run in runs_of(record, "post-relu"):
        run.environment["jax"] = "0.12.0"
    runs_of(record, "pre-swiglu")[0].environment["device_kind"] = "H200"
    found, _ = audited(record)
    values = {(one.name, one.value): one.runs for one in found.environment}
    assert values == {
        ("jax", "0.10.2"): {"pre-gelu": 9, "pre-swiglu": 9},
        ("jax", "0.12.0"): {"post-relu": 9},
        ("device_kind", "cpu"): {"pre-gelu": 9, "pre-swiglu": 8, "post-relu": 9},
        ("device_kind", "H200"): {"pre-swiglu": 1},
    }
    assert found.environment[0].of == {"pre-gelu": 9, "pre-swiglu": 9, "post-relu": 9}
    assert found.apart == {"post-relu": ("jax",)}


def test_what_is_minimised_comes_from_the_arm_the_choice_and_the_base(record):
    arms = record.manifest["arms"]
    arms[1]["spec"] = {"loss": {"label_smoothing": 0.1, "z_loss": 0.0}}
    arms[2]["spec"] = {"loss": {"label_smoothing": 0.0, "z_loss": 0.0}}
    for run in runs_of(record, "post-relu"):
        run.cell["nuisance"]["loss.z_loss"] = 1e-4
    found = audited(record)[1]
    assert found["pre-gelu"].added == {} and found["pre-swiglu"].added == {"label_smoothing": 0.1}
    assert found["post-relu"].added == {"z_loss": 1e-4}
    record.manifest["base"]["loss"] = {"label_smoothing": 0.2}
    assert audited(record)[1]["pre-gelu"].added == {"label_smoothing": 0.2}


def test_runs_that_ended_early_are_listed(record):
    for run, step in zip(runs_of(record, "post-relu"), (300, 200), strict=False):
        run.status["result"]["stopped_early_at"] = step
    assert audited(record)[1]["post-relu"].stopped == (200, 300)


def test_quantities_are_absolute_where_the_manifest_has_them(record):
    arm = record.manifest["arms"][0]
    old = audited(record)[1]["pre-gelu"].quantities
    assert old["parameters"] == arm["parameters"] and old["kv_bytes"] is None
    assert old["non_embedding_parameters"] == arm["parameters"] - 16384
    assert old["training_flops"] == arm["training_flops_per_token"]
    arm["quantities"] = {"kv_bytes": 512.0, "inference_flops": 1e5}
    new = audited(record)[1]["pre-gelu"].quantities
    assert (new["kv_bytes"], new["inference_flops"]) == (512.0, 1e5)
    assert new["parameters"] == arm["parameters"]


@pytest.mark.parametrize("outcome", ["pending", "running", "failed", "diverged"])
def test_without_a_finished_run_there_is_still_what_the_manifest_says(tmp_path, outcome):
    record = load_sweep(write_sweep(tmp_path, dict.fromkeys(LOSSES, outcome)))
    found, arms = audited(record)
    assert arms["post-relu"].joint and arms["post-relu"].budgets == ()
    assert all(arm.timing is None for arm in arms.values())
    expected = 9 if outcome == "diverged" else 0
    assert {arm.batches.compared for arm in arms.values()} == {expected}
    assert np.isfinite(arms["pre-gelu"].quantities["parameters"]) and found.apart == {}
