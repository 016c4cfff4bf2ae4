"""Tests of colours: seen on both grounds, told apart by all readers, and by more than colour."""

import importlib.resources
import itertools
import re

import altair as alt
import numpy as np
import pytest
import vl_convert
from report_pages import figures_of
from sweep_fixture import noisy_losses, write_sweep

from jtransformer.records import load_sweep
from jtransformer.report import style

TEMPLATE = (importlib.resources.files("jtransformer.report") / "page.html.j2").read_text()
GRAPHIC, WORDS = 3.0, 4.5
"""Least contrasts of WCAG 2.2: 1.4.11 for what is drawn, 1.4.3 for what is read."""

# Machado, Oliveira and Fernandes (2009), Table 1 at severity 1: linear RGB as seen by others.
SIGHT = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
}  # fmt: skip


def linear(color):
    values = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    lights = sorted(linear(color) @ [0.2126, 0.7152, 0.0722] + 0.05 for color in (one, other))
    return lights[1] / lights[0]


def lab(rgb):
    """CIE 1976 L*a*b* of linear sRGB, at D65."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089]
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def grounds():
    """The page's colours, light and dark, as its style sheet has them."""
    blocks = re.findall(r":root \{([^}]*--paper[^}]*)\}", TEMPLATE)
    return [dict(re.findall(r"--([\w]+): (#[0-9a-f]{6})", block)) for block in blocks]


def test_words_and_lines_are_seen_on_both_grounds():
    light, dark = grounds()
    assert light["paper"] == style.PAPER.background and dark["paper"] < "#222222"
    for ground in (light, dark):
        for name in ("ink", "soft", "accent", "worse", "unequal"):
            for behind in ("paper", "tint"):
                assert contrast(ground[name], ground[behind]) >= WORDS, (name, behind)
        for color in style.OKABE_ITO:
            assert contrast(color, ground["paper"]) >= GRAPHIC, color
    assert contrast(style.PAPER.ink, style.PAPER.background) >= WORDS


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_stay_apart(sight):
    """The least difference in L*a*b* is that of the palette as published, 18 (green, purple)."""
    seen = {color: lab(SIGHT[sight] @ linear(color)) for color in style.OKABE_ITO}
    near = {
        pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]])
        for pair in itertools.combinations(style.OKABE_ITO, 2)
    }
    assert min(near.values()) >= 17.8, min(near, key=near.get)


def test_twelve_arms_are_told_apart_and_six_need_no_more_than_colour(tmp_path):
    looks = {}
    for arms in (6, 12):
        effects = {f"arm{i}": 0.01 * i for i in range(arms)}
        losses = noisy_losses(effects, seeds=2)
        record = load_sweep(write_sweep(tmp_path / str(arms), losses))
        figure = next(f for f in figures_of(record, style.PAPER) if f.name == "learning_validation")
        looks[arms] = [
            {channel: unit["encoding"][channel]["scale"]["range"]
             for channel in ("color", "strokeDash", "shape") if channel in unit["encoding"]}
            for unit in figure.spec["layer"] if "field" in unit["encoding"]["color"]
        ]  # fmt: skip
    assert [set(channels) for channels in looks[6]] == [{"color"}] * 3
    assert [set(channels) - {"color"} for channels in looks[12]] == [
        {"strokeDash"}, {"strokeDash"}, set()]  # fmt: skip
    for channels in looks[12][:2]:
        assert len(set(map(str, zip(*channels.values(), strict=True)))) == 12


def test_null_a_mark_with_a_shape_of_its_own_keeps_it():
    names = [f"arm{i}" for i in range(9)]
    colors = [style.OKABE_ITO[i % 6] for i in range(9)]
    color = alt.Color("arm:N", scale=alt.Scale(domain=names, range=colors))
    rows = style.data([{"arm": "arm1", "x": 1}])
    for mark, channel in ((dict(shape="cross"), None), ({}, "shape")):
        chart = alt.Chart(rows).mark_point(**mark).encode(x="x:Q", color=color)
        encoding = style.apply(chart, style.PAPER)["encoding"]
        assert set(encoding) - {"x", "color"} == ({channel} if channel else set())


def test_names_that_every_javascript_object_has_are_drawn(tmp_path):
    """Vega-Lite sorts by a list of names in a way that takes them for what it knows of objects."""
    losses = noisy_losses({"constructor": 0.0, "toString": -0.03, "valueOf": 0.02}, seeds=2)
    losses["valueOf", 0.016, 1] = "diverged"
    figures = figures_of(load_sweep(write_sweep(tmp_path, losses)), style.PAPER)
    assert {"differences", "divergence_by_optimizer_learning_rate"} <= {f.name for f in figures}
    for figure in figures:
        assert "toString" in vl_convert.vegalite_to_svg(figure.spec), figure.name
