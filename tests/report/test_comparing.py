"""Tests for the page of several work directories: words, table, figure, links and escapes."""

import csv
import re

import pytest
from report_pages import Elements, cells
from sweep_fixture import DATA, RATES, noisy_losses, scaled, write_sweep

from jtransformer.records import load_sweep
from jtransformer.report import comparing, style, write_comparison
from jtransformer.stats import compare

EFFECTS = {"pre-gelu": 0.0, "pre-swiglu": -0.03, "post-gelu": 0.03}
EVERY = noisy_losses(EFFECTS, seeds=6)
MIDDLE = RATES[1]


def losses_of(*seeds, **changed):
    found = {key: loss for key, loss in EVERY.items() if key[2] in seeds}
    return found | {("post-gelu", rate, seed): changed["post"] for rate in RATES for seed in seeds
                    if "post" in changed}  # fmt: skip


@pytest.fixture
def compared(tmp_path):
    def write_and_compare(**sweeps):
        records = {name: load_sweep(write_sweep(tmp_path / name, *parts[:1], **parts[1]))
                   for name, parts in sweeps.items()}  # fmt: skip
        return compare(records), {name: (tmp_path / name, r) for name, r in records.items()}

    return write_and_compare


def test_pooled_directories_have_a_column_of_their_own(compared):
    found, _ = compared(monday=(losses_of(0, 1, 2), {}), friday=(losses_of(2, 3, 4), {}))
    first, pooled, *_ = comparing.sections(found, style.PAPER)
    assert list(cells(first.tables[0])) == ["arm", "monday", "friday", "pooled"]
    row = [column[1] for column in cells(first.tables[0]).values()]
    assert row[0] == "pre-swiglu"
    assert all(re.fullmatch(r"−0\.0\d{3} ± 0\.0\d{3}, better", cell) for cell in row[1:])
    assert first.paragraphs == [
        "The verdict is the same wherever there is one, whatever the size of the effect: "
        "pre-swiglu (better); post-gelu (worse). Some of their runs are the same, which confirms "
        "nothing.",
        "monday and friday differ in nothing but their seeds, so their runs are pooled and "
        "analysed as one sweep: 45 runs, 5 seeds, settings chosen over all. 9 of the runs stand in "
        "several directories and count once.",
    ]
    assert pooled.title == "What the runs say together"
    assert "pre-swiglu (−0.0" in pooled.paragraphs[0]


def test_what_is_not_comparable_is_not_pooled_with_one_sentence(compared):
    other = {"data": DATA | {"sha256": "a" * 64, "validation_bytes": 9}}
    found, _ = compared(a=(losses_of(0, 1), {}), b=(losses_of(2, 3), other))
    sections = comparing.sections(found, style.PAPER)
    assert list(cells(sections[0].tables[0])) == ["arm", "a", "b"]
    assert sections[0].paragraphs[-1] == (
        "b is not pooled with a, from which it differs in the data (SHA-256) "
        "(aaaaaaaaaaaa against fdceb080776e); validation bytes (9 against 83720)."
    )
    assert "pooled" not in [section.name for section in sections]


def test_verdicts_that_differ_are_no_finding(compared):
    worse = {
        key: loss + 0.06 * (key[0] == "pre-swiglu") for key, loss in losses_of(3, 4, 5).items()
    }
    found, _ = compared(a=(losses_of(0, 1, 2), {}), b=(worse, {}))
    text = comparing.sections(found, style.PAPER)[0].paragraphs
    assert text[0].endswith(": post-gelu (worse).")
    assert text[1].startswith(
        "The verdict differs: pre-swiglu (better in a, worse in b). That alone"
    )


def test_other_results_of_the_same_run_are_said(compared):
    found, _ = compared(a=(losses_of(0, 1), {}), b=(losses_of(0, 1, post=2.5), {}))
    (said,) = [text for text in comparing.pooling(found) if "fingerprint" in text]
    loss = EVERY["post-gelu", RATES[0], 0]
    start = "6 of them have the same fingerprint and other results: post-gelu at seed 0"
    assert f"{start} ({loss:.6f} against 2.500000)" in said
    assert "Each has all of these seeds already, so that pooling adds none." in said
    assert "; and 2 more. The first directory's count" in said


