"""Tests for jtransformer.report.equality: what a reader is told of arms that are not equal."""

import re

import pytest
from report_pages import page_of_record
from sweep_fixture import noisy_losses, write_sweep

from jtransformer.records import load_sweep, read_json, write_json
from jtransformer.report import caveats, equality
from jtransformer.report.markdown import results_markdown
from jtransformer.stats import analyse

LOSSES = noisy_losses({"pre-gelu": 0.0, "pre-swiglu": -0.03})
SENTENCE = (
    "Nothing is held equal. Against the baseline, pre-swiglu has +27.59 % parameters, "
    "+21.50 % training FLOPs/token and −75.00 % KV bytes/token."
)
UNEQUAL = dict(
    parameters=0.2759,
    non_embedding_parameters=0.33,
    training_flops=0.215,
    inference_flops=0.00001,
    kv_bytes=-0.75,
)
MATCH = dict(equal="parameters", by="model.ffn_width", multiple_of=2, tolerance=0.01)


def texts(workdir, match, **mismatches):
    """The record, its analysis and its page, of a sweep whose second arm is so unequal."""
    manifest = write_sweep(workdir, LOSSES, match=match) / "sweep.json"
    written = read_json(manifest)
    written["arms"][0]["mismatches"] = dict.fromkeys(UNEQUAL, 0.0)
    written["arms"][1]["mismatches"] = dict.fromkeys(UNEQUAL, 0.0) | mismatches
    written["arms"][1]["residual"] = mismatches.get("parameters", 0.0)
    write_json(manifest, written)
    record = load_sweep(workdir)
    analysis = analyse(record)
    return record, analysis, page_of_record(record)


def red(text):
    """What the page writes in red."""
    body = text.partition("</style>")[2]
    return re.findall(r'<(?:td|li) class="unequal">(.*?)</', body)


@pytest.mark.parametrize("match", [None, {"equal": "nothing"}])
def test_what_nothing_holds_equal_is_said_in_red(tmp_path, match):
    _, analysis, text = texts(tmp_path, match, **UNEQUAL)
    assert caveats(analysis)[0] == SENTENCE
    # The sentence, the column of the arms, and the table; what is written as 0 % is not red.
    figures = ["+27.59 %", "+33.00 %", "+21.50 %", "−75.00 %"]
    assert red(text) == [SENTENCE, "+27.59 %", *figures]
    assert ".unequal { color: var(--unequal)" in text and "--unequal: #c00018" in text
    assert "Nothing is held equal across arms." in text and "what is not equal is red." in text
    written = results_markdown(analysis)
    assert f"- {SENTENCE}" in written
    assert "| pre-swiglu | +27.59 % | +33.00 % | +21.50 % | +0.00 % | −75.00 % |" in written


def test_equal_arms_are_not_called_unequal(tmp_path):
    _, analysis, text = texts(tmp_path, None, kv_bytes=None)
    assert caveats(analysis) == [] and red(text) == []
    assert "in everything that can be held equal." in text and "is red" not in text
    assert "| pre-swiglu | +0.00 % | +0.00 % | +0.00 % | +0.00 % | — |" in results_markdown(
        analysis
    )


def test_equal_parameters_do_not_hide_unequal_operations(tmp_path):
    mismatches = dict(UNEQUAL, parameters=-0.0027, non_embedding_parameters=0.0101)
    _, analysis, text = texts(tmp_path, MATCH, **mismatches)
    assert caveats(analysis) == []
    assert red(text) == ["+1.01 %", "+21.50 %", "−75.00 %"]
    assert "what is beyond the tolerance is red." in text
    assert "Mismatch is that of parameters to the baseline." in text


def test_the_rule_names_quantity_knobs_and_tolerance(tmp_path):
    several = dict(
        equal="training_flops",
        by=["model.width", "model.layers"],
        multiple_of=[8, 1],
        tolerance=0.02,
    )
    for match, sentence in (
        (MATCH, "Arms are matched in parameters by model.ffn_width in multiples of 2, within 1 %."),
        (
            several,
            "Arms are matched in training FLOPs/token by model.width, else by model.layers in "
            "multiples of 8 and 1, within 2 %.",
        ),
    ):
        _, analysis, text = texts(tmp_path / match["equal"], match)
        assert equality.rule(analysis) == sentence and f">{sentence}<" in text
    assert "Mismatch is that of training FLOPs/token to the baseline." in text


def test_sweeps_of_earlier_versions_have_the_mismatch_of_parameters(tmp_path):
    manifest = write_sweep(tmp_path, LOSSES) / "sweep.json"
    written = read_json(manifest)
    for arm in written["arms"]:
        del arm["mismatches"]
    write_json(manifest, written)
    record = load_sweep(tmp_path)
    table = equality.mismatch_table(analyse(record))
    assert [column.cells[1] for column in table] == ["pre-swiglu", "−0.27 %", "—", "—", "—", "—"]
