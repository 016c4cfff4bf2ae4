"""Tests for jtransformer.report.power: its words, its table and its figure."""

import json

import pytest
from sweep_fixture import RATES, noisy_losses, write_sweep

from jtransformer.records import load_sweep
from jtransformer.report import power, style
from jtransformer.report.sections import find, sections
from jtransformer.stats import analyse

EFFECTS = {"pre-gelu": 0.0, "<b>x</b>": 0.001, "pre-swiglu": -0.03, "post-gelu": 0.03}


@pytest.fixture
def section_of(tmp_path):
    def write(losses, **manifest):
        record = load_sweep(write_sweep(tmp_path, losses, **manifest))
        analysis = analyse(record)
        found = find(record, analysis).power
        return power.section(found, analysis, style.PAPER), found

    return write


def test_the_sentences_have_the_figures(section_of):
    section, found = section_of(noisy_losses(EFFECTS, seeds=4))
    first, noise, caution = section.paragraphs
    assert first == (
        f"With 4 seeds, a true difference of {found.curve[4]:.4f} nats/byte is found with 80 % "
        "power by a two-sided test at level 0.05 / 3; a smaller one is often missed."
    )
    assert f"the loss of pre-gelu has an sd of {found.floor.sd:.4f} (95 % interval " in noise
    assert "nats/byte, over 4 seeds. Once what a seed does" in noise
    residual = found.residual
    assert f"{residual.sd:.4f} (95 % interval {residual.low:.4f} to {residual.high:.4f})" in noise
    assert "on 9 degrees of freedom" in noise
    assert "planning another sweep" in caution


def test_the_table_has_a_row_for_each_compared_arm(section_of):
    section, found = section_of(noisy_losses(EFFECTS, seeds=4))
    (table,) = section.tables
    columns = {column.heading: column.cells for column in table.columns}
    assert columns["arm"] == ["<b>x</b>", "pre-swiglu", "post-gelu"]
    assert columns["smallest resolvable"] == [f"{found.curve[4]:.4f}"] * 3
    seeds = columns["seeds that resolve the observed one"]
    assert seeds == [str(need.seeds) for need in found.needs] and seeds[1] == "2"


def test_a_difference_that_no_seeds_resolve(section_of):
    losses = noisy_losses(EFFECTS)
    base = sum(losses["pre-gelu", RATES[1], seed] for seed in range(3)) / 3
    shift = sum(losses["<b>x</b>", RATES[1], seed] for seed in range(3)) / 3 - base
    for seed in range(3):
        losses["<b>x</b>", RATES[1], seed] -= shift
    section, found = section_of(losses, verdict={"margin": 1e-6})
    assert abs(found.needs[0].difference) < 1e-12 and found.needs[0].seeds is None
    assert section.tables[0].columns[-1].cells[0] == "more than 1,000"
    assert (
        "declared margin, 1e-06 nats/byte, is found with more than 1,000 seeds."
        in (section.paragraphs[2])
    )
    json.dumps(section.figures[0].spec, allow_nan=False)


def test_unfinished_and_unbalanced_is_said(section_of):
    losses = noisy_losses(EFFECTS, seeds=4)
    losses |= {("<b>x</b>", rate, 3): "pending" for rate in RATES}
    section, found = section_of(losses)
    sizes = [need.resolvable for need in found.needs]
    size = f"{min(sizes):.4f} to {max(sizes):.4f} (by arm)"
    begin = f"Provisional, not all runs are finished: with 4 seeds, a true difference of {size} "
    assert section.paragraphs[0].startswith(begin)


def test_one_arm_has_a_floor_and_no_claim(section_of):
    section, _ = section_of(noisy_losses({"pre-gelu": 0.0}))
    assert section.paragraphs[0].startswith("The finished runs leave no noise between arms")
    assert "noise floor" in section.paragraphs[1]
    assert section.tables == section.figures == []


@pytest.mark.parametrize("state", ["pending", "diverged"])
def test_nothing_known_is_no_section(section_of, state):
    assert section_of(dict.fromkeys(noisy_losses(EFFECTS), state))[0] is None


def test_the_figure_draws_curve_band_and_every_arm(section_of):
    section, found = section_of(noisy_losses(EFFECTS, seeds=4))
    (figure,) = section.figures
    text = json.dumps(figure.spec, allow_nan=False)
    assert "NaN" not in text
    curve = figure.table[figure.table["what"] == "resolvable"]
    assert list(curve["seeds"]) == list(found.curve)
    assert list(curve["difference"]) == list(found.curve.values())
    assert (curve["low"] < curve["difference"]).all()
    assert (curve["difference"] < curve["high"]).all()
    marks = figure.table[figure.table["what"] == "observed"]
    assert list(marks["arm"]) == ["<b>x</b>", "pre-swiglu", "post-gelu"]
    assert list(marks["difference"]) == [abs(need.difference) for need in found.needs]
    assert figure.spec["layer"][-1]["encoding"]["color"]["field"] == "arm"


def test_the_section_is_on_the_page(tmp_path):
    record = load_sweep(write_sweep(tmp_path, noisy_losses(EFFECTS)))
    found = sections(find(record, analyse(record)), style.PAGE)
    assert "power" in [section.name for section in found]