def test_directories_and_environments_are_tabulated(compared):
    found, _ = compared(a=(losses_of(0, 1), {}), b=(losses_of(2, 3, post="diverged"), {}))
    *_, directories, environments = comparing.sections(found, style.PAPER)
    shown = cells(directories.tables[0])
    assert shown["seeds"] == ["0, 1", "2, 3"] and shown["runs finished"] == ["18 of 18"] * 2
    assert shown["diverged"] == ["0", "6"]
    assert environments.tables == [] and "All runs have the same" in environments.paragraphs[0]


def test_versions_that_differ_are_shown(tmp_path):
    records = {
        n: load_sweep(write_sweep(tmp_path / n, losses_of(s))) for n, s in (("a", 0), ("b", 1))
    }
    for run in records["b"].runs:
        run.environment["jax"] = "0.11.0"
    (table,) = comparing.sections(compare(records), style.PAPER)[-1].tables
    assert cells(table) == {"environment": ["jax"], "a": ["0.10.2"], "b": ["0.11.0"]}


def test_the_figure_has_a_row_for_every_arm_and_directory(compared):
    found, _ = compared(a=(losses_of(0, 1, 2), {}), b=(losses_of(3, 4, 5), {}))
    for theme in (style.PAPER, style.PAGE):
        (figure,) = comparing.sections(found, theme)[0].figures
        assert len(figure.table) == 2 * 3
        colors = figure.spec["layer"][1]["encoding"]["color"]["scale"]
        assert colors["domain"] == ["a", "b", "pooled"] and colors["range"][2] == theme.ink


def test_directories_with_scales_stand_scale_by_scale(compared):
    effects = {"small-pre": 0.0, "small-gate": -0.03, "large-pre": -0.5, "large-gate": -0.53}
    losses = noisy_losses(effects, seeds=4)
    halves = [{k: v for k, v in losses.items() if k[2] in own} for own in ((0, 1), (2, 3))]
    found, _ = compared(
        **{n: (half, scaled(effects)) for n, half in zip("ab", halves, strict=True)}
    )
    table = cells(comparing.sections(found, style.PAPER)[0].tables[0])
    assert list(table)[1:4] == ["a, small", "a, large", "b, small"]
    assert list(table)[-1] == "pooled, large" and table["arm"] == ["pre", "gate"]


def test_arms_that_one_directory_lacks_stand_alone(compared):
    fewer = {key: loss for key, loss in losses_of(2, 3).items() if key[0] != "post-gelu"}
    found, _ = compared(a=(losses_of(0, 1), {}), b=(fewer, {}))
    assert cells(comparing.sections(found, style.PAPER)[0].tables[0])["b"][2] == "—"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder, name = tmp_path_factory.mktemp("page"), "<script>alert(1)</script>"
    renamed = {
        (name if k[0] == "post-gelu" else k[0], *k[1:]): v for k, v in losses_of(0, 1).items()
    }
    write_sweep(folder / "a", renamed, question="Is <b>this</b> so?\n\nNo.")
    write_sweep(folder / "b & c", losses_of(2, 3))
    (folder / "a" / "report").mkdir()
    (folder / "a" / "report" / "index.html").touch()
    sweeps = {n: load_sweep(folder / n) for n in ("a", "b & c")}
    places = {n: (folder / n, record) for n, record in sweeps.items()}
    return write_comparison(places, compare(sweeps), folder / "into" / "both")


def test_the_page_links_to_the_pages_of_its_directories(page):
    folder = page.parents[2]
    elements = Elements(page.read_text()).found
    links = [a["href"] for tag, a in elements if tag == "a"]
    assert "../../a/report/index.html" in links
    assert (page.parent / links[0]).resolve() == folder / "a" / "report" / "index.html"
    assert f"jtransformer report --workdir &#39;{folder}/b &amp; c&#39;" in page.read_text()
    # Of what else is linked to, every file is there.
    assert all((page.parent / link.replace("%20", " ")).exists() for link in links)


