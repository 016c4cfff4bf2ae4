"""Tests for jtransformer.report.sensitivity and .reestimation: words by rule, figures that draw."""

import re

import numpy as np
import pytest
import vl_convert
from report_pages import all_text, cells
from sweep_fixture import RATES, noisy_losses, write_sweep

from jtransformer.records import load_sweep
from jtransformer.report import style
from jtransformer.report.sensitivity import section
from jtransformer.stats import analyse, sensitivity

LOW, MIDDLE, HIGH = RATES
ARMS = {"pre": 0.0, "<b>|post": 0.03, "gate": -0.03}
BASE = {"model": {"vocabulary": 256}}


@pytest.fixture
def losses():
    return noisy_losses(ARMS)


@pytest.fixture
def close():
    """Settings that differ by the noise alone."""
    noise = iter(np.random.default_rng(8).normal(0, 0.01, 27).tolist())
    return {key: 2.0 + ARMS[key[0]] + next(noise) for key in noisy_losses(ARMS)}


@pytest.fixture
def write(tmp_path):
    def written(losses, theme=style.PAGE, **manifest):
        record = load_sweep(write_sweep(tmp_path, losses, **({"base": BASE} | manifest)))
        analysis = analyse(record)
        return section(sensitivity(record, analysis), analysis, theme)

    return written


def test_the_definition_is_said_with_its_grid_and_its_cap(write, losses):
    first = write(losses).paragraphs[0]
    assert "Sensitivity to the learning rate is the mean" in first
    assert "(0.001, 0.004 and 0.016)" in first and "(ln V = 5.5452)" in first
    assert "nats/byte" in first


def test_without_a_vocabulary_the_cap_is_said_to_be_unknown(write, losses):
    text = write(losses, base={"model": {}}).paragraphs[0]
    assert "not recorded, so that seeds with one are left out" in text and "ln V" not in text


def test_a_more_sensitive_arm_is_called_so(write, losses):
    losses |= {("gate", HIGH, seed): "diverged" for seed in range(3)}
    losses |= {("<b>|post", rate, seed): 2.0 + 0.001 * seed for rate in RATES for seed in range(3)}
    found = write(losses)
    assert re.search(
        r"gate \(\+1\.\d{4} ± 0\.\d{4}\) is more sensitive than pre", found.paragraphs[1]
    )
    assert re.search(r"post \(−0\.0\d{3} ± 0\.\d{4}\) is less sensitive", found.paragraphs[2])
    table = cells(found.tables[0])
    assert table["arm"] == list(ARMS) and table["values tried"] == ["3"] * 3
    assert (
        table["sensitivity (nats/byte)"][1] == "0.0000"
        and table["difference (nats/byte)"][0] == "—"
    )


def test_no_sensitivity_is_claimed_where_intervals_hold_zero(write, losses):
    assert not any("sensitive than" in text for text in write(losses).paragraphs)


def test_a_choice_that_stays_is_said_to_stay(write, losses):
    found = write(losses)
    assert "Whichever seed is left out, every arm keeps its setting, and no loss changes." in (
        found.paragraphs
    )
    table = cells(found.tables[1])
    assert table["validation"] == table["validation, re-estimated"]
    assert table["difference"] == table["difference, re-estimated"]
    assert set(table["optimism"]) == {"+0.0000"}
    assert set(table["choice changes without"]) == {"no seed"}


def test_a_choice_that_changes_is_said_with_its_size(write, close):
    found = write(close)
    (moved,) = [text for text in found.paragraphs if text.startswith("The choice changes for")]
    table = cells(found.tables[1])
    sizes = [abs(float(cell.replace("−", "-"))) for cell in table["optimism"]]
    assert f"by {max(sizes):.4f} nats/byte at most" in moved
    for arm, without in zip(table["arm"], table["choice changes without"], strict=True):
        assert (f"{arm} (without {without})" in moved) == (without != "no seed")
    assert max(sizes) > 0


