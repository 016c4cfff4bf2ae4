"""Estimates with their intervals, one row of a figure for each arm."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt

from jtransformer.report import style
from jtransformer.stats import Analysis, Estimate

ROW = 44
"""Height of an arm's row, in pixels."""


class Rows(NamedTuple):
    """What all marks of such a figure have in common.

    Attributes:
        title: Of the axis.
        format: Of its numbers.
        arms: In the order of the rows.
        analysis: Whose arms they are; it gives them their colours.
        theme: Where the figure is shown.
    """

    title: str
    format: str
    arms: list[str]
    analysis: Analysis
    theme: style.Theme


def row(arm: str, kind: str, estimate: Estimate) -> dict[str, Any]:
    """Returns the data of one estimate; the ends are None where it has no interval."""
    ends = {"low": estimate.low, "high": estimate.high}
    return {"arm": arm, "kind": kind, "value": estimate.value} | ends


def seed_row(arm: str, seed: int, value: float) -> dict[str, Any]:
    """Returns the data of one seed."""
    return {"arm": arm, "kind": f"seed {seed}", "value": value, "low": None, "high": None}


def drawn(rows: Rows, groups: Sequence[tuple[list[dict[str, Any]], bool, int]]) -> dict[str, Any]:
    """Draws groups of estimates, each with its intervals.

    Args:
        rows: What they have in common.
        groups: The data of each group, whether its points are filled, and how many pixels it
            stands below the middle of the row; the first is the one that a legend toggles.

    Returns:
        A Vega-Lite spec.
    """
    color, toggle = style.arm_color(rows.analysis, rows.theme)
    look = {"color": color, "opacity": style.dim(toggle, 1.0)}
    scale = alt.Scale(zero=True, padding=12, nice=False)
    x = alt.X("value:Q", title=rows.title, scale=scale,
              axis=alt.Axis(tickCount=7, format=rows.format))  # fmt: skip
    y = alt.Y("arm:N", sort=rows.arms, title=None)
    zero = alt.Chart(style.data([{"value": 0}])).mark_rule(strokeDash=[3, 3], opacity=0.6)
    layers: list[Any] = [zero.encode(x="value:Q", color=alt.value(rows.theme.ink))]
    for data, filled, offset in groups:
        # One seed, or no noise, gives points without intervals.
        if intervals := [one for one in data if one["low"] is not None]:
            rule = alt.Chart(style.data(intervals)).mark_rule(strokeWidth=2.2, yOffset=offset)
            layers.append(rule.encode(x=alt.X("low:Q", title=rows.title), x2="high:Q", y=y, **look))
        size = 80 if offset <= 8 else 26
        point = alt.Chart(style.data(data)).mark_point(filled=filled, size=size, yOffset=offset)
        tip = [alt.Tooltip(f"{name}:Q", format="+.4f") for name in ("value", "low", "high")]
        layers.append(point.encode(x=x, y=y, tooltip=["arm:N", "kind:N", *tip], **look))
    layers[-1] = layers[-1].add_params(toggle)
    chart = alt.layer(*layers).properties(height=ROW * len(rows.arms))
    return style.apply(chart, rows.theme)
