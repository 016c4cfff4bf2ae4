"""Tests for jtransformer.report: files, tables and sentences from work directories."""

import csv
import re

import numpy as np
import pytest
from sweep_fixture import DATA, RATES, noisy_losses, write_sweep

from jtransformer.records import load_sweep
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
        "figures",
        "made_from.txt",
    }
    pictures = {path.name for path in (report / "figures").iterdir()}
    assert pictures == {f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png")}
    for path in (report / "figures").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    for path in (report / "figures").glob("*.svg"):
        assert path.read_text().startswith("<svg")


def test_repetition_gives_the_same_bytes(workdir, tmp_path, losses):
    other = write_sweep(tmp_path, losses)
    for status in other.rglob("status.json"):
        status.write_text(status.read_text().replace('"wall_seconds": 4.1', '"wall_seconds": 9'))
    write(other)
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
    assert re.fullmatch(r"−0\.0\d{3} ± 0\.0\d{3}", cells["difference (nats/byte)"][2])
    assert re.fullmatch(r"2\.\d{4} ± 0\.0\d{3}", cells["validation NLL (nats/byte)"][0])
    assert cells["difference (nats/byte)"][0] == cells["p (Holm)"][0] == "—"
    with pytest.raises(ValueError, match="'typo'; use arm, verdict"):
        summary_table(analysis, ("arm", "typo"))


def test_the_answer_names_every_arm_once(analysis_of, losses):
    text = answer(analysis_of(losses))
    assert re.match(r"pre-swiglu \(−0\.\d{4} ± 0\.\d{4} nats/byte\) is better than pre-gelu;", text)
    assert re.search(r"post-gelu \(\+0\.\d{4} ± 0\.\d{4} nats/byte\) is worse than pre-gelu;", text)
    assert "for pre-relu no difference can be told (one under 0.0" in text
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
    written = write(write_sweep(tmp_path, losses, data=words | per_token))
    folder = written.page.parent
    texts = [written.page.read_text(), (folder / "results.md").read_text()]
    texts += [path.read_text() for path in (folder / "figures").glob("*.svg")]
    texts.append((folder / "results.csv").read_text())
    assert not any(re.search("(nats|bits|per)[/ _](per[ _])?byte", text) for text in texts)
    assert "7 cut" in texts[0] and "nats/token" in texts[1] and "bits/token" in texts[1]
    assert "xz -9" not in "".join(texts)
