"""Tests for jtransformer.report: files, tables and sentences from work directories."""

import csv
import re

import numpy as np
import pytest
from sweep_fixture import DATA, RATES, noisy_losses, write_sweep

from jtransformer import __version__
from jtransformer.records import load_sweep, report_is_current
from jtransformer.report import BRIEF, COLUMNS, answer, caveats, summary_table, write
from jtransformer.stats import analyse

EFFECTS = {"pre-gelu": 0.0, "pre-relu": 0.001, "pre-swiglu": -0.03, "post-gelu": 0.03}
FIGURES = {
    "differences",
    "difference_curves",
    "learning_train",
    "learning_validation",
    "tuning_learning_rate",
}


@pytest.fixture(scope="module")
def losses():
    return noisy_losses(EFFECTS)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, losses):
    folder = write_sweep(tmp_path_factory.mktemp("sweep"), losses)
    assert write(folder).page == folder / "report" / "index.html"
    return folder


@pytest.fixture
def analysis_of(tmp_path):
    return lambda losses: analyse(load_sweep(write_sweep(tmp_path, losses)))


def test_every_file_is_there_and_none_is_left_over(workdir):
    report = workdir / "report"
    names = {path.name for path in report.iterdir()}
    assert names == {
        "index.html",
        "results.csv",
        "timings.csv",
        "results.md",
        "sections.md",
        "figures",
        "tables",
        "made_from.txt",
    }
    pictures = {path.name for path in (report / "figures").iterdir()}
    stems = {name.partition(".")[0] for name in pictures}
    assert FIGURES <= stems
    assert pictures == {f"{stem}.{kind}" for stem in stems for kind in ("csv", "svg", "pdf", "png")}
    begins = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<svg"}
    for kind, begin in begins.items():
        for path in (report / "figures").glob(f"*.{kind}"):
            assert path.read_bytes().startswith(begin), path
    tables = {path.name for path in (report / "tables").iterdir()}
    assert {"arms.tex", "arms.md", "differences.tex", "differences.md"} <= tables


def test_every_link_leads_to_a_file_and_every_file_is_linked(workdir):
    report = workdir / "report"
    links = set(re.findall(r'href="([^"#]+)"', (report / "index.html").read_text()))
    assert all((report / link).is_file() for link in links)
    below = {
        f"{p.parent.name}/{p.name}" for d in ("figures", "tables") for p in (report / d).iterdir()
    }
    assert below <= links


def test_letters_of_a_pdf_are_in_it(workdir):
    """A journal refuses a PDF whose fonts are elsewhere."""
    for path in (workdir / "report/figures").glob("*.pdf"):
        content = path.read_bytes()
        assert b"/FontFile" in content or b"/Font" not in content, path


def test_the_data_behind_a_curve_are_whole(workdir):
    with open(workdir / "report/figures/learning_train.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    metrics = [row for run in load_sweep(workdir).runs for row in run.metrics
               if run.cell["nuisance"]["optimizer.learning_rate"] == RATES[1]]  # fmt: skip
    assert [float(row["nll"]) for row in rows] == [row["train_nll"] for row in metrics]


def test_repetition_gives_the_same_bytes(workdir, tmp_path, losses):
    other = write_sweep(tmp_path, losses)
    for status in other.rglob("status.json"):
        status.write_text(status.read_text().replace('"wall_seconds": 4.1', '"wall_seconds": 9'))
    write(other, 30)
    for name, same in (("results.csv", True), ("results.md", True), ("timings.csv", False)):
        first, second = ((w / "report" / name).read_bytes() for w in (workdir, other))
        assert (first == second) == same, name


