"""The same question at several scales: one table and one figure that hold the answers together."""

from typing import Any

import altair as alt
import pandas

from jtransformer.report import judging, numbers, style
from jtransformer.report.summary import Column
from jtransformer.stats import Analysis, ArmAnalysis


def scales_table(analyses: tuple[Analysis, ...]) -> list[Column]:
    """Tabulates each arm's difference and verdict at every scale, against that scale's baseline."""
    first = analyses[0]
    columns = [Column("arm", [first.label(arm) for arm in first.arms])]
    for analysis in analyses:
        parameters = numbers.count(analysis.arm(analysis.baseline).parameters)
        cells = [_cell(analysis, arm) for arm in analysis.arms]
        columns.append(Column(f"{analysis.scale} ({parameters} parameters)", cells))
    return columns


def _cell(analysis: Analysis, arm: ArmAnalysis) -> str:
    word = arm.verdict.word
    if arm.comparison is None or word in ("baseline", "incomplete"):
        return word
    return f"{numbers.difference_with_interval(analysis.difference(arm))}, {word}"


def scales_figure(analyses: tuple[Analysis, ...], theme: style.Theme) -> style.Figure | None:
    """Draws how the differences go with the scale; None while there is no difference."""
    rows = [
        {
            "scale": analysis.scale,
            "arm": analysis.label(arm),
            "difference": shown.value,
            "low": shown.low,
            "high": shown.high,
            "interval": analysis.rule.intervals,
        }
        for analysis in analyses
        for arm in analysis.arms
        if (shown := analysis.difference(arm)) is not None
    ]
    if not rows:
        return None
    names = list(dict.fromkeys(row["arm"] for row in rows))
    colors = [style.OKABE_ITO[index % len(style.OKABE_ITO)] for index in range(len(names))]
    color = alt.Color(
        "arm:N",
        title=None,
        scale=alt.Scale(domain=names, range=colors),
        legend=alt.Legend(orient="top", columns=3),
    )
    x = alt.X(
        "scale:N", title="scale", sort=[str(a.scale) for a in analyses], axis=alt.Axis(labelAngle=0)
    )
    title = f"difference to the scale's baseline, {analyses[0].data['loss_unit']}"
    y = alt.Y("difference:Q", title=title, axis=alt.Axis(format="+.4~g", tickCount=7))
    offset = alt.XOffset("arm:N", sort=names, scale=alt.Scale(paddingOuter=1))
    zero = alt.Chart(style.data([{"difference": 0}])).mark_rule(strokeDash=[3, 3], opacity=0.6)
    layers: list[Any] = [
        zero.encode(y="difference:Q", color=alt.value(theme.ink)),
        alt.Chart(style.data(rows))
        .mark_point(filled=True, size=80)
        .encode(x=x, y=y, xOffset=offset, color=color),
    ]
    if intervals := [row for row in rows if row["low"] is not None]:
        rule = alt.Chart(style.data(intervals)).mark_rule(strokeWidth=2)
        ends = {"y": alt.Y("low:Q", title=title), "y2": "high:Q"}
        layers.append(rule.encode(x=x, xOffset=offset, color=color, **ends))
    return style.Figure(
        name="differences_by_scale",
        title="Differences at every scale",
        caption=f"Estimate and 95 % interval ({judging.interval(analyses[0])}) of each arm "
        "against the baseline of the same scale (negative: lower loss, better). Scales stand in "
        "the order of the config.",
        spec=style.apply(alt.layer(*layers).properties(height=330), theme),
        table=pandas.DataFrame(rows),
    )
