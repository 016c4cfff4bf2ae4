"""Tests for jtransformer.report.outcomes: the words follow the numbers, the figures draw."""

import math

import pytest
import vl_convert
from report_pages import cells
from sweep_fixture import RATES, noisy_losses, write_sweep

from jtransformer.records import load_sweep
from jtransformer.report import style
from jtransformer.report.outcomes import section
from jtransformer.stats import analyse, divergence

LOW, MIDDLE, HIGH = RATES
ARMS = {"pre": 0.0, "<b>|post": 0.03, "gate": -0.03}
POST = "<b>|post"


@pytest.fixture
def losses():
    return noisy_losses(ARMS)


@pytest.fixture
def write(tmp_path):
    def written(losses, theme=style.PAGE, **manifest):
        record = load_sweep(write_sweep(tmp_path, losses, **manifest))
        analysis = analyse(record)
        return section(divergence(record, analysis), analysis, theme)

    return written


def texts(found):
    tables = [cell for table in found.tables for column in table.columns for cell in column.cells]
    return [*found.paragraphs, *(table.caption for table in found.tables), *tables]


def draws(figure):
    return vl_convert.vegalite_to_svg(figure.spec)


def test_nothing_diverged_is_one_sentence_and_the_ranks(write, losses):
    found = write(losses)
    # 1 - 0.025 ** (1 / 27) = 0.1277
    assert found.paragraphs[0] == "0 of 27 runs diverged (95 %: at most 12.8 %)."
    (table,) = found.tables
    assert list(cells(table)) == ["arm", "median rank", "ranks by seed"]
    assert cells(table)["median rank"] == ["2", "3", "1"]
    assert cells(table)["ranks by seed"][2] == "1, 1, 1"
    assert found.figures == [] and found.name == "divergence"


def test_an_arm_that_diverges_more_often_is_called_so(write, losses):
    losses |= {(POST, rate, seed): "diverged" for rate in (MIDDLE, HIGH) for seed in range(3)}
    found = write(losses)
    assert found.paragraphs[0].startswith("6 of 27 runs diverged (22.2 %, 95 % interval ")
    assert found.paragraphs[1].startswith(
        f"{POST} diverges more often than pre (6 of 9 runs against 0 of 9, adjusted p = 0.00"
    )
    assert "For gate no difference to pre in how often" in found.paragraphs[2]
    own = cells(found.tables[0])
    assert own["diverged, all runs"] == ["0 of 9", "6 of 9", "0 of 9"]
    assert own["at the chosen setting"] == ["0 of 3"] * 3
    assert own["rate (95 % interval)"][1] == "66.7 % (29.9 % to 92.5 %)"
    assert own["p against pre (Boschloo, Holm)"][0] == "—"
    by_rate = cells(found.tables[1])
    assert list(by_rate) == [
        "arm", "learning rate 0.001", "learning rate 0.004", "learning rate 0.016",
    ]  # fmt: skip
    assert by_rate["learning rate 0.016"][1] == "3 of 3 (29.2 % to 100.0 %)"


def test_a_baseline_that_diverges_more_often_is_said_of_the_others(write, losses):
    losses |= {("pre", rate, seed): "diverged" for rate in (LOW, HIGH) for seed in range(3)}
    found = write(losses)
    assert any(
        "diverges less often than pre (0 of 9 runs against 6 of 9" in t for t in texts(found)
    )


@pytest.mark.parametrize("theme", [style.PAGE, style.PAPER])
def test_the_figure_has_a_point_for_every_rate_and_arm(write, losses, theme):
    losses |= {(POST, HIGH, seed): "diverged" for seed in range(3)}
    (figure,) = write(losses, theme).figures
    assert figure.name == "divergence_by_optimizer_learning_rate"
    assert len(figure.table) == 9
    row = figure.table.query("arm == @POST and value == @HIGH").iloc[0]
    assert (row["diverged"], row["finished"], row["rate"], row["high"]) == (3, 3, 1.0, 1.0)
    assert row["low"] == pytest.approx(0.025 ** (1 / 3))
    svg = draws(figure)
    assert svg.count("diverged: 3") == 2 and "&lt;b&gt;|post" in svg and "<b>" not in svg


def test_without_a_tuned_number_the_figure_is_by_arm(write, losses):
    kept = {key: loss for key, loss in losses.items() if key[1] == MIDDLE}
    found = write(kept | {(POST, MIDDLE, 0): "diverged"})
    (figure,) = found.figures
    assert figure.name == "divergence" and list(figure.table["value"]) == list(ARMS)
    assert len(found.tables) == 1 and draws(figure).startswith("<svg")


@pytest.mark.parametrize("state", ["pending", "running", "failed"])
def test_what_is_not_finished_is_not_compared(write, losses, state):
    found = write(losses | {(POST, HIGH, 0): "diverged", ("gate", HIGH, 1): state})
    assert any("are not finished: gate." in text for text in found.paragraphs)


def test_a_missing_rank_is_said(write, losses):
    losses |= {(arm, rate, seed): "pending" for arm, rate, seed in losses if rate != MIDDLE}
    losses |= {("gate", MIDDLE, seed): "running" for seed in (1, 2)}
    found = write(losses)
    assert found.paragraphs[-1].endswith("and so left out: gate (seeds 1 and 2).")


@pytest.mark.parametrize(
    "change",
    [
        {"all": "diverged"},
        {"keep": lambda key: key[2] == 0},
        {"keep": lambda key: key[2] == 0, "all": "diverged"},
        {"keep": lambda key: key[0] == "pre"},
        {"keep": lambda key: key[0] == "pre", "all": "diverged"},
        {"first": "diverged", "all": "pending"},
    ],
)
def test_sweeps_of_every_kind_are_sensible(write, losses, change):
    kept = {key: change.get("all", loss) for key, loss in losses.items()
            if change.get("keep", lambda key: True)(key)}  # fmt: skip
    if "first" in change:
        kept[next(iter(kept))] = change["first"]
    found = write(kept)
    said = " ".join(texts(found)).lower()
    assert not any(word in said for word in ("nan", "none", "inf ", " 0 comparisons"))
    assert all(draws(figure).startswith("<svg") for figure in found.figures)
    assert all(math.isfinite(x) for figure in found.figures for x in figure.table["low"])


def test_no_run_has_no_section(write, losses):
    assert write(dict.fromkeys(losses, "pending")) is None
