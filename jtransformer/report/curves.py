"""Losses along training: one section of the page."""

from collections.abc import Callable
from typing import Any

import altair as alt
import pandas

from jtransformer.report import controls, style, thinning
from jtransformer.report.section import Section
from jtransformer.report.style import Figure
from jtransformer.stats import Analysis, difference_curves, mean_learning_curves

YARDSTICKS = {"unigram_nll": "unigram", "bigram_nll": "bigram", "xz_nll": "xz -9"}
"""Simple predictors that a sweep's data were measured with; the last two for bytes alone."""
WINDOWS = (5, 25, 101)
"""Points that a smoothed curve is averaged over, where it has four times as many."""
_STEPS = alt.Scale(domainMin=0, nice=False)
_SEEN_POINTS = 30
"""Points of a line that are marked one by one."""


def section(curves: pandas.DataFrame, analysis: Analysis, theme: style.Theme) -> Section | None:
    """Draws the curves of both splits, and the differences to the baseline along training.

    Args:
        curves: As `jtransformer.stats.learning_curves` returns them.
        analysis: Of the same sweep.
        theme: Where they are shown.
    """
    if not len(curves):
        return None
    parts: dict[str, Any] = {
        split: curves[curves["split"] == split] for split in ("validation", "train")
    }
    figures = [
        _learning(analysis, split, part, theme) for split, part in parts.items() if len(part)
    ]
    paired = difference_curves(parts["validation"], analysis.baseline)
    if len(paired):
        figures.append(_differences(analysis, paired, theme))
    said = (
        "Each arm at its chosen setting. The verdict rests on the last points alone: before them "
        "a learning rate that still decays puts arms into states that cannot be compared."
    )
    return Section("curves", "Learning curves", [said], [], figures)


def _learning(analysis: Analysis, split: str, curves: Any, theme: style.Theme) -> Figure:
    color, toggle = style.arm_color(analysis, theme)
    low, high, cut = _frame(analysis, curves["nll"])
    title = f"{split} NLL, {analysis.data['loss_unit']}"
    x = alt.X("step:Q", title="step", axis=alt.Axis(tickCount=6), scale=_STEPS)
    y = alt.Y("nll:Q", title=title, scale=alt.Scale(domain=[low, high], nice=False))
    windows = _windows(curves) if split == "train" else []
    lines, thinned = _lines(
        curves, len(analysis.seeds), toggle, {"x": x, "y": y, "color": color}, windows
    )
    chart = alt.layer(*_yardsticks(analysis, y, theme.ink), *lines)
    spec = style.apply(chart.properties(height=330), theme)
    menus = [
        controls.log_axis(spec, "x", "step", _lowest(curves["step"])),
        controls.log_axis(spec, "y", "loss", _lowest(curves["nll"])),
    ]
    if windows:
        menus.append(controls.smoothing(spec, "nll", title, windows))
    what = {
        "validation": "Loss over all that is asked of the validation split",
        "train": "Mean loss over the training batches since the last point, each before its update",
    }[split]
    return Figure(
        name=f"learning_{split}",
        title=f"Learning curves, {split}",
        caption=f"{what}. Bold: mean over all seeds; thin: each seed. Dashed across: yardsticks "
        f"on the validation part. {cut}{thinned}{_smoothed(windows)}".strip(),
        spec=spec,
        table=curves,
        controls=tuple(menus),
    )


def _differences(analysis: Analysis, paired: Any, theme: style.Theme) -> Figure:
    color, toggle = style.arm_color(analysis, theme)
    x = alt.X("step:Q", title="step", axis=alt.Axis(tickCount=6), scale=_STEPS)
    y = alt.Y(
        "nll:Q",
        title=f"validation NLL minus {analysis.baseline}, {analysis.data['loss_unit']}",
        axis=alt.Axis(format="+.4~g", tickCount=7),
    )
    zero = alt.Chart(style.data([{"nll": 0}])).mark_rule(strokeDash=[3, 3], opacity=0.6)
    lines, thinned = _lines(
        paired, len(analysis.seeds), toggle, {"x": x, "y": y, "color": color}, []
    )
    chart = alt.layer(zero.encode(y="nll:Q", color=alt.value(theme.ink)), *lines)
    spec = style.apply(chart.properties(height=330), theme)
    return Figure(
        name="difference_curves",
        title="Differences along training",
        caption="Each arm's validation loss minus the baseline's at the same seed and step "
        f"(negative: lower, better). Bold: mean over all seeds; thin: each seed. {thinned}".strip(),
        spec=spec,
        table=paired,
        controls=(controls.log_axis(spec, "x", "step", _lowest(paired["step"])),),
    )


def _lines(
    curves: Any,
    seeds: int,
    toggle: alt.Parameter,
    encoding: dict[str, Any],
    windows: list[int],
) -> tuple[list[Any], str]:
    """Draws each seed thin and, where every seed has a loss, their mean bold.

    Returns:
        The layers, and what is to be said of points that are not drawn.
    """
    shown = _shown(windows)
    drawn = shown(curves, ["arm", "seed"])
    thin = alt.Chart(style.data(drawn.drop(columns=["tokens", "split"])))
    # The toggle belongs to a layer that encodes the arm: Vega-Lite binds no legend elsewhere.
    thin = thin.mark_line(strokeWidth=1, clip=True).encode(
        **encoding, detail="seed:N", opacity=style.dim(toggle, 0.35)
    )
    layers = [thin.add_params(toggle)]
    means = mean_learning_curves(curves, seeds)
    if len(means):
        bold = shown(means, ["arm"])
        mean = alt.Chart(style.data(bold.drop(columns="split")))
        line = mean.mark_line(strokeWidth=2.4, clip=True)
        layers.append(line.encode(**encoding, opacity=style.dim(toggle, 1.0)))
        # Many points are there to be hovered over, few to be seen.
        is_few = bold["arm"].value_counts().max() <= _SEEN_POINTS
        point = mean.mark_point(filled=True, size=24 if is_few else 60, clip=True)
        tip = ["arm:N", "step:Q", "tokens:Q", alt.Tooltip("nll:Q", format=".4f")]
        opacity = style.dim(toggle, 1.0) if is_few else alt.value(0)
        layers.append(point.encode(**encoding, opacity=opacity, tooltip=tip))
    return layers, thinning.said(drawn, curves)


def _shown(windows: list[int]) -> Callable[[Any, list[str]], Any]:
    """Returns what adds smoothed columns to curves and then thins them."""

    def shown(curves: Any, by: list[str]) -> Any:
        # Smoothed before it is thinned: extremes alone have another mean.
        means = {
            controls.smoothed_field("nll", window): curves.groupby(by, sort=False)["nll"].transform(
                lambda line, window=window: line.rolling(window, 1, center=True).mean()
            )
            for window in windows
        }
        return thinning.thin(curves.assign(**means), by=by, y="nll")

    return shown


def _windows(curves: Any) -> list[int]:
    shortest = curves.groupby(["arm", "seed"]).size().min()
    return [window for window in WINDOWS if 4 * window <= shortest]


def _smoothed(windows: list[int]) -> str:
    if not windows:
        return ""
    return (
        "Smoothing, where it is chosen, is a centred mean; towards the ends of a line it is over "
        "the points that there are. "
    )


def _lowest(values: Any) -> float:
    """Returns the smallest value that has a place on a logarithmic axis."""
    positive = values[values > 0]
    return float(positive.min()) if len(positive) else 1.0


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