def test_the_main_table_follows_from_the_csv_alone(workdir):
    with open(workdir / "report" / "results.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["selected"] == "True"]
    analysis = analyse(load_sweep(workdir))
    table = {arm: [float(r["validation_nll"]) for r in rows if r["arm"] == arm] for arm in EFFECTS}
    y = np.array(list(table.values()))
    centred = y - y.mean(1, keepdims=True) - y.mean(0) + y.mean()
    error = np.sqrt((centred**2).sum() / 6 * 2 / 3)
    for arm, own in zip(analysis.arms, y, strict=True):
        np.testing.assert_allclose(arm.mean.value, own.mean(), atol=1e-9)
        if arm.comparison:
            got = arm.comparison.model
            np.testing.assert_allclose(got.value, (own - y[0]).mean(), atol=1e-9)
            np.testing.assert_allclose(got.standard_error, error, atol=1e-9)


def test_summary_table_has_a_cell_per_arm(analysis_of, losses):
    analysis = analysis_of(losses)
    for columns in (BRIEF, COLUMNS):
        table = summary_table(analysis, columns)
        assert all(len(cells) == len(EFFECTS) for _, cells in table)
    cells = dict(summary_table(analysis, COLUMNS))
    assert cells["arm"] == list(EFFECTS)
    assert cells["mismatch"] == ["+0.00 %", "+0.00 %", "−0.27 %", "+0.00 %"]
    assert cells["parameters"][2] == "115,904"
    assert cells["learning rate"] == ["0.004"] * 4
    assert re.fullmatch(r"−0\.0\d{3} ± 0\.0\d{3}", cells["difference (nats/byte; ± unadjusted)"][2])
    assert re.fullmatch(r"2\.\d{4} ± 0\.0\d{3}", cells["validation NLL (nats/byte)"][0])
    assert cells["difference (nats/byte; ± unadjusted)"][0] == cells["p (Holm)"][0] == "—"
    with pytest.raises(ValueError, match="'typo'; use arm, verdict"):
        summary_table(analysis, ("arm", "typo"))


def test_the_answer_names_every_arm_once(analysis_of, losses):
    text = answer(analysis_of(losses))
    assert re.match(r"pre-swiglu \(−0\.\d{4} ± 0\.\d{4} nats/byte\) is better than pre-gelu;", text)
    assert re.search(r"post-gelu \(\+0\.\d{4} ± 0\.\d{4} nats/byte\) is worse than pre-gelu;", text)
    assert "for pre-relu 3 seeds cannot tell (a difference under 0.0" in text
    assert text.endswith(".")


def test_a_provisional_answer_says_so(analysis_of, losses):
    losses = losses | {("post-gelu", RATES[2], seed): "pending" for seed in range(3)}
    text = answer(analysis_of(losses))
    assert text.startswith("Provisional, 33 of 36 runs: pre-swiglu")
    assert text.endswith("not yet judged: post-gelu.")


def test_a_diverging_arm_is_an_answer(analysis_of, losses):
    losses = losses | {("post-gelu", rate, 0): "diverged" for rate in RATES}
    analysis = analysis_of(losses)
    assert "post-gelu diverges in 1 of 3 runs at the best setting" in answer(analysis)
    assert any("3 of 36 runs diverged" in text for text in caveats(analysis))
    cells = dict(summary_table(analysis, COLUMNS))
    assert cells["validation NLL (nats/byte)"][3] == "1 of 3 diverged"
    assert cells["bits/byte"][3] == cells["test NLL (nats/byte)"][3] == "—"


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"keep": lambda key: key[2] == 0}, "one seed gives no interval, so nothing is claimed"),
        ({"keep": lambda key: key[0] == "pre-gelu"}, "one arm, so there is nothing to compare"),
        ({"all": "pending"}, "No run has finished yet (0 of 36)"),
        ({"all": "diverged"}, "diverge in 3 of 3 runs each, at their best settings"),
        ({"all": 2.0}, "the runs give no interval, so nothing is claimed"),
    ],
)
def test_answers_without_a_comparison(analysis_of, losses, change, expected):
    keep = change.get("keep", lambda key: True)
    kept = {key: change.get("all", loss) for key, loss in losses.items() if keep(key)}
    assert expected in answer(analysis_of(kept))


def test_an_edge_and_a_failure_are_caveats(analysis_of, losses):
    losses = {key: loss for key, loss in losses.items() if key[1] != RATES[0]}
    assert any("edge of its grid" in text for text in caveats(analysis_of(losses)))


def test_a_sweep_without_runs_has_a_report(tmp_path, losses):
    page = write(write_sweep(tmp_path, dict.fromkeys(losses, "pending"))).page.read_text()
    assert "No run has finished yet" in page and "<script>" not in page
    assert list((tmp_path / "report" / "figures").iterdir()) == []


def test_markdown_escapes_names(tmp_path, losses):
    named = {("a|b" if key[0] == "pre-gelu" else key[0], *key[1:]): 2.0 for key in losses}
    write(write_sweep(tmp_path, dict.fromkeys(named, "pending")))
    text = (tmp_path / "report" / "results.md").read_text()
    assert "| a\\|b | incomplete: 0 of 9 runs |" in text


def test_losses_per_token_are_called_so_everywhere(tmp_path, losses):
    """Where tokens are no bytes, a compressor of bytes is no yardstick either."""
    words = {name.replace("bytes", "examples"): value for name, value in DATA.items()}
    per_token = dict(unit="examples", loss_unit="nats/token", bigram_nll=None, xz_nll=None, cut=7)
    written = write(write_sweep(tmp_path, losses, data=words | per_token), 30)
    folder = written.page.parent
    texts = [written.page.read_text(), (folder / "results.md").read_text()]
    texts += [path.read_text() for path in (folder / "tables").glob("*.tex")]
    texts.append((folder / "results.csv").read_text())
    assert not any(re.search("(nats|bits|per)[/ _](per[ _])?byte", text) for text in texts)
    assert "7 cut" in texts[0] and "nats/token" in texts[1] and "bits/token" in texts[1]
    assert "xz -9" not in "".join(texts)


def test_a_watched_page_has_no_pictures_and_does_not_count_as_finished(tmp_path):
    workdir = write_sweep(tmp_path, {("pre", 0.004, 0): 2.1, ("pre", 0.004, 1): 2.2})
    write(workdir)
    assert report_is_current(workdir, __version__)
    page = write(workdir, 5).page
    assert not report_is_current(workdir, __version__)
    assert 'http-equiv="refresh" content="5"' in page.read_text()
    assert 'href="figures/learning_train.csv"' in page.read_text()
    assert ".svg" not in page.read_text().partition("text/plain")[0]
