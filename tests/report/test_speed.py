"""Tests for jtransformer.report.speed: the words follow the numbers, the figure draws."""

import json
import re

import pytest
import vl_convert
from report_pages import all_text, cells
from sweep_fixture import RATES, noisy_losses, write_sweep

from jtransformer.records import load_sweep
from jtransformer.report import style
from jtransformer.report.speed import section
from jtransformer.stats import analyse, speed

MIDDLE = RATES[1]
ARMS = {"pre": 0.0, "<b>|post": 0.03, "gate": -0.03}
CONSTANT = {"model": {}, "schedule": {"kind": "constant"}}


@pytest.fixture
def losses():
    return noisy_losses(ARMS)


@pytest.fixture
def write(tmp_path):
    def written(losses, theme=style.PAGE, change=None, **manifest):
        folder = write_sweep(tmp_path, losses, **manifest)
        if change is not None:
            change(folder)
        record = load_sweep(folder)
        analysis = analyse(record)
        return section(speed(record, analysis), analysis, theme)

    return written


def costs(**by_arm):
    """Returns a change of the FLOPs per token of some arms."""

    def change(folder):
        manifest = json.loads((folder / "sweep.json").read_text())
        for arm in manifest["arms"]:
            arm["training_flops_per_token"] = by_arm.get(arm["name"], 600_000)
        (folder / "sweep.json").write_text(json.dumps(manifest))

    return change


def test_a_faster_arm_is_said_with_its_interval(write, losses):
    found = write(losses)
    assert re.match(
        r"Tokens to reach the final loss of pre, as a multiple of its own: gate 0\.\d\d "
        r"\(95 % interval 0\.\d\d to 0\.\d\d\)\.",
        found.paragraphs[0],
    )
    assert found.paragraphs[1].startswith(
        "Not in every seed is the final loss of pre reached within the run by <b>|post in 0 of 3 "
        "(median over 1.00 times its tokens)"
    )
    table = cells(found.tables[0])
    assert table["arm"] == ["<b>|post", "gate"] and table["reached in"] == ["0 of 3", "3 of 3"]
    assert table["tokens needed"][0] == "median > 1.00"
    assert re.fullmatch(r"0\.\d\d \(0\.\d\d to 0\.\d\d\)", table["tokens needed"][1])


def test_what_cannot_be_told_is_not_claimed(write):
    found = write(noisy_losses({"pre": 0.0, "same": -0.006}, sd=0.003))
    ratio = cells(found.tables[0])["tokens needed"][0]
    value, low, high = re.findall(r"\d\.\d\d", ratio)
    assert float(low) < 1 < float(high)
    assert found.paragraphs[0] == (
        "Whether more or fewer tokens are needed than by pre cannot be told for same "
        f"{value} (95 % interval {low} to {high})."
    )


def test_what_is_held_equal_matters_where_the_side_changes(write, losses):
    """At 2.5 times the FLOPs the arm is read at 0.4 of its tokens, where it is far behind."""
    found = write(losses, change=costs(gate=1_500_000))
    (text,) = [text for text in found.paragraphs if text.startswith("What is held equal matters")]
    assert re.search(
        r"gate is better at equal tokens \(−0\.0\d+ ± 0\.\d+\), worse at equal FLOPs \(\+0\.\d+ ± "
        r"0\.\d+\) and better at equal seconds", text,
    )  # fmt: skip
    assert cells(found.tables[0])["FLOPs/token"] == ["+0.00 %", "+150.00 %"]


def test_where_no_side_changes_that_is_said(write, losses):
    found = write(losses)
    assert "What is held equal, tokens or compute, changes no arm's reading." in (found.paragraphs)


def test_the_schedule_decides_about_the_caveat(write, losses):
    text = "the middle of a run is not the end of a shorter one"
    assert text in all_text(write(losses))


def test_null_a_constant_rate_has_no_caveat(write, losses):
    assert "end of a shorter one" not in all_text(write(losses, base=CONSTANT))


def test_the_clock_stands_in_its_column_or_is_refused(write, losses):
    found = write(losses)
    assert "at equal seconds (nats/byte)" in cells(found.tables[0])
    assert any("whatever else ran there is in them" in text for text in found.paragraphs)


def test_refused_seconds_have_no_column(write, losses):
    def other(folder):
        for path in folder.glob("runs/gate/*/environment.json"):
            path.write_text(json.dumps(json.loads(path.read_text()) | {"device_kind": "H200"}))

    found = write(losses, change=other)
    assert "at equal seconds (nats/byte)" not in cells(found.tables[0])
    assert "Seconds are not compared: the runs are of different devices (H200, cpu)." in (
        found.paragraphs
    )


def test_too_few_points_are_one_sentence(write, losses):
    def ends(folder):
        for path in folder.rglob("metrics.jsonl"):
            lines = path.read_text().splitlines()
            path.write_text("".join(f"{lines[n]}\n" for n in (5, 9)))

    found = write(losses, change=ends)
    assert found.tables == [] and found.figures == []
    assert found.paragraphs == [
        "A run has 2 evaluated points, too few to read off its curve when it reached a loss or "
        "what it had at equal compute; with 3 or more that is done. Lower training.evaluate_every "
        "to have them."
    ]


def test_an_early_arm_and_a_waiting_one_are_named(write, losses):
    losses |= {("gate", MIDDLE, seed): 1.0 for seed in range(3)}
    losses["<b>|post", MIDDLE, 2] = "pending"
    text = all_text(write(losses))
    assert "gate had the baseline's final loss at the first evaluated point" in text
    assert "Not read yet, because not finished: <b>|post." in text


@pytest.mark.parametrize("theme", [style.PAGE, style.PAPER])
def test_the_figure_has_every_point_by_its_flops(write, losses, theme):
    (figure,) = write(losses, theme, costs(gate=1_500_000)).figures
    assert figure.name == "loss_by_compute" and len(figure.table) == 3 * 3 * 5
    assert figure.table.query("arm == 'gate'")["flops"].max() == 204800 * 1_500_000
    svg = vl_convert.vegalite_to_svg(figure.spec)
    assert "&lt;b&gt;|post" in svg and "<b>" not in svg


@pytest.mark.parametrize(
    "change",
    [
        {"keep": lambda key: key[2] == 0},
        {"one": ("gate", 1), "state": "diverged"},
        {"one": ("<b>|post", 1), "state": "diverged"},
        {"all": 2.0},
        {"all": 5.0},
    ],
)
def test_sweeps_of_every_kind_are_sensible(write, losses, change):
    keep = change.get("keep", lambda key: True)
    kept = {key: change.get("all", loss) for key, loss in losses.items() if keep(key)}
    if "one" in change:
        arm, seed = change["one"]
        kept |= {(arm, rate, seed): change["state"] for rate in RATES}
    found = write(kept)
    assert not re.search(r"\b(nan|none|inf)\b", all_text(found).lower())
    for figure in found.figures:
        assert vl_convert.vegalite_to_svg(figure.spec).startswith("<svg")


@pytest.mark.parametrize("state", ["pending", "diverged"])
def test_nothing_to_compare_has_no_section(write, losses, state):
    assert write(dict.fromkeys(losses, state)) is None
