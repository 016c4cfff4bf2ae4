"""Tests for jtransformer.report.effects: what is said of factors, and what is drawn."""

import itertools
import re

import pytest
import vl_convert
from report_pages import cells
from sweep_fixture import RATES, noisy_losses, write_sweep

from jtransformer.records import SweepRecord, load_sweep
from jtransformer.report import effects, style
from jtransformer.stats import analyse, factorial

ADDITIVE = {
    "pre-relu": 0.0, "pre-gelu": -0.01, "pre-swiglu": -0.03,
    "post-relu": 0.03, "post-gelu": 0.02, "post-swiglu": 0.0,
}  # fmt: skip
JOINT = ADDITIVE | {"post-swiglu": 0.09}


def section_of(record, theme=style.PAPER):
    analysis = analyse(record)
    return effects.section(factorial(record, analysis), analysis, theme)


@pytest.fixture
def section(tmp_path_factory):
    def write(losses):
        return section_of(load_sweep(write_sweep(tmp_path_factory.mktemp("sweep"), losses)))

    return write


def test_additive_factors_are_told_and_no_interaction_is(section):
    found = section(noisy_losses(ADDITIVE))
    norm, ffn, none, method = found.paragraphs
    assert re.match(
        r"norm_placement, F\(1, 10\) = \d+\.\d\d, p = \S+ \(Holm, 3 terms\): its levels differ; "
        r"post minus pre is \+0\.0\d{3} ± 0\.0\d{3} nats/byte\.$",
        norm,
    )
    assert re.match(r"ffn, F\(2, 10\) = .* against the mean of all levels, swiglu −0\.0", ffn)
    assert none.startswith("No interaction can be told, which does not show that there is none: "
                           "norm_placement × ffn, F(2, 10) = ")  # fmt: skip
    assert "type III" in method and "18 runs" in method and "all 3 terms" in method
    assert "average" not in norm + ffn


def test_an_interaction_turns_main_effects_into_averages(section):
    found = section(noisy_losses(JOINT))
    text = " ".join(found.paragraphs)
    assert "the effect of norm_placement depends on ffn, and the other way round." in text
    assert text.count("That is an average: its effect depends on the level of another") == 2
    assert cells(found.tables[0])["finding"] == ["levels differ"] * 2 + ["depend on each other"]


def test_tables_hold_every_term_and_every_level(section):
    terms, levels = section(noisy_losses(ADDITIVE)).tables
    assert cells(terms)["term"] == ["norm_placement", "ffn", "norm_placement × ffn"]
    assert cells(terms)["df"] == ["1", "2", "2"]
    shown = cells(levels)
    assert len(shown["level"]) == 2 + 3 + 6 and shown["level"][5] == "pre, relu"
    assert all(re.fullmatch(r"[+−]\d\.\d{4} ± 0\.0\d{3}", c) for c in shown["effect (nats/byte)"])
    assert len({t.name for t in (terms, levels)}) == 2
    assert all(re.fullmatch(r"\w+", t.name) for t in (terms, levels))


def test_figures_draw_levels_with_intervals_and_cells_as_lines(section):
    main, cross = section(noisy_losses(ADDITIVE)).figures
    assert (main.name, cross.name) == ("main_effects", "interaction_norm_placement_ffn")
    assert list(main.table["level"]) == ["pre", "post", "relu", "gelu", "swiglu"]
    assert main.table["low"].notna().all() and len(cross.table) == 6
    for figure, labels in ((main, ["ffn: swiglu"]), (cross, ["swiglu", "post", "pre"])):
        svg = vl_convert.vegalite_to_svg(figure.spec)
        assert svg.startswith("<svg") and all(f">{label}</text>" in svg for label in labels)
    # The factor with fewer levels makes the lines.
    assert set(cross.spec["layer"][0]["encoding"]["color"]["scale"]["domain"]) == {"pre", "post"}


def test_a_diverged_arm_is_named_and_where_the_rest_was_estimated(section):
    losses = noisy_losses(ADDITIVE) | {("post-swiglu", r, 0): "diverged" for r in RATES}
    found = section(losses)
    text = " ".join(found.paragraphs)
    assert "nor guessed: post-swiglu diverges in 1 of 3 runs." in text
    assert "(Estimated where ffn = relu; gelu: elsewhere a level has no loss.)" in text
    assert "(Estimated where norm_placement = pre: elsewhere a level has no loss.)" in text
    assert "(That part of it which the cells with a loss still show.)" in text
    square = {k: v for k, v in losses.items() if not k[0].endswith("gelu")}
    found = section(square)
    assert "Cannot be estimated for want of cells: norm_placement × ffn." in " ".join(
        found.paragraphs
    )
    assert cells(found.tables[0])["finding"][2] == "cannot be estimated"
    assert cells(found.tables[0])["F"][2] == "—"


