"""The forest plot: every arm's difference to the baseline with its interval."""

from typing import Any

import altair as alt

from jtransformer.report import style
from jtransformer.stats import Analysis

_ROW = 44
"""Height of an arm's row, in pixels."""


def forest(analysis: Analysis, theme: style.Theme) -> style.Figure:
    """Draws the model's differences, with the paired difference of each seed below them."""
    rows, seeds = _rows(analysis, theme)
    title = [
        f"difference to {analysis.baseline}, {analysis.data['loss_unit']}",
        "(negative: lower loss, better)",
    ]
    scale = alt.Scale(zero=True, padding=12, nice=False)
    x = alt.X("difference:Q", title=title, scale=scale, axis=alt.Axis(tickCount=7, format="+~g"))
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
    layers = [
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
        caption="Filled: estimate and 95 % interval (unadjusted) of the arm + seed model. Open: "
        "the paired difference of each seed. Pale: an arm that is not finished.",
        spec=style.apply(alt.layer(*layers).properties(height=_ROW * len(rows)), theme),
    )


def _signed(name: str) -> alt.Tooltip:
    return alt.Tooltip(f"{name}:Q", format="+.4f")


def _rows(
    analysis: Analysis, theme: style.Theme
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rows, seeds = [], []
    for arm in analysis.arms:
        if arm.comparison is None:
            continue
        model = arm.comparison.model
        rows.append(
            {
                "arm": arm.name,
                "difference": model.value,
                "low": model.low,
                "high": model.high,
                "verdict": arm.verdict.word,
                "opacity": 0.35 if arm.verdict.word == "incomplete" else 1.0,
                "color": style.VERDICTS.get(arm.verdict.word, theme.ink),
            }
        )
        by_seed = arm.comparison.by_seed.items()
        seeds += [{"arm": arm.name, "seed": seed, "difference": d} for seed, d in by_seed]
    return rows, seeds
