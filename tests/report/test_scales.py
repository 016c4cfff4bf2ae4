"""Tests for the page of a sweep at several scales, and for what it says of the search."""

import re

import pytest
from report_pages import figures_of, page_of_record
from sweep_fixture import RATES, noisy_losses, scaled, write_sweep

from jtransformer.records import load_sweep
from jtransformer.report import style, write
from jtransformer.report.markdown import results_markdown
from jtransformer.report.scales import scales_figure, scales_table
from jtransformer.report.sentences import caveats, scale, statistics
from jtransformer.stats import analyse, analyse_scales, at_scales

EFFECTS = {
    **{"small-pre": 0.0, "small-gate": -0.03},
    **{"<b>-pre": -0.5, "<b>-gate": -0.46},
}
RATE = "optimizer.learning_rate"


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    losses = noisy_losses(EFFECTS)
    return load_sweep(write_sweep(tmp_path_factory.mktemp("s"), losses, **scaled(EFFECTS)))


@pytest.fixture(scope="module")
def text(record):
    return page_of_record(record)


def test_a_section_for_each_scale_with_its_own_table_and_answer(text):
    assert "2 arms at 2 scales" in text and "36 of 36 runs finished" in text
    headings = re.findall(r"<h2 id=\"scale-\d\">(Scale [^<]*)</h2>", text)
    assert headings == ["Scale small: width 32", "Scale &lt;b&gt;: width 64"]
    assert len(re.findall(r'<table class="arms wide">', text)) == 2
    answers = re.findall(r'<p class="answer">([^<]*)</p>', text)
    assert "small-gate (−0.0" in answers[0] and "is better than small-pre" in answers[0]
    assert "&lt;b&gt;-gate (+0.0" in answers[1] and "is worse than &lt;b&gt;-pre" in answers[1]
    assert "<b>" not in text, "a name is text"


def test_no_arm_stands_in_the_table_of_another_scale(text):
    tables = re.findall(r'<table class="arms wide">.*?</table>', text, flags=re.DOTALL)
    assert "small-gate" in tables[0] and "&lt;b&gt;-gate" not in tables[0]
    assert "&lt;b&gt;-gate" in tables[1] and "small-gate" not in tables[1]


def test_the_family_of_the_correction_is_said(text, record):
    family = "Holm-adjusted over the 2 comparisons of all 2 scales together, each with the baseline"
    assert text.count(family) == 4, "in the caption and in the notes of each scale"
    alone = analyse(load_sweep_of_one(record))
    assert any(
        "Holm-adjusted over the 1 arm compared with small-pre" in n for n in statistics(alone)
    )


def load_sweep_of_one(record):
    first = at_scales(record)[0]
    return first.__class__(first.manifest | {"scales": {}}, first.runs)


def test_the_overview_holds_the_scales_together(record, text):
    analyses = analyse_scales(record)
    table = dict(scales_table(analyses))
    assert table["arm"] == ["pre", "gate"]
    parameters = f"{analyses[0].arms[0].parameters:,}"
    cells = table[f"small ({parameters} parameters)"]
    assert cells[0] == "baseline" and re.fullmatch(r"−0\.0\d{3} ± 0\.0\d{3}, better", cells[1])
    assert "Differences at every scale" in text
    figure = scales_figure(analyses, style.PAPER)
    points = figure.spec["datasets"][figure.spec["layer"][1]["data"]["name"]]
    assert [(row["scale"], row["arm"]) for row in points] == [("small", "gate"), ("<b>", "gate")]
    assert points[0]["difference"] == analyses[0].arm("small-gate").comparison.model.value


def test_every_figure_has_a_file_of_its_own(record):
    names = [figure.name for figure in figures_of(record, style.PAPER)]
    assert len(set(names)) == len(names) >= 10
    assert all(re.fullmatch(r"\w+", name) for name in names)


def test_markdown_has_every_scale(record):
    written = results_markdown(*analyse_scales(record))
    assert "# Scale small: width 32" in written and "# Scale \\<b\\>: width 64" in written
    assert written.count("Reproduce with") == 1 and written.startswith("# norm_and_ffn")


def test_the_report_of_scales_is_written(tmp_path):
    kept = {key: loss for key, loss in noisy_losses(EFFECTS).items() if key[1] == RATES[1]}
    page, analyses = write(write_sweep(tmp_path, kept, **scaled(EFFECTS)))
    assert [analysis.scale for analysis in analyses] == ["small", "<b>"]
    drawn = {path.name for path in (page.parent / "figures").glob("*.svg")}
    links = set(re.findall(r'href="figures/([^"]*\.svg)"', page.read_text()))
    assert drawn == links and "differences_by_scale.svg" in drawn and len(drawn) >= 9
    head = (page.parent / "results.csv").read_text().splitlines()[0]
    assert head.startswith("arm,scale,norm_placement,")


def test_a_scale_without_changes_is_named_too(record):
    (analysis, _) = analyse_scales(record)
    object.__setattr__(analysis, "scales", {"small": {}})
    assert scale(analysis) == "Scale small: as in get_config()"


def searched(tmp_path, **manifest):
    losses = noisy_losses({"pre": 0.0, "post": 0.03})
    return analyse(load_sweep(write_sweep(tmp_path, losses, **manifest)))


def test_draws_are_said(tmp_path):
    search = dict(strategy="quasirandom", trials=3, seed=0, rungs=None, keep=None)
    analysis = searched(tmp_path, search=search)
    assert any("drawn from a scrambled Halton sequence, 3 for every arm" in n
               for n in statistics(analysis))  # fmt: skip


def test_an_edge_of_draws_is_not_called_one_of_a_grid(tmp_path):
    losses = {key: loss for key, loss in noisy_losses({"a": 0.0, "b": 0.1}).items()
              if key[1] != RATES[0]}  # fmt: skip
    search = dict(strategy="random", trials=2, seed=0, rungs=None, keep=None)
    analysis = analyse(load_sweep(write_sweep(tmp_path, losses, search=search)))
    assert any("of a and b lies at the edge of its draws" in text for text in caveats(analysis))


def test_an_extension_is_said(tmp_path):
    stage = dict(stage="extension", added={RATE: [0.064, 0.25]}, because={RATE: ["pre", "post"]})
    analysis = searched(tmp_path, stages=[stage])
    assert (
        f"The values of {RATE} were widened by 0.064 and 0.25, for all arms alike, because the "
        "best one of pre and post lay at the edge." in statistics(analysis)
    )


def test_null_a_plain_sweep_says_nothing_of_a_search(tmp_path):
    plain = statistics(searched(tmp_path))
    words = ("drawn", "halving", "widened", "scales")
    assert not [note for note in plain for word in words if word in note]
