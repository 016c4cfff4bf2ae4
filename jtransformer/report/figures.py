"""The figures, as Vega-Lite specs by Altair: one definition for the page and for paper."""

import dataclasses
import re
from typing import Any

import altair as alt

from jtransformer.records import SweepRecord
from jtransformer.report import style
from jtransformer.report.forest import forest
from jtransformer.report.style import Figure
from jtransformer.stats import (
    Analysis,
    difference_curves,
    learning_curves,
    mean_learning_curves,
    mean_nuisance_curves,
    nuisance_curves,
)

_STEPS = alt.Scale(domainMin=0, nice=False)
_MOST_TICKS = 8

YARDSTICKS = {"unigram_nll": "unigram", "bigram_nll": "bigram", "xz_nll": "xz -9"}
"""Simple predictors that a sweep's data were measured with; the last two for bytes alone."""


def figures(record: SweepRecord, analysis: Analysis, theme: style.Theme) -> list[Figure]:
    """Draws every figure that there is data for, in a theme; an empty sweep has none.

    Of a sweep at several scales these are the figures of one, named after it.
    """
    found = _figures(record, analysis, theme)
    if analysis.scale is None:
        return found
    number = list(analysis.scales).index(analysis.scale) + 1
    word = re.sub(r"\W+", "_", analysis.scale)
    return [
        dataclasses.replace(
            one, name=f"{one.name}_{number}_{word}", title=f"{one.title}, {analysis.scale}"
        )
        for one in found
    ]


def _figures(record: SweepRecord, analysis: Analysis, theme: style.Theme) -> list[Figure]:
    curves = learning_curves(record, analysis)
    found = []
    if any(arm.comparison for arm in analysis.arms):
        found.append(forest(analysis, theme))
    for split in ("validation", "train"):
        part = curves[curves["split"] == split]
        if len(part):
            found.append(_learning(analysis, split, part, theme))
    paired = difference_curves(curves.query("split == 'validation'"), analysis.baseline)
    if len(paired):
        found.append(_difference_curves(analysis, paired, theme))
    tuned = nuisance_curves(record, analysis)
    factors = list(dict.fromkeys(tuned["factor"]))
    for factor in factors:
        part = tuned[tuned["factor"] == factor]
        if len(set(part["value"])) > 1:
            # Between draws that differ in other settings too a line would mean nothing.
            joined = not analysis.drawn or len(factors) == 1
            figure = _nuisance(analysis, factor, part, theme, joined)
            if sum(other.rsplit(".", 1)[-1] == factor.rsplit(".", 1)[-1] for other in factors) > 1:
                figure = dataclasses.replace(figure, name=f"tuning_{factor.replace('.', '_')}")
            found.append(figure)
    return found


def _learning(analysis: Analysis, split: str, curves: Any, theme: style.Theme) -> Figure:
    color, toggle = style.arm_color(analysis, theme)
    x = alt.X("step:Q", title="step", axis=alt.Axis(tickCount=6), scale=_STEPS)
    low, high, cut = _frame(analysis, curves["nll"])
    scale = alt.Scale(domain=[low, high], nice=False)
    y = alt.Y("nll:Q", title=f"{split} NLL, {analysis.data['loss_unit']}", scale=scale)
    chart = alt.layer(
        *_yardsticks(analysis, y, theme.ink),
        *_lines(curves, len(analysis.seeds), toggle, {"x": x, "y": y, "color": color}),
    )
    what = {
        "validation": "Loss over all that is asked of the validation split",
        "train": "Mean loss over the training batches since the last point, each before its update",
    }[split]
    return Figure(
        name=f"learning_{split}",
        title=f"Learning curves, {split}",
        caption=f"{what}, at each arm's chosen setting. Bold: mean over all seeds; thin: each "
        f"seed. Dashed: yardsticks on the validation part. {cut}Click a name to single it out "
        "(shift adds).",
        spec=style.apply(chart.properties(height=330), theme),
    )


def _difference_curves(analysis: Analysis, paired: Any, theme: style.Theme) -> Figure:
    color, toggle = style.arm_color(analysis, theme)
    x = alt.X("step:Q", title="step", axis=alt.Axis(tickCount=6), scale=_STEPS)
    y = alt.Y(
        "nll:Q",
        title=f"validation NLL minus {analysis.baseline}, {analysis.data['loss_unit']}",
        axis=alt.Axis(format="+~g", tickCount=7),
    )
    zero = alt.Chart(style.data([{"nll": 0}])).mark_rule(strokeDash=[3, 3], opacity=0.6)
    chart = alt.layer(
        zero.encode(y="nll:Q", color=alt.value(theme.ink)),
        *_lines(paired, len(analysis.seeds), toggle, {"x": x, "y": y, "color": color}),
    )
    return Figure(
        name="difference_curves",
        title="Differences along training",
        caption="Each arm's validation loss minus the baseline's at the same seed and step "
        "(negative: lower, better). Bold: mean over all seeds; thin: each seed.",
        spec=style.apply(chart.properties(height=330), theme),
    )


