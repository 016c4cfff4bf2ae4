"""Tests for jtransformer.report.audit: the sentence by rule, and the tables behind it."""

import pytest
from sweep_fixture import RATES, noisy_losses, runs_of, scaled, write_sweep

from jtransformer.records import SweepRecord, load_sweep
from jtransformer.report import numbers
from jtransformer.report.audit import FAIR, section
from jtransformer.stats import analyse, analyse_scales, at_scales, audit

LOW, MIDDLE, HIGH = RATES
LOSSES = noisy_losses({"pre-gelu": 0.0, "pre-swiglu": -0.03, "post-relu": 0.03})


@pytest.fixture
def record(tmp_path):
    return load_sweep(write_sweep(tmp_path, LOSSES))


def written(record):
    analysis = analyse(record)
    return section(audit(record, analysis), analysis)


def columns(found, name):
    (table,) = (table for table in found.tables if table.name == name)
    assert len({len(column.cells) for column in table.columns}) == 1
    if table.marks is not None:
        assert {len(row) for row in table.marks} == {len(table.columns)}
        assert len(table.marks) == len(table.columns[0].cells)
    return {column.heading: column.cells for column in table.columns}


def marked(found, name):
    (table,) = (table for table in found.tables if table.name == name)
    return {
        (table.columns[0].cells[i], table.columns[j].heading)
        for i, row in enumerate(table.marks or [])
        for j, mark in enumerate(row)
        if mark
    }


def test_null_a_fair_sweep_is_called_fair(record):
    found = written(record)
    assert found.name == "audit" and found.paragraphs[0] == f"{FAIR}."
    text = "\n".join(found.paragraphs)
    for phrase in (
        "the first and the last batch of all 27 finished runs are equal.",
        "Same start: the 2 parameters that arms share",
        "All runs have the same versions and the same device.",
        "Budget of a finished run: 400 steps, 204,800 tokens.",
        "Arms are matched in parameters by model.ffn_width",
        "is the plain negative log-likelihood",
    ):
        assert phrase in text, phrase
    assert marked(found, "audit_pairing") == {("post-relu", "changed")}


def reasons(record):
    return written(record).paragraphs[0]


def test_each_reason_is_in_the_sentence(record):
    runs_of(record, "post-relu")[0].status["pairing"]["last_batch"] = "another"
    assert reasons(record) == (
        "Found what may make the comparison unfair: post-relu: the batches of seed 0 differ from "
        "those of pre-gelu."
    )
    assert "Batches differ between runs of seed 0." in written(record).paragraphs
    assert ("post-relu", "runs with equal batches") in marked(written(record), "audit_pairing")
    assert columns(written(record), "audit_pairing")["runs with equal batches"][2] == "8 of 9"


def test_an_unequal_start_is_a_reason(record):
    for run in runs_of(record, "pre-swiglu"):
        run.status["pairing"]["initial"]["embedding/table"]["hash"] = "another"
    assert "pre-swiglu: the initial values of embedding/table (seed 0)" in reasons(record)
    found = written(record)
    assert any(text.startswith("Initial values differ although") for text in found.paragraphs)
    assert columns(found, "audit_pairing")["equal initial values"] == ["6 of 6", "0 of 3", "6 of 6"]
    assert ("pre-swiglu", "equal initial values") in marked(found, "audit_pairing")


def test_a_mismatch_beyond_the_tolerance_is_a_reason(record):
    record.manifest["arms"][1]["residual"] = 0.02
    assert reasons(record).endswith("unfair: pre-swiglu is off by +2.00 % in parameters.")
    record.manifest["arms"][1]["residual"] = 0.009
    assert reasons(record) == f"{FAIR}."
    record.manifest["match"] = {"equal": "nothing"}
    assert reasons(record).endswith("unfair: pre-swiglu is off by +0.90 % in parameters.")


def test_an_edge_is_a_reason_once_all_is_finished(tmp_path):
    losses = LOSSES | {("pre-swiglu", HIGH, seed): 1.9 for seed in range(3)}
    found = written(load_sweep(write_sweep(tmp_path, losses)))
    assert found.paragraphs[0].endswith(
        "pre-swiglu: its best learning rate, 0.016, is the highest that was tried."
    )
    assert columns(found, "audit_tuning")["best at the edge"] == ["—", "learning rate", "—"]
    assert marked(found, "audit_tuning") == {("pre-swiglu", "best at the edge")}
    losses["post-relu", LOW, 0] = "pending"
    half = written(load_sweep(write_sweep(tmp_path / "half", losses)))
    assert "is the highest" in half.paragraphs[0], "an arm that is finished"


def test_an_environment_of_its_own_is_a_reason(record):
    for run in runs_of(record, "post-relu"):
        run.environment["jax"] = "0.12.0"
        run.environment["device_kind"] = "H200"
    runs_of(record, "pre-gelu")[0].environment["numpy"] = "1"
    found = written(record)
    assert found.paragraphs[0].endswith(
        "post-relu: its runs and those of pre-gelu have no jax and device_kind in common."
    )
    table = columns(found, "audit_environment")
    rows = list(zip(*table.values(), strict=True))
    assert ("jax", "0.12.0", "all of post-relu") in rows
    assert ("numpy", "1", "1 of 9 of pre-gelu") in rows
    assert any("Not compared with pre-gelu: post-relu." in text for text in found.paragraphs)
    assert columns(found, "audit_costs")["tokens/s"] == ["6.5e+04", "6.5e+04", "—"]


