"""Tests that a picture can be read: words in their boxes, boxes apart, colours with contrast."""

import dataclasses
import itertools
import pathlib
import re
import struct
import xml.etree.ElementTree as ET
import zlib

import numpy as np
import pytest
import tiny_model
import vl_convert

from jtransformer import drawing
from jtransformer.cli import main
from jtransformer.drawing import metrics, palette
from jtransformer.drawing.picture import picture
from jtransformer.drawing.shapes import Grid, Line, Picture, Plus, Rect, Text
from jtransformer.drawing.svg import written
from jtransformer.spec import EncoderDecoder, LatentAttention, Rope, Shaw, YarnScaling, presets

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "experiments/norm_and_ffn"


def preset(name):
    spec = presets.PRESETS[name]()
    return getattr(spec, "model", spec)


def gpt2(**changes):
    return dataclasses.replace(presets.gpt2_small(), **changes)


LATENT = gpt2(
    attention=LatentAttention(rotary_width=32),
    position=Rope(scaling=YarnScaling()),
    sublayers="parallel",
    norm_placement="sandwich",
)
SPECS = {name: (preset, name) for name in presets.PRESETS}
SPECS |= {name: (tiny_model.VARIANTS.get, name) for name in tiny_model.VARIANTS}
SPECS |= {name: (tiny_model.STACKS.get, name) for name in tiny_model.STACKS}
NAMES = (*SPECS, "a long name", "many layers", "two", "others")
EVERY_SHEET = pytest.mark.parametrize("name", NAMES)


SHEETS = {}


def sheet_of(name):
    """Returns a sheet, made when it is first asked for."""
    if name not in SHEETS:
        SHEETS[name] = made(name)
    return SHEETS[name]


def made(name):
    if name in SPECS:
        make, which = SPECS[name]
        return drawing.sheet(make(which), name)
    if name == "a long name":
        return drawing.sheet(gpt2(), "a name that is longer than the model is wide " * 3)
    if name == "many layers":
        return drawing.sheet(tiny_model.changed(layers=100_000), name)
    if name == "two":
        return drawing.compared(("gpt2", gpt2()), ("latent", LATENT))
    shaw = gpt2(stack=EncoderDecoder(), position=Shaw())
    return drawing.compared(("t5", preset("t5_small")), ("shaw", shaw))


def area_of(shape):
    """Returns left, top, right and bottom."""
    match shape:
        case Text():
            width = metrics.width_of(shape.words, shape.style)
            left = shape.x - width if shape.to_right else shape.x
            size = metrics.SIZES[shape.style]
            return left, shape.baseline - 0.8 * size, left + width, shape.baseline + 0.25 * size
        case Grid():
            side = shape.cell * len(shape.cells)
            return shape.x, shape.y, shape.x + side, shape.y + side
        case Plus():
            r = shape.radius
            return shape.x - r, shape.y - r, shape.x + r, shape.y + r
        case Rect():
            return shape.x, shape.y, shape.right, shape.bottom
    raise AssertionError(shape)


def is_within(inner, outer, slack=0.01):
    (a, b, c, d), (left, top, right, bottom) = inner, outer
    return a >= left - slack and b >= top - slack and c <= right + slack and d <= bottom + slack


def meet(one, other):
    (a, b, c, d), (left, top, right, bottom) = one, other
    return a < right - 0.01 and left < c - 0.01 and b < bottom - 0.01 and top < d - 0.01


