"""The figures of the ladder: loss against scale, and differences against scale."""

from typing import Any

import altair as alt
import pandas

from jtransformer.report import style
from jtransformer.stats import Analysis, ArmLadder, Estimate, Ladder

AXES = {
    "non_embedding_parameters": "parameters between embeddings and head",
    "parameters": "parameters",
    "tokens": "training tokens",
    "training_flops": "training FLOPs",
}
_POINTS = 30
_DASH = [5, 4]
_LOOKS = {"fitted": (1.0, 0.14, {}), "extrapolated": (0.5, 0.06, {"strokeDash": _DASH})}
"""Opacity of a line and of its band, and its stroke."""

Rows = list[dict[str, Any]]


def fits(found: Ladder, analysis: Analysis, theme: style.Theme) -> style.Figure | None:
    """Draws the loss of every run at an arm's choice, and the laws fitted to them.

    Args:
        found: The ladder.
        analysis: Of any scale, with the arms named as at all of them.
        theme: Where it is shown.
    """
    points = [
        {"arm": arm.label, "what": "run"} | point._asdict()
        for arm in found.arms
        for point in arm.points
    ]
    if not points:
        return None
    color, toggle = style.arm_color(analysis, theme)
    title = f"validation NLL, {analysis.data['loss_unit']}"
    y = alt.Y("loss:Q", title=title, scale=alt.Scale(zero=False))
    tip = ["arm:N", "scale:N", "seed:N", _number("size"), _number("loss", ".4f")]
    runs = alt.Chart(style.data(points)).mark_point(size=34, strokeWidth=1.2)
    runs = runs.encode(
        x=_x(found), y=y, color=color, opacity=style.dim(toggle, 0.9), tooltip=tip
    ).add_params(toggle)
    lines = [row for arm in found.arms for row in _law(arm, found)]
    drawn = [
        layer.encode(x=_x(found), color=color) for layer in _lines(lines, "loss", y, title, toggle)
    ]
    return style.Figure(
        name="ladder_fits",
        title="Loss against scale",
        caption="Open: each seed at the arm's chosen setting. Line and band: L = E + A · N^−α with "
        "its pointwise 95 % interval over seeds, with what a seed does to all arms alike in it. "
        "Dashed and paler: extrapolated beyond the largest "
        "scale, where there are no runs; the band says nothing of whether the law still holds.",
        spec=style.apply(alt.layer(runs, *drawn).properties(height=330), theme),
        table=pandas.DataFrame([*points, *lines]),
    )


def differences(found: Ladder, analysis: Analysis, theme: style.Theme) -> style.Figure | None:
    """Draws the differences to the baseline at every scale, and the lines of their trends.

    Args:
        found: The ladder.
        analysis: As for `fits`.
        theme: Where it is shown.
    """
    points = [
        {"arm": arm.label, "what": "estimate", "scale": scale, "size": found.sizes[scale]}
        | _estimate("difference", difference)
        for arm in found.arms
        for scale, difference in arm.differences.items()
    ]
    if not points:
        return None
    color, toggle = style.arm_color(analysis, theme)
    title = [
        f"difference to {found.baseline}, {analysis.data['loss_unit']}",
        "(negative: lower loss, better)",
    ]
    y = alt.Y("difference:Q", title=title, axis=alt.Axis(format="+.4~g", tickCount=7))
    zero = alt.Chart(style.data([{"difference": 0}])).mark_rule(strokeDash=[3, 3], opacity=0.6)
    tip = ["arm:N", "scale:N", _number("size")]
    tip += [_number(name, "+.4f") for name in ("difference", "low", "high")]
    estimates = alt.Chart(style.data(points)).encode(
        x=_x(found), color=color, opacity=style.dim(toggle, 0.9)
    )
    layers = [
        zero.encode(y="difference:Q", color=alt.value(theme.ink)),
        estimates.mark_point(filled=True, size=80).encode(y=y, tooltip=tip).add_params(toggle),
    ]
    if any(row["low"] is not None for row in points):
        ends = {"y": alt.Y("low:Q", title=title), "y2": "high:Q"}
        layers.append(estimates.mark_rule(strokeWidth=2).encode(**ends))
    lines = [row for arm in found.arms for row in _line(arm, found)]
    layers += [
        layer.encode(x=_x(found), color=color)
        for layer in _lines(lines, "difference", y, title, toggle)
    ]
    return style.Figure(
        name="ladder_differences",
        title="Differences against scale",
        caption="Points: each scale's difference to the baseline with its 95 % interval "
        f"({analysis.rule.intervals}). Line and band: mean of the seeds' lines over the logarithm "
        "of scale, with a pointwise 95 % t interval. Dashed and paler: extrapolated beyond the "
        "largest scale, where there are no runs.",
        spec=style.apply(alt.layer(*layers).properties(height=330), theme),
        table=pandas.DataFrame([*points, *lines]),
    )