def test_text_from_configs_stays_text_and_nothing_is_loaded(page):
    text = page.read_text()
    elements = Elements(text).found
    assert "Is &lt;b&gt;this&lt;/b&gt; so?" in text and "&lt;script&gt;alert(1)" in text
    assert not [tag for tag, _ in elements if tag in ("b", "img", "iframe", "link")]
    assert not [a for _, a in elements if "src" in a]
    assert "default-src 'none'" in text and "<title>Comparison of a, b &amp; c</title>" in text


def test_the_csv_has_every_figure_with_all_digits(page):
    with open(page.parent / "comparison.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    # The arms differ, so nothing is pooled.
    assert {(row["directory"], row["pooled"]) for row in rows} == {
        ("a", "False"),
        ("b & c", "False"),
    }
    assert len(rows) == 6 and {row["baseline"] for row in rows} == {"pre-gelu"}
    (one,) = [r for r in rows if r["arm"] == "pre-swiglu" and r["directory"] == "b & c"]
    expected = (
        sum(EVERY["pre-swiglu", MIDDLE, s] - EVERY["pre-gelu", MIDDLE, s] for s in (2, 3)) / 2
    )
    assert abs(float(one["difference"]) - expected) < 1e-9
    assert (page.parent / "figures" / "differences_by_directory.svg").exists()
    assert (page.parent / "tables" / "comparison.tex").exists()


def test_sweeps_that_have_not_begun_have_a_page(compared, tmp_path):
    waiting = dict.fromkeys(losses_of(0, 1), "pending")
    found, sweeps = compared(a=(waiting, {}), b=(waiting, {}))
    text = write_comparison(sweeps, found, tmp_path / "into").read_text()
    assert "No arm has a verdict in two places yet" in text and "<figure" not in text


def test_verdicts_against_other_baselines_are_not_held_against_each_other(compared):
    turned = {k: v for k, v in losses_of(3, 4, 5).items() if k[0] == "post-gelu"}
    found, _ = compared(a=(losses_of(0, 1, 2), {}), b=(turned | losses_of(3, 4, 5), {}))
    said = comparing.sections(found, style.PAPER)[0].paragraphs
    assert said[0].startswith("The baselines differ (pre-gelu in a; post-gelu in b), so that")
    assert not any("verdict is the same" in text for text in said)


def test_an_unfair_comparison_is_no_verdict_that_holds(compared):
    fewer = {k: v for k, v in EVERY.items() if k[0] == "pre-gelu" or k[1] == MIDDLE}
    halves = [{k: v for k, v in fewer.items() if k[2] in own} for own in ((0, 1, 2), (3, 4, 5))]
    found, _ = compared(a=(halves[0], {}), b=(halves[1], {}))
    assert found.analyses["a"][0].arm("pre-swiglu").verdict.word == "unfair comparison"
    assert comparing.sections(found, style.PAPER)[0].paragraphs[0].startswith("No arm has a verd")


def test_a_rule_that_any_pooled_directory_has_changed_is_said(compared):
    plain = dict(margin=None, correction="holm", intervals="unadjusted")
    rule, before = plain | {"margin": 0.02}, [{"rule": plain, "finished": 9}]
    late = {"verdict": rule, "verdict_before": before}
    found, _ = compared(a=(losses_of(0, 1), {"verdict": rule}), b=(losses_of(2, 3), late))
    (pooled,) = [s for s in comparing.sections(found, style.PAPER) if s.name == "pooled"]
    assert "In b: The margin was changed after 9 runs had finished: from none to" in " ".join(
        pooled.paragraphs
    )


def test_a_directory_called_pooled_keeps_its_column(compared):
    found, _ = compared(a=(losses_of(0, 1), {}), pooled=(losses_of(2, 3), {}))
    table = comparing.sections(found, style.PAPER)[0].tables[0]
    assert list(cells(table)) == ["arm", "a", "pooled", "pooled a + pooled"]
