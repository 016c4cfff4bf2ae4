"""The pictures of a factorial: effects with intervals, and means that cross or run alongside."""

import re
from typing import Any

import altair as alt
import pandas

from jtransformer.report import style
from jtransformer.stats import Factorial, Term

_ROW = 30
"""Height of a level's row, in pixels."""


def main_effects(terms: list[Term], unit: str, theme: style.Theme) -> style.Figure:
    """Draws the effect of every level of every factor, factor by factor.

    Args:
        terms: With effects; interactions are left out.
        unit: Of the loss.
        theme: Where it is shown.
    """
    rows = [
        {
            "factor": term.name,
            "level": level,
            "row": f"{term.name}: {level}",
            "effect": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "mean": term.means[level,],
        }
        for term in terms
        if len(term.factors) == 1
        for (level,), estimate in term.effects.items()
    ]
    names = list(dict.fromkeys(row["factor"] for row in rows))
    title = [f"effect of the level, {unit}", "(negative: lower loss than the mean of all levels)"]
    x = alt.X(
        "effect:Q",
        title=title,
        scale=alt.Scale(zero=True, padding=12, nice=False),
        axis=alt.Axis(tickCount=7, format="+.4~g"),
    )
    y = alt.Y("row:N", sort=[row["row"] for row in rows], title=None)
    color = _colors("factor", names, None)
    tip = ["factor:N", "level:N", *(_number(name, "+.4f") for name in ("effect", "low", "high"))]
    tip.append(_number("mean", ".4f"))
    zero = alt.Chart(style.data([{"effect": 0}])).mark_rule(strokeDash=[3, 3], opacity=0.6)
    point = alt.Chart(style.data(rows)).mark_point(filled=True, size=80)
    layers: list[Any] = [
        zero.encode(x="effect:Q", color=alt.value(theme.ink)),
        point.encode(x=x, y=y, color=color, tooltip=tip),
    ]
    if intervals := [row for row in rows if row["low"] is not None]:
        rule = alt.Chart(style.data(intervals)).mark_rule(strokeWidth=2.5)
        low = alt.X("low:Q", title=title)
        layers.append(rule.encode(x=low, x2="high:Q", y=y, color=color, tooltip=tip))
    return style.Figure(
        name="main_effects",
        title="Main effects",
        caption="The mean loss of each level, averaged over the levels of the other factors with "
        "equal weights, minus the mean of all levels of its factor. Lines: 95 % intervals, "
        "unadjusted; that of a level is not that of a difference between two. Where factors "
        "interact, a main effect is an average over cases that differ.",
        spec=style.apply(alt.layer(*layers).properties(height=_ROW * len(rows)), theme),
        table=pandas.DataFrame(rows).drop(columns="row"),
    )


def interaction(term: Term, found: Factorial, unit: str, theme: style.Theme) -> style.Figure:
    """Draws the mean losses of two factors' cells: lines that run alongside do not interact.

    Args:
        term: Of two factors, with means.
        found: The factorial that it is of.
        unit: Of the loss.
        theme: Where it is shown.
    """
    levels = {one.label: one.levels for one in found.factors}
    # The factor with fewer levels makes the lines, so that there are few to tell apart.
    lines, along = sorted(term.factors, key=lambda name: len(levels[name]))
    rows = [
        {**dict(zip(term.factors, cell, strict=True)), "nll": mean}
        for cell, mean in term.means.items()
    ]
    drawn = [{"along": row[along], "line": row[lines], "nll": row["nll"]} for row in rows]
    x = alt.X("along:N", sort=list(levels[along]), title=along, axis=alt.Axis(labelAngle=0))
    y = alt.Y("nll:Q", title=f"mean validation NLL, {unit}", scale=alt.Scale(zero=False))
    color = _colors("line", list(levels[lines]), lines)
    tip = [alt.Tooltip("along:N", title=along), alt.Tooltip("line:N", title=lines)]
    tip.append(_number("nll", ".4f"))
    base = alt.Chart(style.data(drawn)).encode(x=x, y=y, color=color, tooltip=tip)
    # A line runs through the levels in their own order, not in that of the alphabet.
    order = {level: index for index, level in enumerate(levels[along])}
    path = alt.Chart(style.data([row | {"place": order[row["along"]]} for row in drawn]))
    path = path.encode(x=x, y=y, color=color, order="place:Q").mark_line(strokeWidth=2)
    both = "_".join(re.sub(r"\W+", "_", name) for name in term.factors)
    return style.Figure(
        name=f"interaction_{both}",
        title=f"Interaction of {term.factors[0]} and {term.factors[1]}",
        caption="Mean loss of each cell, all seeds. Lines that run alongside: no interaction; "
        "whether they depart from that by more than noise is for the F test to say, not for the "
        f"eye.{_averaged(term, found)}",
        spec=style.apply(
            alt.layer(path, base.mark_point(filled=True, size=70)).properties(height=300), theme
        ),
        table=pandas.DataFrame(rows),
    )


def _averaged(term: Term, found: Factorial) -> str:
    others = [one.label for one in found.factors if one.label not in term.factors]
    if not others:
        return ""
    return f" Averaged over the levels of {', '.join(others)} with equal weights."


def _colors(field: str, names: list[str], title: str | None) -> alt.Color:
    palette = [style.OKABE_ITO[index % len(style.OKABE_ITO)] for index in range(len(names))]
    legend = None if title is None else alt.Legend(orient="top", columns=3)
    scale = alt.Scale(domain=names, range=palette)
    return alt.Color(f"{field}:N", title=title, scale=scale, legend=legend)


def _number(name: str, form: str) -> alt.Tooltip:
    return alt.Tooltip(f"{name}:Q", format=form)
