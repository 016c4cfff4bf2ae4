"""Tests for what a reader is told of the rule by which a sweep is judged."""

import dataclasses
import json

import pytest
from report_pages import page_of
from sweep_fixture import RATES, noisy_losses, record_of, scaled, write_sweep

from jtransformer.records import load_sweep
from jtransformer.report import answer, caveats, numbers, style, summary_table
from jtransformer.report.forest import forest
from jtransformer.report.markdown import results_markdown
from jtransformer.report.scales import scales_figure, scales_table
from jtransformer.report.sentences import statistics
from jtransformer.report.summary import COLUMNS, check_table
from jtransformer.stats import analyse, analyse_scales

EFFECTS = {"pre-gelu": 0.0, "pre-relu": 0.0005, "pre-swiglu": -0.03, "post-gelu": 0.03}
RULE = dict(margin=None, correction="holm", intervals="unadjusted")


def judged(seeds=3, effects=EFFECTS, before=(), **rule):
    record = record_of(noisy_losses(effects, seeds), verdict=RULE | rule)
    record.manifest["verdict_before"] = list(before)
    return analyse(record)


def headings(table):
    return [column.heading for column in table]


@pytest.mark.parametrize("correction, name", [("holm", "Holm"), ("fdr", "FDR")])
@pytest.mark.parametrize("intervals", ["unadjusted", "simultaneous"])
def test_every_interval_and_p_is_labelled(correction, name, intervals):
    analysis = judged(correction=correction, intervals=intervals)
    main = headings(summary_table(analysis, COLUMNS))
    assert f"difference (nats/byte; ± {intervals})" in main and f"p ({name})" in main
    checks = headings(check_table(analysis))
    assert f"p, {name}" in checks and "simultaneous interval" in checks
    for heading in checks:
        if "difference" in heading or "effect size" in heading:
            assert "unadjusted" in heading
    notes = " ".join(statistics(analysis))
    family = "the 3 arms compared with pre-gelu"
    assert f"p values are {name}-adjusted over {family}" in notes
    label = intervals if intervals == "unadjusted" else f"simultaneous over {family}"
    assert f"Its 95 % interval is {label}." in notes
    figure = forest(analysis, style.PAPER)
    assert f"95 % interval ({label})" in figure.caption
    assert set(figure.table["interval"].dropna()) == {intervals}


def test_the_shown_interval_is_the_same_everywhere():
    for intervals in ("unadjusted", "simultaneous"):
        analysis = judged(intervals=intervals)
        arm = analysis.arm("pre-swiglu")
        half = f"± {analysis.difference(arm).half_width:.4f}"
        table = dict(summary_table(analysis, COLUMNS))
        assert half in table[f"difference (nats/byte; ± {intervals})"][2]
        assert half in answer(analysis)
        drawn = forest(analysis, style.PAPER).table.query("arm == 'pre-swiglu' and seed == 'all'")
        assert drawn["high"].item() == analysis.difference(arm).high
        assert half in results_markdown(analysis)


def test_scales_show_the_declared_interval(tmp_path):
    effects = {"small-pre": 0.0, "small-gate": -0.03, "large-pre": -0.5, "large-gate": -0.46}
    manifest = scaled(effects) | {"verdict": RULE | {"intervals": "simultaneous"}}
    analyses = analyse_scales(load_sweep(write_sweep(tmp_path, noisy_losses(effects), **manifest)))
    arm = analyses[0].arm("small-gate")
    wide, narrow = (f"± {d.half_width:.4f}" for d in (arm.comparison.simultaneous,
                                                      arm.comparison.model))  # fmt: skip
    cell = scales_table(analyses)[1].cells[1]
    assert wide in cell and narrow not in cell
    figure = scales_figure(analyses, style.PAPER)
    assert "(simultaneous over the 2 comparisons of all 2 scales together" in figure.caption
    assert figure.table["high"][0] == arm.comparison.simultaneous.high


def bands(figure):
    marks = [view for view in figure.spec["layer"] if view["mark"]["type"] == "rect"]
    return [figure.spec["datasets"][view["data"]["name"]] for view in marks]


def test_a_declared_margin_is_a_band_and_a_sentence():
    figure = forest(judged(margin=0.005), style.PAPER)
    assert bands(figure) == [[{"from": -0.005, "to": 0.005}]]
    assert "Band: within the declared margin of 0.005." in figure.caption
    assert any("margin of ±0.005 nats/byte" in note for note in statistics(judged(margin=0.005)))
    plain = forest(judged(), style.PAPER)
    assert bands(plain) == [] and "margin" not in plain.caption
    assert any("No margin is declared" in note for note in statistics(judged()))


def test_equivalence_is_an_answer():
    text = answer(judged(7, margin=0.01))
    assert "pre-relu (" in text
    assert "is equivalent to pre-gelu within the margin of 0.01 nats/byte" in text
    table = dict(check_table(judged(7, margin=0.01)))
    assert "p, equivalent within 0.01 (Holm)" in table
    assert not any("equivalent" in heading for heading in headings(check_table(judged(7))))


def test_a_told_difference_within_the_margin_keeps_its_direction():
    analysis = judged(7, {"pre-gelu": 0.0, "pre-relu": -0.015}, margin=0.03)
    arm = analysis.arm("pre-relu")
    assert arm.verdict.text == "equivalent within margin (better, but by less than 0.03)"
    assert "nats/byte, better by less than the margin) is equivalent to pre-gelu" in answer(
        analysis
    )