@EVERY_SHEET
def test_nothing_is_cut_and_nothing_overlaps(name):
    sheet = sheet_of(name)
    drawn = picture(sheet)
    page = (0, 0, drawn.width, drawn.height)
    rects = [area_of(shape) for shape in drawn.drawn if isinstance(shape, Rect)]
    inked = [area_of(shape) for shape in drawn.drawn if isinstance(shape, Text | Grid | Plus)]
    words = [shape.words for shape in drawn.drawn if isinstance(shape, Text)]
    assert all(words) and len(words) > 20
    for area in rects + inked:
        assert is_within(area, page)
    for one, other in itertools.combinations(inked, 2):
        assert not meet(one, other)
    for one, other in itertools.combinations(rects, 2):
        assert is_within(one, other) or is_within(other, one) or not meet(one, other)
    # Words lie in a box as a whole or outside of it as a whole.
    for area, rect in itertools.product(inked, rects):
        assert is_within(area, rect) or not meet(area, rect)


@EVERY_SHEET
def test_lines_pass_no_words_and_end_at_what_they_join(name):
    sheet = sheet_of(name)
    drawn = picture(sheet)
    words = [area_of(shape) for shape in drawn.drawn if isinstance(shape, Text)]
    rects = [shape for shape in drawn.drawn if isinstance(shape, Rect)]
    joined = rects + [shape for shape in drawn.drawn if isinstance(shape, Plus)]
    for line in (shape for shape in drawn.drawn if isinstance(shape, Line)):
        for (x0, y0), (x1, y1) in itertools.pairwise(line.points):
            assert x0 == pytest.approx(x1) or y0 == pytest.approx(y1)
            path = (min(x0, x1) - 0.5, min(y0, y1) - 0.5, max(x0, x1) + 0.5, max(y0, y1) + 0.5)
            assert not any(meet(path, area) for area in words)
        if line.has_arrow:
            assert any(_touches(line.points[-1], area_of(shape)) for shape in joined)


def _touches(point, area):
    (x, y), (left, top, right, bottom) = point, area
    inside = left - 0.01 <= x <= right + 0.01 and top - 0.01 <= y <= bottom + 0.01
    edges = (x - left, right - x, y - top, bottom - y)
    return inside and min(map(abs, edges)) < 0.01


@EVERY_SHEET
def test_picture_and_text_have_all_words_of_the_diagram(name):
    sheet = sheet_of(name)
    shown = " ".join(shape.words for shape in picture(sheet).drawn if isinstance(shape, Text))
    text = " ".join(" ".join(drawing.lines(sheet, 400)).split())
    for diagram in sheet.diagrams:
        for words in (diagram.name.strip(), f"{diagram.total:,} parameters", *diagram.facts):
            assert words in shown and words in text
        for box, _ in drawing.boxes_of(diagram):
            count = (f"{box.parameters:,}",) if box.parameters else ()
            for words in (box.title, *box.facts, *count):
                assert words in shown and words in text, box.key
    for words in sheet.settings:
        assert words in shown and words in text


@pytest.mark.parametrize("width", [20, 64, 100])
def test_text_is_no_wider_than_the_terminal(width):
    for sheet in map(sheet_of, NAMES):
        assert max(map(len, drawing.lines(sheet, width))) <= max(width, 64)


def test_the_file_is_xml_with_a_title_and_a_description():
    name = "a <b> & \x00 'c' \"d\""
    root = ET.fromstring(drawing.svg(drawing.sheet(gpt2(), name)))
    space = "{http://www.w3.org/2000/svg}"
    title, description = root.find(f"{space}title"), root.find(f"{space}desc")
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert title.text == "Block diagram of a <b> & \ufffd 'c' \"d\""
    for words in ("124,439,808 parameters", "× 12: layers 0 to 11", "Self-attention"):
        assert words in description.text