def test_a_difference_that_hangs_on_the_choice_is_named(write):
    """At its chosen rate gate is lower in every seed; without seed 1 or 2 another is chosen."""
    losses = {("pre", rate, seed): 2.0 + 0.001 * seed for rate in RATES for seed in range(3)}
    gate = [[1.98, 1.985, 1.975], [1.97, 2.05, 1.96], [1.95, 1.96, 2.06]]
    losses |= {("gate", rate, s): gate[i][s] for i, rate in enumerate(RATES) for s in range(3)}
    found = write(losses)
    table = cells(found.tables[1])
    assert table["choice changes without"] == ["no seed", "seeds 1 and 2"]
    assert table["difference"][1] == "−0.0210 ± 0.0138"
    assert table["difference, re-estimated"][1].startswith("+0.0290 ± 0.2")
    assert found.paragraphs[-2].endswith("its mean loss moves by 0.0500 nats/byte.")
    assert found.paragraphs[-1].startswith(
        "For gate the interval of the paired difference excludes zero at the chosen settings and "
        "holds it re-estimated"
    )


def test_where_choices_change_and_no_difference_hangs_on_them_that_is_said(write, close):
    shifted = {key: loss + 0.5 * (key[0] != "pre") for key, loss in close.items()}
    last = write(shifted).paragraphs[-1]
    assert last == "For no difference does that change whether its interval holds zero."


def test_a_held_out_run_that_diverged_is_said(write, losses):
    losses |= {("gate", LOW, 0): 1.5, ("gate", LOW, 1): 1.5, ("gate", LOW, 2): "diverged"}
    found = write(losses)
    assert "gate has no re-estimated mean: at the setting chosen without it, seed 2 diverged." in (
        found.paragraphs
    )
    assert cells(found.tables[1])["validation, re-estimated"][2] == "—"


@pytest.mark.parametrize("theme", [style.PAGE, style.PAPER])
def test_the_figures_draw_what_the_tables_say(write, close, theme):
    tuned, held_out = write(close, theme).figures
    assert tuned.name == "sensitivity_optimizer_learning_rate" and held_out.name == "reestimated"
    assert list(tuned.table["kind"].unique()) == ["mean", "seed 0", "seed 1", "seed 2"]
    assert len(tuned.table) == 3 + 9
    assert list(held_out.table["kind"]) == ["at the chosen setting"] * 2 + ["re-estimated"] * 2
    for figure in (tuned, held_out):
        svg = vl_convert.vegalite_to_svg(figure.spec)
        assert "&lt;b&gt;|post" in svg and "<b>" not in svg


@pytest.mark.parametrize(
    "change",
    [
        {"keep": lambda key: key[2] == 0},
        {"keep": lambda key: key[0] == "pre"},
        {"keep": lambda key: key[2] < 2},
        {"one": ("pre", HIGH, 0), "state": "pending"},
        {"one": ("pre", MIDDLE, 0), "state": "diverged"},
        {"all": 2.0},
    ],
)
def test_sweeps_of_every_kind_are_sensible(write, losses, change):
    keep = change.get("keep", lambda key: True)
    kept = {key: change.get("all", loss) for key, loss in losses.items() if keep(key)}
    if "one" in change:
        kept[change["one"]] = change["state"]
    found = write(kept)
    assert not any(word in all_text(found).lower() for word in ("nan", "none", "inf "))
    for figure in found.figures:
        assert vl_convert.vegalite_to_svg(figure.spec).startswith("<svg")


def test_draws_are_re_estimated_alone(write, losses):
    search = dict(strategy="random", trials=3, seed=0, rungs=None, keep=None)
    found = write(losses, search=search)
    assert [table.name for table in found.tables] == ["reestimated"]


@pytest.mark.parametrize("losses", [{}, {"all": "pending"}, {"all": "diverged"}])
def test_nothing_to_say_has_no_section(write, losses):
    kept = {key: losses.get("all", loss) for key, loss in noisy_losses(ARMS).items()
            if losses or key[1] == MIDDLE}  # fmt: skip
    assert write(kept) is None
