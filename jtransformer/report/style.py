"""Colours, type and sizes of the figures.

Colours are those of Okabe and Ito (2008), which stay apart for colour-blind readers:
https://jfly.uni-koeln.de/color/. The baseline takes the palette's black, drawn in the colour of
the text so that it turns with light and dark.
"""

import dataclasses
import math
from typing import Any

import altair as alt
import pandas

from jtransformer.stats import Analysis

# Yellow is left out: it cannot be seen on white.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
VERDICTS = {"better": OKABE_ITO[0], "worse": OKABE_ITO[1]}
"""Verdicts that have a colour; all others take the ink."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure: its file name, its words and its Vega-Lite spec."""

    name: str
    title: str
    caption: str
    spec: dict[str, Any]


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
            orient="top", columns=3, symbolType="stroke", symbolStrokeWidth=3, symbolOpacity=1
        ),
    )
    return color, alt.selection_point(fields=["arm"], bind="legend", name="arms")


def dim(toggle: alt.Parameter, opacity: float) -> Any:
    """Gives the opacity of a mark, nearly none where another arm is singled out."""
    return alt.when(toggle).then(alt.value(opacity)).otherwise(alt.value(0.08 * opacity))


def apply(chart: Any, theme: Theme) -> dict[str, Any]:
    """Turns a chart into a Vega-Lite spec in a theme."""
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
    styled = chart.properties(width=theme.width, background=theme.background or "transparent")
    styled = styled.configure(
        font=theme.font,
        axis=axis,
        legend={"labelColor": theme.ink, "titleColor": theme.ink, "labelLimit": 240},
        view={"stroke": None},
        autosize={"type": "fit-x", "contains": "padding"},
    )
    return styled.to_dict()