def test_runs_that_ended_early_are_a_reason(record):
    for run, step in zip(runs_of(record, "post-relu"), (1300, 1200), strict=False):
        run.status["result"]["stopped_early_at"] = step
    assert reasons(record).endswith(
        "runs ended early: post-relu (2 runs, after 1,200 to 1,300 steps)."
    )
    assert columns(written(record), "audit_pairing")["ended early"] == [
        "0 of 9",
        "0 of 9",
        "2 of 9",
    ]


def test_joint_changes_are_named(record):
    found = written(record)
    (sentence,) = (text for text in found.paragraphs if "joint change" in text)
    assert sentence.startswith("post-relu is a joint change: more than one setting")
    changed = columns(found, "audit_pairing")["changed"]
    # In this fixture the baseline has a width that was solved for as well.
    assert changed == [
        "(ffn_width = 256)",
        "ffn gelu → swiglu, (ffn_width = 170)",
        "joint change: norm_placement pre → post, ffn gelu → relu, (ffn_width = 256)",
    ]


@pytest.mark.parametrize(
    "smoothed, sentence",
    [
        ((0, 0, 0), "is shown nowhere."),
        ((0.1, 0.1, 0.1), "All arms minimise it with label smoothing 0.1."),
        (
            (0, 0.1, 0),
            "It is minimised differently: pre-swiglu with label smoothing 0.1, the other arms "
            "without. An arm is judged by the plain loss, which is not the one that it minimised.",
        ),
    ],
)
def test_smoothed_losses_are_said_and_never_shown(record, smoothed, sentence):
    for arm, value in zip(record.manifest["arms"], smoothed, strict=True):
        arm["spec"] = {"loss": {"label_smoothing": value, "z_loss": 0.0}}
    for run in record.runs:
        run.status["result"]["train_loss"] = 99.5
    found = written(record)
    (text,) = (text for text in found.paragraphs if "plain negative log-likelihood" in text)
    assert text.endswith(sentence)
    assert "99.5" not in repr(found)


def test_costs_are_absolute(record):
    assert "KV bytes/token" not in columns(written(record), "audit_costs"), "not recorded"
    record.manifest["arms"][1]["quantities"] = {"kv_bytes": 2048.0, "inference_flops": 1234567}
    table = columns(written(record), "audit_costs")
    assert table["KV bytes/token"] == ["—", "2,048", "—"]
    assert table["inference FLOPs/token"][1] == "1,234,567"
    assert table["training FLOPs/token"][0] == "695,808" and table["steps"] == ["400"] * 3
    assert table["tokens"] == ["204,800"] * 3 and table["wall time (s)"] == ["4.1"] * 3


def test_components_mismatches_and_trials_are_there(record):
    found = written(record)
    assert columns(found, "audit_components")["solved for"][1] == "ffn_width = 170"
    assert columns(found, "audit_mismatches")["parameters"][1] == "−0.27 %"
    trials = columns(found, "audit_tuning")
    assert trials["settings tried"] == ["3"] * 3 and trials["runs"] == ["9"] * 3


def test_nothing_checked_is_not_called_fair(tmp_path):
    found = written(load_sweep(write_sweep(tmp_path, dict.fromkeys(LOSSES, "pending"))))
    assert found.paragraphs[0] == "Nothing could be checked yet: no run has finished."
    assert FAIR not in "\n".join(found.paragraphs)
    assert columns(found, "audit_costs")["steps"] == [numbers.NOTHING] * 3


def test_a_half_finished_sweep_is_provisional(tmp_path):
    losses = LOSSES | {key: "pending" for key in LOSSES if key[2] == 2}
    found = written(load_sweep(write_sweep(tmp_path, losses)))
    assert found.paragraphs[0] == (
        "So far, over 18 of 27 runs: nothing found that would make the comparison unfair."
    )


def test_one_arm_is_compared_with_nothing(tmp_path):
    losses = {key: loss for key, loss in LOSSES.items() if key[0] == "pre-gelu"}
    found = written(load_sweep(write_sweep(tmp_path, losses)))
    assert found.paragraphs[0].startswith("There is one arm, so there is no comparison")


@pytest.mark.parametrize("outcome", ["diverged", "failed", "running"])
def test_no_figure_is_not_a_number(tmp_path, outcome):
    found = written(load_sweep(write_sweep(tmp_path, dict.fromkeys(LOSSES, outcome))))
    text = repr(found)
    assert "nan" not in text.replace("names", "") and "None" not in text.replace("marks=None", "")


def test_scales_are_audited_apart(tmp_path):
    effects = {"small-pre": 0.0, "small-gate": 0.0, "large-pre": -0.5, "large-gate": -0.5}
    record: SweepRecord = load_sweep(
        write_sweep(tmp_path, noisy_losses(effects), **scaled(effects))
    )
    runs_of(record, "large-gate")[0].status["pairing"]["first_batch"] = "another"
    first, second = (
        section(audit(part, analysis), analysis).paragraphs[0]
        for part, analysis in zip(at_scales(record), analyse_scales(record), strict=True)
    )
    assert first == f"{FAIR}." and "large-gate: the batches of seed 0 differ" in second
