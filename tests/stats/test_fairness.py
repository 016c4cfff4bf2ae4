"""Tests for jtransformer.stats.fairness: why a comparison is not one of like with like."""

import pytest
from sweep_fixture import RATES, noisy_losses, runs_of, scaled, write_sweep

from jtransformer.records import load_sweep
from jtransformer.stats import at_scales, unfair_reasons

LOW, MIDDLE, HIGH = RATES
LOSSES = noisy_losses({"pre-gelu": 0.0, "pre-swiglu": -0.03, "post-gelu": 0.03})


@pytest.fixture
def record(tmp_path):
    return load_sweep(write_sweep(tmp_path, LOSSES))


def test_null_like_with_like(record):
    assert unfair_reasons(record) == {"pre-gelu": [], "pre-swiglu": [], "post-gelu": []}


@pytest.mark.parametrize("which", ["first_batch", "last_batch"])
def test_other_batches_are_a_reason_for_their_arm_alone(record, which):
    runs_of(record, "post-gelu")[1].status["pairing"][which] = "another"
    assert unfair_reasons(record) == {
        "pre-gelu": [],
        "pre-swiglu": [],
        "post-gelu": ["the batches of seed 1 differ from those of pre-gelu"],
    }


def test_a_baseline_that_contradicts_itself_spoils_every_comparison(record):
    runs_of(record, "pre-gelu")[0].status["pairing"]["last_batch"] = "another"
    reasons = unfair_reasons(record)
    assert reasons["pre-gelu"] == ["the batches of seed 0 differ between its own runs"]
    assert reasons["post-gelu"] == ["the batches of seed 0 differ from those of pre-gelu"]


def test_batches_made_otherwise_are_not_compared(record):
    for run in runs_of(record, "post-gelu"):
        run.status["pairing"] |= {"sampling": "another", "first_batch": "another"}
    assert unfair_reasons(record)["post-gelu"] == []


def test_other_initial_values_are_a_reason(record):
    for run in runs_of(record, "post-gelu"):
        run.status["pairing"]["initial"]["embedding/table"]["hash"] = "another"
    (reason,) = unfair_reasons(record)["post-gelu"]
    assert reason == (
        "the initial values of embedding/table (seed 0), embedding/table (seed 1), "
        "embedding/table (seed 2) differ from those of pre-gelu"
    )
    for run in runs_of(record, "post-gelu"):
        run.status["pairing"]["initial"]["layer_0/ffn/w_in"]["hash"] = "another"
    assert "(seed 2) and 3 more differ" in unfair_reasons(record)["post-gelu"][0]


def test_other_shapes_are_not_compared(record):
    for run in runs_of(record, "post-gelu"):
        run.status["pairing"]["initial"]["embedding/table"] |= {"hash": "another", "shape": [1]}
    assert unfair_reasons(record)["post-gelu"] == []


def halve(runs):
    for run in runs:
        run.status["result"]["tokens"] //= 2


def test_other_tokens_are_a_reason(record):
    halve(runs_of(record, "post-gelu"))
    assert unfair_reasons(record)["post-gelu"] == [
        "it was trained for 400 steps and 102,400 tokens, pre-gelu for 400 steps and 204,800 tokens"
    ]


def test_what_was_not_chosen_has_no_say(record):
    halve(runs_of(record, "post-gelu", HIGH))
    assert unfair_reasons(record)["post-gelu"] == []


@pytest.mark.parametrize("who", ["pre-gelu", "post-gelu"])
def test_declared_early_stopping_is_no_reason(record, who):
    halve(runs_of(record, "post-gelu"))
    stopping = {"kind": "patience", "patience": {"evaluations": 3}}
    for arm in record.manifest["arms"]:
        if arm["name"] == who:
            arm["spec"] = {"training": {"early_stopping": stopping}}
    assert unfair_reasons(record)["post-gelu"] == []
    for arm in record.manifest["arms"]:
        arm["spec"] = {"training": {"early_stopping": {"kind": "none"}}}
    assert len(unfair_reasons(record)["post-gelu"]) == 1


@pytest.mark.parametrize("path", ["training.steps", "training.batch_size", "data.length"])
def test_what_is_asked_is_no_reason(record, path):
    """Alone: beside another change it is no longer one of like with like."""
    halve(runs_of(record, "post-gelu"))
    for arm, value in zip(record.manifest["arms"], (8, 8, 4), strict=True):
        arm["factors"] = {"model.ffn": "gelu", path: value}
    assert unfair_reasons(record)["post-gelu"] == []
    record.manifest["arms"][2]["factors"]["model.ffn"] = "relu"
    assert len(unfair_reasons(record)["post-gelu"]) == 1
    record.manifest["arms"][2]["factors"] = {"model.ffn": "gelu", path: 8}
    assert len(unfair_reasons(record)["post-gelu"]) == 1, "the same value in both"


def test_another_number_of_settings_is_a_reason(tmp_path):
    losses = {key: loss for key, loss in LOSSES.items() if key[0] != "post-gelu" or key[1] != LOW}
    reasons = unfair_reasons(load_sweep(write_sweep(tmp_path, losses)))
    assert reasons["post-gelu"] == ["it was tuned over 2 settings, pre-gelu over 3"]


@pytest.mark.parametrize("outcome", ["pending", "running", "failed", "diverged"])
def test_runs_that_are_not_finished_give_no_reason(tmp_path, outcome):
    losses = LOSSES | {key: outcome for key in LOSSES if key[0] == "post-gelu"}
    assert unfair_reasons(load_sweep(write_sweep(tmp_path, losses)))["post-gelu"] == []
    everything = load_sweep(write_sweep(tmp_path / "all", dict.fromkeys(LOSSES, outcome)))
    assert not any(unfair_reasons(everything).values())


def test_every_scale_has_a_baseline_of_its_own(tmp_path):
    effects = {"small-pre": 0.0, "small-gate": 0.0, "large-pre": -0.5, "large-gate": -0.5}
    record = load_sweep(write_sweep(tmp_path, noisy_losses(effects), **scaled(effects)))
    halve([run for run in record.runs if run.cell["arm"].startswith("large")])
    assert not any(unfair_reasons(record).values())
    halve(runs_of(record, "large-gate"))
    reasons = unfair_reasons(record)
    assert [name for name, found in reasons.items() if found] == ["large-gate"]
    small, large = (unfair_reasons(part) for part in at_scales(record))
    assert small | large == reasons
