"""Colours, type and sizes of the figures.

Colours are those of Okabe and Ito (2008), which stay apart for colour-blind readers:
https://jfly.uni-koeln.de/color/. A violet and a crimson stand for their orange, sky blue and
yellow, which have less contrast than 3 to 1 on white (WCAG 2.2, 1.4.11). The baseline takes the
palette's black, drawn in the colour of the text so that it turns with light and dark. From the
seventh arm on colours repeat, and arms differ by dashes or shapes as well.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas

from jtransformer.report.controls import Control
from jtransformer.stats import Analysis

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7850F0", "#C8143C")
VERDICTS = {"better": OKABE_ITO[0], "worse": OKABE_ITO[1]}
"""Verdicts that have a colour; all others take the ink."""
DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3])
_OF_OBJECTS = {
    *("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString"),
    *("toString", "valueOf"),
}
SHAPES = ("circle", "square", "triangle-up", "diamond")
"""How arms of one colour differ, in the order in which they come."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure: its file name, its words, its Vega-Lite spec and the data that it draws.

    Attributes:
        name: Stem of its files: letters, digits and "_"; unique on a page.
        title: Its heading.
        caption: What is drawn, and what an interval is.
        spec: In the theme that was asked for.
        table: All that is drawn, not thinned.
        controls: Menus beside it on the page.
        wide: Whether it needs the page's full width.
    """

    name: str
    title: str
    caption: str
    spec: dict[str, Any]
    table: pandas.DataFrame
    controls: tuple[Control, ...] = ()
    wide: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Theme:
    """Where a figure is shown: ink colour, background (None: see-through) and width in pixels."""

    ink: str
    background: str | None
    width: int | str
    font: str


# "currentColor" is the text's colour: the page's figures turn with light and dark by themselves.
PAGE = Theme(ink="currentColor", background=None, width="container", font="system-ui, sans-serif")
PAPER = Theme(ink="#1b1b1b", background="#ffffff", width=640, font="Arial, Helvetica, sans-serif")


def data(rows: Any) -> Any:
    """Wraps rows as inline data; missing numbers become null."""
    if isinstance(rows, pandas.DataFrame):
        rows = rows.to_dict(orient="records")
    clean = [
        {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
        for row in rows
    ]
    return alt.InlineData(values=clean)


def arm_color(analysis: Analysis, theme: Theme) -> tuple[alt.Color, alt.Parameter]:
    """Gives each arm its colour, the same in all figures, and a legend that toggles arms."""
    names = [arm.name for arm in analysis.arms]
    others = [name for name in names if name != analysis.baseline]
    palette = {name: OKABE_ITO[i % len(OKABE_ITO)] for i, name in enumerate(others)}
    color = alt.Color(
        "arm:N",
        title=None,
        scale=alt.Scale(domain=names, range=[palette.get(name, theme.ink) for name in names]),
        legend=alt.Legend(
            orient="top",
            symbolType="stroke",
            symbolSize=500,
            symbolStrokeWidth=3,
            symbolOpacity=1,
        ),
    )
    return color, alt.selection_point(fields=["arm"], bind="legend", name="arms")


def dim(toggle: alt.Parameter, opacity: float) -> Any:
    """Gives the opacity of a mark, nearly none where another arm is singled out."""
    return alt.when(toggle).then(alt.value(opacity)).otherwise(alt.value(0.08 * opacity))


def arms_of(spec: dict[str, Any]) -> list[str]:
    """Lists the arms that a figure's legend singles out; none where it has no such legend."""
    if not any(param["name"] == "arms" for param in spec.get("params", ())):
        return []
    return next(iter(_colored(spec)))["encoding"]["color"]["scale"]["domain"]


def apply(chart: Any, theme: Theme) -> dict[str, Any]:
    """Turns a chart into a Vega-Lite spec in a theme.

    Panels side by side have widths of their own: Vega-Lite fits single views alone to a width.
    Where arms are more than colours, lines and rules of one colour are told apart by dashes, points
    by shapes.
    """
    axis = {
        "labelColor": theme.ink,
        "titleColor": theme.ink,
        "domainColor": theme.ink,
        "tickColor": theme.ink,
        "gridColor": theme.ink,
        "gridOpacity": 0.12,
        "domainOpacity": 0.5,
        "tickOpacity": 0.5,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelFontSize": 11,
        "titleFontSize": 12,
    }
    fitted: dict[str, Any] = {}
    if not isinstance(chart, alt.HConcatChart | alt.VConcatChart | alt.ConcatChart):
        chart = chart.properties(width=theme.width)
        fitted = {"autosize": {"type": "fit-x", "contains": "padding"}}
    styled = chart.properties(background=theme.background or "transparent").configure(
        font=theme.font,
        axis=axis,
        legend={
            "labelColor": theme.ink,
            "titleColor": theme.ink,
            "labelLimit": 240,
            "columns": 3,
        },
        title={"color": theme.ink, "fontWeight": "normal", "fontSize": 12},
        view={"stroke": None},
        **fitted,
    )
    spec = _set_apart(styled.to_dict())
    units = list(_colored(spec))
    lines = [unit for unit in units if _mark(unit) in ("line", "rule")]
    # Where there are lines they tell the arms apart, and points on them need not.
    for unit in lines or units:
        _tell_apart(unit)
    if not lines:
        # A short line in the legend would stand for points, and take no fill.
        for unit in units:
            legend = unit["encoding"]["color"].get("legend") or {}
            for setting in ("symbolType", "symbolSize"):
                legend.pop(setting, None)
    return spec


def _set_apart(value: Any) -> Any:
    """Keeps names from being taken for what every JavaScript object has.

    Vega does not draw a figure of an arm called "constructor"; a space without width helps.
    """
    if isinstance(value, str):
        return f"{value}\u200b" if value in _OF_OBJECTS else value
    if isinstance(value, dict):
        return {key: _set_apart(part) for key, part in value.items()}
    return [_set_apart(part) for part in value] if isinstance(value, list) else value


def _colored(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields every view of a spec whose colours are arms."""
    color = spec.get("encoding", {}).get("color", {})
    if color.get("field") == "arm" and "domain" in (color.get("scale") or {}):
        yield spec
    for group in ("layer", "hconcat", "vconcat", "concat"):
        for part in spec.get(group, ()):
            yield from _colored(part)


def _tell_apart(unit: dict[str, Any]) -> None:
    """Adds a second channel to a view in which colours repeat."""
    color = unit["encoding"]["color"]
    names, colors = color["scale"]["domain"], color["scale"]["range"]
    if len(set(colors)) == len(colors) or "mark" not in unit:
        return
    channels: dict[str, tuple[str, tuple[Any, ...]]] = {
        "line": ("strokeDash", DASHES),
        "rule": ("strokeDash", DASHES),
        "point": ("shape", SHAPES),
    }
    channel, looks = channels.get(_mark(unit), ("", ()))
    if not channel or channel in unit["mark"]:
        return
    nth = [colors[:index].count(taken) for index, taken in enumerate(colors)]
    looked = [looks[n % len(looks)] for n in nth]
    # The same title and legend as the colour's, so that Vega-Lite makes one legend of both.
    look = {"title": None, "legend": color.get("legend"), "type": "nominal", "field": "arm"}
    unit["encoding"][channel] = look | {"scale": {"domain": names, "range": looked}}


def _mark(unit: dict[str, Any]) -> str:
    mark = unit.get("mark", "")
    return mark["type"] if isinstance(mark, dict) else mark
