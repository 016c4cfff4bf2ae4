"""How the loss goes with each tuned setting: one section of the page."""

import dataclasses
from typing import Any

import altair as alt
import pandas

from jtransformer.report import numbers, style
from jtransformer.report.section import Section
from jtransformer.report.style import Figure
from jtransformer.stats import Analysis, mean_nuisance_curves

_MOST_TICKS = 8


def section(tuned: pandas.DataFrame, analysis: Analysis, theme: style.Theme) -> Section | None:
    """Draws a curve for each tuned setting that has several values.

    Args:
        tuned: As `jtransformer.stats.nuisance_curves` returns them.
        analysis: Of the same sweep.
        theme: Where they are shown.
    """
    factors = list(dict.fromkeys(tuned["factor"]))
    figures = []
    for factor in factors:
        part = tuned[tuned["factor"] == factor]
        if len(set(part["value"])) > 1:
            # Between draws that differ in other settings too a line would mean nothing.
            joined = not analysis.drawn or len(factors) == 1
            figure = _curves(analysis, factor, part, theme, joined)
            if sum(_last(other) == _last(factor) for other in factors) > 1:
                figure = dataclasses.replace(figure, name=f"tuning_{factor.replace('.', '_')}")
            figures.append(figure)
    if not figures:
        return None
    return Section("tuning", "Tuned settings", [], [], figures)


def _last(path: str) -> str:
    return path.rsplit(".", 1)[-1]


def _curves(
    analysis: Analysis, factor: str, curves: Any, theme: style.Theme, joined: bool
) -> Figure:
    name = numbers.words(factor)
    color, toggle = style.arm_color(analysis, theme)
    values = sorted(curves["value"].unique().tolist())
    kind = "log" if values[0] > 0 else "linear"
    x = alt.X(
        "value:Q",
        title=name + (" (log scale)" if kind == "log" else ""),
        scale=alt.Scale(type=kind, nice=False, padding=24),
        axis=alt.Axis(**_ticks(values), format=".4~g", grid=False),
    )
    title = f"final validation NLL, {analysis.data['loss_unit']}"
    y = alt.Y("nll:Q", title=title, scale=alt.Scale(zero=False))
    thin, bold = style.dim(toggle, 0.45), style.dim(toggle, 1.0)
    means = mean_nuisance_curves(curves, len(analysis.seeds))
    chosen = {a.name: a.choice.nuisance.get(factor) for a in analysis.arms if a.choice}
    best = [row for row in means.to_dict("records") if row["value"] == chosen.get(row["arm"])]
    tip = ["arm:N", alt.Tooltip("value:Q", title=name), alt.Tooltip("nll:Q", format=".4f")]
    finite, diverged = curves.query("nll == nll"), curves.query("nll != nll")
    mean = alt.Chart(style.data(means)).encode(x=x, y=y, color=color, opacity=bold, tooltip=tip)
    layers: list[Any] = []
    if len(finite):
        point = alt.Chart(style.data(finite)).mark_point(size=22, strokeWidth=1)
        encoding = {"color": color, "opacity": thin, "tooltip": [*tip, "seed:N"]}
        layers.append(point.encode(x=x, y=y, **encoding))
    if len(means):
        layers.append(mean.mark_line(strokeWidth=2) if joined else mean.mark_point(size=60))
    if best:
        layers.append(mean.mark_point(filled=True, size=110).properties(data=style.data(best)))
    if len(diverged):
        layers.append(
            alt.Chart(style.data(diverged))
            .mark_point(shape="cross", angle=45, size=70, filled=True)
            .encode(x=x, y=alt.value(6), color=color, tooltip=["arm:N", "seed:N", "state:N"])
        )
    return Figure(
        name=f"tuning_{_last(factor)}",
        title=f"Tuning the {name}",
        caption=_caption(analysis, joined),
        spec=style.apply(alt.layer(*layers).add_params(toggle).properties(height=330), theme),
        table=curves,
    )


def _ticks(values: list[Any]) -> dict[str, Any]:
    """Puts a tick at every value that was tried, unless they are too many to be read."""
    return {"values": values} if len(values) <= _MOST_TICKS else {}


def _caption(analysis: Analysis, joined: bool) -> str:
    line = "Line: mean" if joined else "Large: mean"
    text = f"Open: each seed. {line} where every seed finished. Filled: the chosen value. "
    if not joined:
        text += "Each value is one draw, in which the other tuned settings differ as well. "
    if analysis.rungs:
        text += f"All at the first rung, after {analysis.rungs[0].steps} steps. "
    return text + "A cross at the top is a run that diverged."