def test_what_cannot_be_told_is_no_equality():
    analysis = judged()
    assert "for pre-relu 3 seeds cannot tell (a difference under 0.0" in answer(analysis)
    assert any("“cannot tell” is not “no difference”" in note for note in statistics(analysis))


def test_a_rule_changed_when_runs_had_finished_is_a_caveat():
    before = [{"rule": RULE, "finished": 12}, {"rule": RULE | {"margin": 0.02}, "finished": 36}]
    found = caveats(judged(margin=0.01, correction="fdr", before=before))
    assert [text for text in found if "changed after" in text] == [
        "The margin was changed after 12 runs had finished: from none to 0.02 nats/byte.",
        "The margin was changed after 36 runs had finished: from 0.02 nats/byte to 0.01 nats/byte.",
        "The correction was changed after 36 runs had finished: from Holm to FDR.",
    ]
    assert not [text for text in caveats(judged(margin=0.01)) if "changed" in text]


def test_a_changed_rule_stands_on_the_page(tmp_path):
    before = [{"rule": RULE, "finished": 36}]
    rule = RULE | {"margin": 0.01}
    written = page_of(tmp_path, noisy_losses(EFFECTS), verdict=rule, verdict_before=before)
    assert "The margin was changed after 36 runs had finished" in written


@pytest.mark.parametrize("seeds", [2, 3, 7])
def test_few_seeds_have_no_permutation_test_and_the_page_says_why(seeds):
    notes = " ".join(statistics(judged(seeds)))
    smallest = {2: "0.500", 3: "0.250", 7: "0.0156"}[seeds]
    assert f"with {seeds} seeds cannot get below p = 2/2^{seeds} = {smallest}" in notes
    assert not any("sign-flip" in heading for heading in headings(check_table(judged(seeds))))


def test_from_eight_seeds_on_the_permutation_test_is_shown():
    analysis = judged(8)
    assert "permutation" not in " ".join(statistics(analysis))
    table = dict(check_table(analysis))
    # All eight differences have one sign, as only 2 of 256 patterns of signs do.
    assert table["p, sign-flip (raw)"][1:] == ["0.00781", "0.00781"]


def test_an_unfair_arm_is_named_with_the_reason_and_drawn_pale():
    record = record_of(noisy_losses(EFFECTS))
    for run in record.runs:
        if run.cell["arm"] == "pre-swiglu":
            run.status["result"] |= {"steps": 800, "tokens": 409_600}
    analysis = analyse(record)
    text = answer(analysis)
    assert "nothing is claimed of pre-swiglu, an unfair comparison (" in text
    assert "800 steps" in text and "pre-swiglu (−" not in text
    figure = forest(analysis, style.PAPER)
    rows = next(rows for rows in figure.spec["datasets"].values() if "verdict" in rows[0])
    assert {row["arm"]: row["opacity"] for row in rows}["pre-swiglu"] == 0.35


def test_a_diverging_arm_stands_with_its_interval_in_the_answer():
    losses = noisy_losses(EFFECTS)
    losses |= {("post-gelu", rate, seed): "diverged" for rate in RATES for seed in (0, 1)}
    text = answer(analyse(record_of(losses)))
    assert "post-gelu diverges in 2 of 3 runs at the best setting (95 %: 9 to 99 %)" in text


def test_the_analysis_is_plain_data():
    analysis = judged(margin=0.01)
    written = json.dumps(dataclasses.asdict(analysis), allow_nan=False)
    arm = json.loads(written)["arms"][1]
    assert arm["comparison"]["effect_size"].keys() == {"value", "low", "high"}
    assert json.loads(written)["rule"] == RULE | {"margin": 0.01}


@pytest.mark.parametrize("correction", ["holm", "fdr"])
def test_one_comparison_is_one_arm_and_no_correction_is_misnamed(correction):
    analysis = judged(effects={"pre-gelu": 0.0, "pre-swiglu": -0.03}, correction=correction)
    notes = " ".join(statistics(analysis))
    assert "over the 1 arm compared with pre-gelu" in notes and "1 arms" not in notes
    assert ("Holm" in notes) == (correction == "holm")


@pytest.mark.parametrize("name", ["arm one", "a b-c", "f", "for", "(4, 4)"])
def test_a_name_at_the_start_of_the_answer_stays_as_it_is(name):
    better = answer(judged(effects={"pre-gelu": 0.0, name: -0.1}))
    assert better.startswith(f"{name} (−0.1")
    word = answer(judged(effects={"pre-gelu": 0.0, f"{name}x": 0.0}))
    assert word.startswith("For ")


def test_what_four_decimals_would_hide_is_written_with_more():
    """Arms that compute the same in another order differ by rounding, and the page shows it."""
    losses = {key: 2 + 1e-6 * loss for key, loss in noisy_losses(EFFECTS).items()}
    analysis = analyse(record_of(losses))
    assert analysis.arm("pre-swiglu").verdict.word == "better"
    for text in (answer(analysis), *summary_table(analysis, COLUMNS)[2].cells):
        assert "0.0000 " not in text and "± 0.0000)" not in text
    assert "pre-swiglu (−0.0000000" in answer(analysis)
    assert "smallest resolvable: 0.0000)" not in analysis.arm("pre-relu").verdict.text
    drowned = record_of({key: 1e30 * loss for key, loss in noisy_losses(EFFECTS).items()})
    assert "0000000000" not in answer(analyse(drowned))


def test_no_p_is_zero():
    assert numbers.p_value(0.0) == "under 1e-300" and numbers.p_value(1e-300) == "1.00e-300"
