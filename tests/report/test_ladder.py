"""Tests for jtransformer.report.ladder: words, tables and figures across scales."""

import json
import math

import pytest
from ladder_fixture import SIZES, law, load_ladder
from sweep_fixture import DATA

from jtransformer.report import style
from jtransformer.report.ladder import section
from jtransformer.stats import ladder

BASE = law(1.5, 0.6, 0.3)
LAWS = {
    "pre": BASE,
    "grows": lambda size: BASE(size) - 0.01 * math.log2(size / 2000),
    "<b>": lambda size: BASE(size) + 0.05,
}


def written(parts, theme=style.PAGE):
    return section(ladder(parts), [analysis for _, analysis in parts], theme)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return load_ladder(tmp_path_factory.mktemp("ladder"), LAWS, sd=0.0002)


@pytest.fixture(scope="module")
def found(parts):
    return written(parts)


def columns(found, name):
    (table,) = (table for table in found.tables if table.name == name)
    assert len({len(column.cells) for column in table.columns}) == 1
    return {column.heading: column.cells for column in table.columns}


def figure(found, name):
    (drawn,) = (one for one in found.figures if one.name == name)
    return drawn


def test_words_say_scope_trends_and_what_is_extrapolated(found):
    text = "\n".join(found.paragraphs)
    for phrase in (
        "The scales differ in size alone. Losses are looked at against parameters between",
        "from 4,000 to 256,000 of the baseline, a factor of 64.",
        "that of grows grows with scale (−0.0",
        "that of <b> holds (",
        "±0.00083 nats/byte per doubling, which adds up to 0.005 over the whole ladder (no margin",
        "What goes beyond 256,000 is extrapolated, by a factor of 4",
    ):
        assert phrase in text, phrase
    assert found.name == "ladder" and "Provisional" not in text and "No fit" not in text


def test_tables_have_every_figure_with_its_interval(found):
    trends = columns(found, "ladder_trends")
    assert trends["arm"] == ["grows", "<b>"] and trends["with scale"] == ["grows", "holds"]
    last = "extrapolated to 1,024,000"
    for name in ("slope per doubling", "difference at tiny", "difference at huge", last):
        assert all(" ± " in cell for cell in trends[name]), name
    fits = columns(found, "ladder_fits")
    assert fits["arm"] == ["pre", "grows", "<b>"] and fits["α minus pre's"][0] == "—"
    for name in ("E", "α", f"loss {last}"):
        assert all(" to " in cell for cell in fits[name]), name
    for table in found.tables:
        assert "extrapolated" in table.caption


@pytest.mark.parametrize("name, value", [("ladder_fits", "loss"),
                                         ("ladder_differences", "difference")])  # fmt: skip
def test_what_lies_beyond_the_runs_is_marked_wherever_it_is_drawn(found, name, value):
    drawn = figure(found, name)
    beyond = drawn.table.query("what == 'extrapolated'")
    inside = drawn.table.query("what == 'fitted'")
    largest = max(SIZES.values())
    assert beyond["size"].min() >= largest * 0.999 and beyond["size"].max() <= largest * 4.001
    assert inside["size"].max() <= largest * 1.001
    assert "extrapolated" in drawn.caption
    dashed = [layer for layer in drawn.spec["layer"] if layer["mark"].get("strokeDash") == [5, 4]]
    (line,) = dashed
    rows = drawn.spec["datasets"][line["data"]["name"]] if "name" in line["data"] else None
    rows = rows if rows is not None else line["data"]["values"]
    assert {row["what"] for row in rows} == {"extrapolated"}
    assert "what" in json.dumps(line["encoding"]["tooltip"])
    assert line["encoding"]["y"]["field"] == value


@pytest.mark.parametrize("theme", [style.PAGE, style.PAPER])
def test_figures_draw_arms_in_their_colours_and_nothing_undefined(parts, theme):
    for drawn in written(parts, theme).figures:
        text = json.dumps(drawn.spec, allow_nan=False)
        assert drawn.spec["width"] == theme.width and "Infinity" not in text
        color = next(
            layer["encoding"]["color"] for layer in drawn.spec["layer"]
            if layer["encoding"].get("color", {}).get("field") == "arm"
        )  # fmt: skip
        assert color["scale"]["domain"] == ["pre", "grows", "<b>"]
        assert color["scale"]["range"][0] == theme.ink


def test_the_data_are_those_drawn(found, parts):
    table = figure(found, "ladder_differences").table.query("what == 'estimate' and arm == 'grows'")
    for (_, analysis), row in zip(parts, table.to_dict("records"), strict=True):
        model = analysis.arm(f"{analysis.scale}-grows").comparison.model
        assert (row["difference"], row["low"], row["high"]) == (model.value, model.low, model.high)
    runs = figure(found, "ladder_fits").table.query("what == 'run'")
    assert len(runs) == 3 * 4 * 3 and set(runs["seed"]) == {0, 1, 2}


def test_three_scales_are_not_drawn_on(tmp_path):
    three = {name: SIZES[name] for name in ("tiny", "small", "large")}
    found = written(load_ladder(tmp_path, LAWS, three, sd=0.0005))
    assert any("so E is taken to be 0" in text for text in found.paragraphs)
    fits = figure(found, "ladder_fits").table
    assert not len(fits.query("what == 'extrapolated'")) and len(fits.query("what == 'fitted'"))
    assert columns(found, "ladder_fits")["E"] == ["0, fixed"] * 3
    assert set(columns(found, "ladder_fits")["loss extrapolated to 256,000"]) == {"—"}
    assert len(figure(found, "ladder_differences").table.query("what == 'extrapolated'"))


def test_one_seed_claims_nothing(tmp_path):
    found = written(load_ladder(tmp_path, LAWS, seeds=1))
    text = "\n".join(found.paragraphs)
    assert "No fit for pre, grows and <b>: no interval from one seed." in text
    assert "Without a second seed there is no interval of a slope, so nothing is claimed." in text
    for drawn in found.figures:
        json.dumps(drawn.spec, allow_nan=False)


@pytest.mark.parametrize("outcome", ["pending", "diverged"])
def test_a_ladder_without_figures_says_so(tmp_path, outcome):
    found = written(load_ladder(tmp_path, LAWS, ends=lambda arm, seed: outcome))
    assert found.figures == [] and found.tables == []
    text = "\n".join(found.paragraphs)
    reason = "has no finished run" if outcome == "pending" else "diverges in 3 of 3 runs"
    assert f"pre at tiny, which {reason}" in text and "nan" not in text


def test_no_ladder_no_section(parts):
    assert section(None, [analysis for _, analysis in parts], style.PAGE) is None


def test_the_unit_is_the_datas(tmp_path):
    parts = load_ladder(tmp_path, LAWS, data=DATA | {"loss_unit": "nats/token"})
    found = written(parts)
    assert "nats/byte" not in repr(found.paragraphs) + repr(found.tables)
    assert all("nats/token" in json.dumps(drawn.spec) for drawn in found.figures)