def test_a_lost_level_and_missing_seeds_are_said(section):
    losses = noisy_losses(ADDITIVE)
    for arm in ("pre-swiglu", "post-swiglu"):
        losses |= {(arm, rate, seed): "diverged" for rate in RATES for seed in range(3)}
    losses |= {("pre-relu", rate, 2): "pending" for rate in RATES}
    text = " ".join(section(losses).paragraphs)
    assert "Nothing is said of swiglu of ffn, where no arm has a loss." in text
    assert "Seeds are missing of pre-relu (2): least squares compare" in text
    assert "Provisional, since not finished: pre-relu." in text


def test_one_seed_claims_nothing_and_still_shows_figures(section):
    found = section({k: v for k, v in noisy_losses(ADDITIVE).items() if k[2] == 0})
    assert found.paragraphs[0] == "For no factor is anything claimed: one seed gives no interval."
    assert [t.name for t in found.tables] == ["effects_levels"] and len(found.figures) == 2
    assert not any("±" in cell for cell in cells(found.tables[0])["effect (nats/byte)"])
    for figure in found.figures:
        assert "NaN" not in vl_convert.vegalite_to_svg(figure.spec)


def test_all_diverged_is_a_sentence_and_nothing_begun_is_no_section(section):
    losses = noisy_losses(ADDITIVE)
    found = section(dict.fromkeys(losses, "diverged"))
    assert found.paragraphs[0].startswith("Nothing can be said of the factors")
    assert found.tables == found.figures == []
    assert section(dict.fromkeys(losses, "pending")) is None


def test_settings_set_together_are_called_a_joint_change(tmp_path):
    record = load_sweep(write_sweep(tmp_path, noisy_losses(ADDITIVE)))
    for arm in record.manifest["arms"]:
        arm["factors"]["model.ffn_bias"] = arm["factors"]["model.ffn"] == "gelu"
    names = {"model.norm_placement": [], "model.ffn, model.ffn_bias": []}
    found = section_of(SweepRecord(record.manifest | {"scientific": names}, record.runs))
    (said,) = [text for text in found.paragraphs if "joint change" in text]
    assert said.startswith("ffn, ffn_bias, F(2, 10)")
    assert "model.ffn and model.ffn_bias are set together: a joint change of several" in said
    assert found.figures[1].name == "interaction_norm_placement_ffn_ffn_bias"


def test_three_factors_are_drawn_in_pairs(tmp_path):
    cells_of = itertools.product(("pre", "post"), ("relu", "gelu"), "12")
    effects_of = {f"{p}-{f}{w}": 0.01 * len(p + f) for p, f, w in cells_of}
    record = load_sweep(write_sweep(tmp_path, noisy_losses(effects_of)))
    for arm in record.manifest["arms"]:
        ffn = arm["factors"]["model.ffn"]
        arm["factors"] |= {"model.ffn": ffn[:-1], "model.width": int(ffn[-1])}
    names = dict.fromkeys(("model.norm_placement", "model.ffn", "model.width"))
    found = section_of(SweepRecord(record.manifest | {"scientific": names}, record.runs))
    assert [f.name for f in found.figures[1:]] == [
        "interaction_norm_placement_ffn",
        "interaction_norm_placement_width",
        "interaction_ffn_width",
    ]
    assert "Averaged over the levels of width with equal weights." in found.figures[1].caption
    assert len(cells(found.tables[0])["term"]) == 7 and "(Holm, 7 terms)" in found.paragraphs[0]


def test_an_unfair_comparison_is_said_where_factors_are_judged(section, tmp_path):
    record = load_sweep(write_sweep(tmp_path / "unfair", noisy_losses(ADDITIVE)))
    for run in record.runs:
        if run.cell["arm"] == "post-relu":
            run.status["pairing"]["first_batch"] = "another"
    text = " ".join(section_of(record).paragraphs)
    assert "Not a fair comparison, and still in the model: post-relu" in text


def test_of_many_factors_what_interacts_is_drawn_and_listed(tmp_path):
    """Pairs and cells multiply with the factors: a page has room for those that say something."""
    cells_of = list(itertools.product("ab", repeat=5))
    effects_of = {f"{''.join(c)}-": 0.2 * (c[:2] == ("b", "b")) for c in cells_of}
    losses = {k: v for k, v in noisy_losses(effects_of, seeds=2).items() if k[1] == RATES[1]}
    record = load_sweep(write_sweep(tmp_path, losses))
    names = [f"model.{letter}" for letter in "vwxyz"]
    for arm, cell in zip(record.manifest["arms"], cells_of, strict=True):
        arm["factors"] = dict(zip(names, cell, strict=True))
    manifest = record.manifest | {"scientific": dict.fromkeys(names)}
    found = section_of(SweepRecord(manifest, record.runs))
    assert [f.name for f in found.figures] == ["main_effects", "interaction_v_w"]
    assert set(cells(found.tables[1])["term"]) == {
        *"vwxyz",
        *(" × ".join(pair) for pair in itertools.combinations("vwxyz", 2)),
    }
    assert "--json has all." in found.tables[1].caption
    assert len(cells(found.tables[0])["term"]) == 31
    (untold,) = [text for text in found.paragraphs if text.startswith("No interaction")]
    assert untold.endswith("; and 17 more in the table.")