def _lines(curves: Any, seeds: int, toggle: alt.Parameter, encoding: dict[str, Any]) -> list[Any]:
    """Draws each seed thin and, where every seed has a loss, their mean bold."""
    thin = alt.Chart(style.data(curves)).mark_line(strokeWidth=1, clip=True)
    # The toggle belongs to a layer that encodes the arm: Vega-Lite binds no legend elsewhere.
    thin = thin.encode(**encoding, detail="seed:N", opacity=style.dim(toggle, 0.35))
    layers = [thin.add_params(toggle)]
    means = mean_learning_curves(curves, seeds)
    if len(means):
        tip = ["arm:N", "step:Q", "tokens:Q", alt.Tooltip("nll:Q", format=".4f")]
        mean = alt.Chart(style.data(means)).encode(
            **encoding, opacity=style.dim(toggle, 1.0), tooltip=tip
        )
        layers.append(mean.mark_line(strokeWidth=2.4, clip=True))
        layers.append(mean.mark_point(filled=True, size=24, clip=True))
    return layers


def _frame(analysis: Analysis, losses: Any) -> tuple[float, float, str]:
    """Frames what is below the unigram entropy: the descent from ln V would hide the rest.

    Returns:
        The lowest and the highest loss of the frame, and what is to be said of those above it.
    """
    data = analysis.data
    low = min(float(losses.min()), *(data[key] for key in YARDSTICKS if data[key] is not None))
    is_cut = float(losses.min()) < data["unigram_nll"]
    high = float(data["unigram_nll"] if is_cut else losses.max())
    margin = 0.05 * (high - low)
    said = "The frame starts at the unigram entropy; what lies above is cut. " if is_cut else ""
    return low - margin, high + margin, said


def _yardsticks(analysis: Analysis, y: alt.Y, ink: str) -> list[Any]:
    rows = [
        {"nll": analysis.data[key], "label": f"{label} {analysis.data[key]:.4f}"}
        for key, label in YARDSTICKS.items()
        if analysis.data[key] is not None
    ]
    base = alt.Chart(style.data(rows)).encode(y=y, color=alt.value(ink))
    return [
        base.mark_rule(strokeDash=[5, 4], opacity=0.55, clip=True),
        base.mark_text(align="right", dy=-6, dx=-2, fontSize=10.5, opacity=0.8).encode(
            x=alt.value("width"), text="label:N"
        ),
    ]


def _nuisance(
    analysis: Analysis, factor: str, curves: Any, theme: style.Theme, joined: bool
) -> Figure:
    name = factor.rsplit(".", 1)[-1].replace("_", " ")
    color, toggle = style.arm_color(analysis, theme)
    values = sorted(curves["value"].unique().tolist())
    kind = "log" if values[0] > 0 else "linear"
    x = alt.X(
        "value:Q",
        title=name + (" (log scale)" if kind == "log" else ""),
        scale=alt.Scale(type=kind, nice=False, padding=24),
        axis=alt.Axis(**_ticks(values), format="~g", grid=False),
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
    layers = []
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
        name=f"tuning_{factor.rsplit('.', 1)[-1]}",
        title=f"Tuning the {name}",
        caption=_tuning_caption(analysis, joined),
        spec=style.apply(alt.layer(*layers).add_params(toggle).properties(height=330), theme),
    )


def _ticks(values: list[Any]) -> dict[str, Any]:
    """Puts a tick at every value that was tried, unless they are too many to be read."""
    return {"values": values} if len(values) <= _MOST_TICKS else {}


def _tuning_caption(analysis: Analysis, joined: bool) -> str:
    line = "Line: mean" if joined else "Large: mean"
    text = f"Open: each seed. {line} where every seed finished. Filled: the chosen value. "
    if not joined:
        text += "Each value is one draw, in which the other tuned settings differ as well. "
    if analysis.rungs:
        text += f"All at the first rung, after {analysis.rungs[0].steps} steps. "
    return text + "A cross at the top is a run that diverged."
