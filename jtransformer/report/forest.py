"""The forest plot: every arm's difference to the baseline with its interval."""

from typing import Any

import altair as alt
import pandas

from jtransformer.report import judging, style
from jtransformer.report.intervals import ROW
from jtransformer.stats import Analysis

_PALE = ("incomplete", "unfair comparison")


def forest(analysis: Analysis, theme: style.Theme) -> style.Figure:
    """Draws the model's differences, with the paired difference of each seed below them.

    A declared margin is a band around zero.
    """
    rows, seeds = _rows(analysis, theme)
    title = [
        f"difference to {analysis.baseline}, {analysis.data['loss_unit']}",
        "(negative: lower loss, better)",
    ]
    scale = alt.Scale(zero=True, padding=12, nice=False)
    x = alt.X("difference:Q", title=title, scale=scale, axis=alt.Axis(tickCount=7, format="+.4~g"))
    y = alt.Y("arm:N", sort=[row["arm"] for row in rows], title=None)
    look = {
        "color": alt.Color("color:N", scale=None, legend=None),
        "opacity": alt.Opacity("opacity:Q", scale=None, legend=None),
        "tooltip": [
            "arm:N",
            *(_signed(name) for name in ("difference", "low", "high")),
            "verdict:N",
        ],
    }
    ink = alt.value(theme.ink)
    zero = alt.Chart(style.data([{"difference": 0}])).mark_rule(strokeDash=[3, 3], opacity=0.6)
    estimate = alt.Chart(style.data(rows)).mark_point(filled=True, size=90)
    seed = alt.Chart(style.data(seeds)).mark_point(size=26, yOffset=11, strokeWidth=1.2)
    margin = analysis.rule.margin
    layers = [
        *(_band(margin, theme) if margin is not None else ()),
        zero.encode(x="difference:Q", color=ink),
        estimate.encode(x=x, y=y, **look),
        seed.encode(x=x, y=y, color=ink, tooltip=["arm:N", "seed:N", _signed("difference")]),
    ]
    # One seed, or no noise, gives points without intervals.
    if intervals := [row for row in rows if row["low"] is not None]:
        rule = alt.Chart(style.data(intervals)).mark_rule(strokeWidth=2.5)
        layers.append(rule.encode(x=alt.X("low:Q", title=title), x2="high:Q", y=y, **look))
    return style.Figure(
        name="differences",
        title="Differences to the baseline",
        caption=f"Filled: estimate and 95 % interval ({judging.interval(analysis)}) of the arm + "
        "seed model; words are by p values, not by whether an interval holds zero. Open: the "
        f"paired difference of each seed.{_said(analysis)} Pale: an arm that is not finished, or "
        "whose comparison is unfair.",
        spec=style.apply(alt.layer(*layers).properties(height=ROW * len(rows)), theme),
        table=_table(rows, seeds, analysis),
    )


def _table(
    rows: list[dict[str, Any]], seeds: list[dict[str, Any]], analysis: Analysis
) -> pandas.DataFrame:
    estimates = pandas.DataFrame(rows).drop(columns=["opacity", "color"])
    estimates.insert(1, "seed", "all")
    estimates["interval"] = analysis.rule.intervals
    return pandas.concat([estimates, pandas.DataFrame(seeds)], ignore_index=True)


def _band(margin: float, theme: style.Theme) -> list[alt.Chart]:
    ends = alt.Chart(style.data([{"from": -margin, "to": margin}]))
    return [ends.mark_rect(opacity=0.1).encode(x="from:Q", x2="to:Q", color=alt.value(theme.ink))]


def _said(analysis: Analysis) -> str:
    margin = analysis.rule.margin
    return "" if margin is None else f" Band: within the declared margin of {margin:g}."


def _signed(name: str) -> alt.Tooltip:
    return alt.Tooltip(f"{name}:Q", format="+.4f")


def _rows(
    analysis: Analysis, theme: style.Theme
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rows, seeds = [], []
    for arm in analysis.arms:
        if arm.comparison is None:
            continue
        shown = analysis.difference(arm)
        assert shown is not None
        rows.append(
            {
                "arm": arm.name,
                "difference": shown.value,
                "low": shown.low,
                "high": shown.high,
                "verdict": arm.verdict.word,
                "opacity": 0.35 if arm.verdict.word in _PALE else 1.0,
                "color": style.VERDICTS.get(arm.verdict.word, theme.ink),
            }
        )
        by_seed = arm.comparison.by_seed.items()
        seeds += [{"arm": arm.name, "seed": seed, "difference": d} for seed, d in by_seed]
    return rows, seeds