def luminance(colour):
    def linear(part):
        value = int(part, 16) / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    r, g, b = (linear(colour[n : n + 2]) for n in (1, 3, 5))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one, other):
    """Returns the contrast ratio of WCAG 2.2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("chosen", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_words_and_lines_stand_out(chosen):
    assert chosen.keys() == palette.LIGHT.keys()
    assert set(palette.FILLS) >= {box.role for sheet in map(sheet_of, NAMES) for d in sheet.diagrams
                                  for box, _ in drawing.boxes_of(d)} - {"stream"}  # fmt: skip
    for fill in ("ground", *palette.FILLS):
        assert contrast(chosen["ink"], chosen[fill]) >= 7
        assert contrast(chosen["line"], chosen[fill]) >= 3
        assert contrast(chosen["mark"], chosen[fill]) >= 3
    assert contrast(chosen["link"], chosen["ground"]) >= 3
    assert contrast(chosen["cell"], chosen["empty"]) >= 3


def test_every_colour_turns_dark():
    """What has a colour has the class by which the dark palette replaces it."""
    text = drawing.svg(sheet_of("others"))
    style = text[text.index("<style>") : text.index("</style>")]
    body = text[text.index("</style>") :]
    for kind, attribute in (("f", "fill"), ("s", "stroke")):
        for element in re.findall(r"<(?!/)[^>]*>", body):
            for colour in re.findall(rf' {attribute}="(#\w+)"', element):
                (name,) = re.findall(rf"\b{kind}-(\w+)", element)
                assert palette.LIGHT[name] == colour
                assert f".{kind}-{name} {{ {attribute}: {palette.DARK[name]} }}" in style


def pixels_of(png):
    """Decodes a PNG of eight bits per channel into rows of RGBA."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert (depth, kind) == (8, 6)
    at, data = 8, b""
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        at += size + 12
    rows = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + 4 * width)
    found = np.zeros((height, 4 * width), np.uint8)
    for y, row in enumerate(rows):
        above = found[y - 1] if y else np.zeros(4 * width, np.uint8)
        found[y] = _unfiltered(row[0], row[1:], above)
    return found.reshape(height, width, 4)


def _unfiltered(kind, row, above):
    """Undoes one of the five filters of a row (PNG specification, sec. 9.2)."""
    out = np.zeros(len(row) + 4, np.int64)
    upper = np.concatenate([np.zeros(4, np.int64), above.astype(np.int64)])
    for n in range(4, len(out), 4):
        a, b, c = out[n - 4 : n], upper[n : n + 4], upper[n - 4 : n]
        p = a + b - c
        nearest = np.where(
            (abs(p - a) <= abs(p - b)) & (abs(p - a) <= abs(p - c)),
            a,
            np.where(abs(p - b) <= abs(p - c), b, c),
        )
        guess = (0, a, b, (a + b) // 2, nearest)[kind]
        out[n : n + 4] = (row[n - 4 : n] + guess) % 256
    return out[4:]


def test_drawn_words_end_where_they_are_measured_to_end():
    """The ink of a line reaches its measured end and not beyond, whatever fonts are here."""
    lines = {shape.words: shape for shape in picture(sheet_of("two")).drawn
             if isinstance(shape, Text) and len(shape.words) < 40}  # fmt: skip
    longest = sorted(lines.values(), key=lambda line: -len(line.words))[:3]
    rows = [Text(4, 20 * n + 16, line.words, line.style) for n, line in enumerate(longest)]
    widths = [metrics.width_of(line.words, line.style) for line in rows]
    drawn = Picture(max(widths) + 40, 20 * len(rows) + 4, tuple(rows))
    text = written(drawn, title="", description="")
    dark = pixels_of(vl_convert.svg_to_png(text))[:, :, 0] < 128
    for n, width in enumerate(widths):
        columns = np.flatnonzero(dark[20 * n + 4 : 20 * n + 20].any(axis=0))
        assert -8 < columns[-1] + 1 - (4 + width) < 1


def test_the_picture_of_the_readme_is_drawn_from_its_config(tmp_path, capsys):
    words = ["--config", str(FOLDER / "config.py"), "--out", str(tmp_path / "model.svg")]
    assert main(["draw", *words]) == 0
    capsys.readouterr()
    assert (tmp_path / "model.svg").read_text() == (FOLDER / "model.svg").read_text()
    assert 'src="experiments/norm_and_ffn/model.svg"' in (ROOT / "README.md").read_text()