def _x(found: Ladder) -> alt.X:
    return alt.X(
        "size:Q",
        title=f"{AXES[found.axis]} (log scale)",
        scale=alt.Scale(type="log", nice=False, padding=16),
        axis=alt.Axis(format="~s", tickCount=5, grid=False),
    )


def _lines(
    rows: Rows, value: str, y: alt.Y, title: str | list[str], toggle: alt.Parameter
) -> list[Any]:
    """Draws lines with their bands, what is extrapolated dashed and paler."""
    layers = []
    tip = ["arm:N", "what:N", _number("size")]
    tip += [_number(name, ".4f") for name in (value, "low", "high")]
    for what, (line, band, stroke) in _LOOKS.items():
        own = [row for row in rows if row["what"] == what]
        drawn = alt.Chart(style.data(own))
        if any(row["low"] is not None for row in own):
            ends = {"y": alt.Y("low:Q", title=title), "y2": "high:Q"}
            layers.append(drawn.mark_area().encode(**ends, opacity=style.dim(toggle, band)))
        if own:
            solid = drawn.mark_line(strokeWidth=2, **stroke)
            layers.append(solid.encode(y=y, opacity=style.dim(toggle, line), tooltip=tip))
    return layers


def _number(name: str, form: str = ",.4r") -> alt.Tooltip:
    return alt.Tooltip(f"{name}:Q", format=form)


def _estimate(name: str, found: Estimate) -> dict[str, Any]:
    return {name: found.value, "low": found.low, "high": found.high}


def _law(arm: ArmLadder, found: Ladder) -> Rows:
    if arm.fit is None:
        return []
    sizes = [point.size for point in arm.points]
    # Of a law without a floor nothing is said beyond the largest scale.
    beyond = found.beyond if arm.fit.floor is not None else None
    return [
        {"arm": arm.label, "what": what, "size": size} | _estimate("loss", loss)
        for what, at in _stretches(min(sizes), max(sizes), beyond)
        for size, loss in zip(at, arm.fit.at(at), strict=True)
    ]


def _line(arm: ArmLadder, found: Ladder) -> Rows:
    if arm.trend is None:
        return []
    sizes = arm.trend.sizes
    return [
        {"arm": arm.label, "what": what, "size": size} | _estimate("difference", difference)
        for what, at in _stretches(sizes[0], sizes[-1], found.beyond)
        for size, difference in zip(at, arm.trend.at(at), strict=True)
    ]


def _stretches(low: float, high: float, beyond: float | None) -> list[tuple[str, list[float]]]:
    found = [("fitted", _between(low, high))]
    if beyond is not None and beyond > high:
        found.append(("extrapolated", _between(high, beyond)))
    return found


def _between(low: float, high: float) -> list[float]:
    ratio = high / low
    return [low * ratio ** (index / (_POINTS - 1)) for index in range(_POINTS)]
