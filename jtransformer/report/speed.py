"""How fast arms reach the baseline's loss, and the differences at equal compute and equal time."""

from collections.abc import Callable
from typing import Any

import altair as alt

from jtransformer.report import numbers, style, thinning
from jtransformer.report.section import Section, Table
from jtransformer.report.summary import Column
from jtransformer.stats import FEWEST_POINTS, Analysis, ArmSpeed, Estimate, Speed, TokenRatio

_READINGS: dict[str, Callable[[ArmSpeed], Estimate | None]] = {
    "tokens": lambda arm: arm.equal_tokens,
    "FLOPs": lambda arm: arm.equal_flops,
    "seconds": lambda arm: arm.equal_seconds,
}


def section(found: Speed | None, analysis: Analysis, theme: style.Theme) -> Section | None:
    """Writes the section; None where no arm can be compared with the baseline."""
    if found is None:
        return None
    paragraphs = [] if found.arms else [_too_few(found)]
    if found.arms:
        paragraphs += [*_reached(found, analysis), *_readings(found, analysis), *_limits(found)]
    if found.waiting:
        paragraphs.append(f"Not read yet, because not finished: {numbers.names([*found.waiting])}.")
    return Section(
        name="speed",
        title="How much faster, and at equal compute?",
        paragraphs=paragraphs,
        tables=[_table(found, analysis)] if found.arms else [],
        figures=[_figure(found, analysis, theme)] if found.arms else [],
    )


def _too_few(found: Speed) -> str:
    points = "point" if found.points == 1 else "points"
    return (
        f"A run has {found.points} evaluated {points}, too few to read off its curve when it "
        f"reached a loss or what it had at equal compute; with {FEWEST_POINTS} or more that is "
        "done. Lower training.evaluate_every to have them."
    )


def _reached(found: Speed, analysis: Analysis) -> list[str]:
    told, untold, censored = [], [], []
    for arm in found.arms:
        mean = arm.tokens.mean
        if mean is None:
            censored.append(
                f"{arm.name} in {arm.tokens.reached} of {len(arm.tokens.by_seed)} "
                f"({_median(arm.tokens)})"
            )
        elif mean.low is not None and mean.high is not None and not mean.low <= 1 <= mean.high:
            told.append(f"{arm.name} {_multiple(mean)}")
        else:
            untold.append(f"{arm.name} {_multiple(mean)}")
    texts = []
    if told:
        texts.append(
            f"Tokens to reach the final loss of {analysis.baseline}, as a multiple of its own: "
            f"{numbers.names(told)}."
        )
    if untold:
        texts.append(
            f"Whether more or fewer tokens are needed than by {analysis.baseline} cannot be told "
            f"for {numbers.names(untold)}."
        )
    if censored:
        texts.append(
            f"Not in every seed is the final loss of {analysis.baseline} reached within the run by "
            f"{numbers.names(censored)}; what was not reached is counted and enters no mean."
        )
    return texts


def _readings(found: Speed, analysis: Analysis) -> list[str]:
    changed = []
    for arm in found.arms:
        estimates = {f"equal {what}": read(arm) for what, read in _READINGS.items()}
        sides = {what: _side(e) for what, e in estimates.items() if _side(e) is not None}
        if len(set(sides.values())) > 1:
            parts = [
                f"{side} at {what} ({numbers.difference_with_interval(estimates[what])})"
                for what, side in sides.items()
            ]
            changed.append(f"{arm.name} is {numbers.names(parts)}")
    if changed:
        return [
            f"What is held equal matters: {'; '.join(changed)}. Losses are in "
            f"{analysis.data['loss_unit']}, intervals unadjusted."
        ]
    if any(_side(read(arm)) for arm in found.arms for read in _READINGS.values()):
        return ["What is held equal, tokens or compute, changes no arm's reading."]
    return ["The runs give no intervals, so that nothing is claimed of either reading."]


def _side(estimate: Estimate | None) -> str | None:
    if estimate is None or estimate.low is None or estimate.high is None:
        return None
    if estimate.low <= 0 <= estimate.high:
        return "not told apart"
    return "better" if estimate.value < 0 else "worse"


def _limits(found: Speed) -> list[str]:
    texts = []
    if found.decays:
        texts.append(
            "The learning rate falls towards the end of a run, so the middle of a run is not the "
            "end of a shorter one. Where an arm is cut short of its end, at equal FLOPs, at equal "
            "seconds and where it meets the baseline's loss, it stands worse than a run of that "
            "length would; only runs of several lengths settle that."
        )
    if found.early:
        texts.append(
            f"{numbers.names([*found.early])} had the baseline's final loss at the first evaluated "
            "point of some seed already; that seed's tokens are taken to be those of the point, "
            "which is too many."
        )
    if found.clock is None:
        texts.append(
            "Seconds are tokens over the median speed of each run's training, on one kind of "
            "device and in one mode; whatever else ran there is in them, and another machine or "
            "size has others."
        )
    else:
        texts.append(f"Seconds are not compared: {found.clock}.")
    return texts


def _table(found: Speed, analysis: Analysis) -> Table:
    arms, unit = found.arms, analysis.data["loss_unit"]
    differences = [
        Column(
            f"at equal {what} ({unit})", [numbers.difference_with_interval(read(a)) for a in arms]
        )
        for what, read in _READINGS.items()
        if what != "seconds" or found.clock is None
    ]
    return Table(
        name="speed",
        caption=f"Tokens until the final loss of {analysis.baseline}, as a multiple of its own, "
        "and differences of validation loss at the largest budget that both runs of a seed have "
        "(negative: lower, better). Read along lines between evaluated points, paired by seed; "
        "95 % t intervals, unadjusted, those of multiples over logarithms.",
        columns=[
            Column("arm", [arm.name for arm in arms]),
            Column("FLOPs/token", [numbers.percent(arm.flops_ratio - 1) for arm in arms]),
            Column("tokens needed", [_tokens(arm.tokens) for arm in arms]),
            Column("reached in", [_share(arm.tokens) for arm in arms]),
            *differences,
        ],
    )


def _figure(found: Speed, analysis: Analysis, theme: style.Theme) -> style.Figure:
    curves: Any = found.curves
    color, toggle = style.arm_color(analysis, theme)
    axis = alt.Axis(format=".0e", tickCount=5)
    scale = alt.Scale(type="log", nice=False, padding=12)
    x = alt.X("flops:Q", title="training FLOPs (log scale)", axis=axis, scale=scale)
    # The descent from ln V would hide the differences at the end.
    least, most = float(curves["nll"].min()), float(curves["nll"].max())
    unigram = float(analysis.data["unigram_nll"])
    is_cut = least < unigram < most
    frame = alt.Scale(domain=[least, unigram if is_cut else most], nice=True, zero=False)
    y = alt.Y("nll:Q", title=f"validation NLL, {analysis.data['loss_unit']}", scale=frame)
    points = thinning.thin(curves, by=["arm", "seed"], y="nll")
    grouped = points.groupby(["arm", "flops"], sort=False)
    means = grouped.agg(nll=("nll", "mean"), present=("nll", "count")).reset_index()
    means = means[means["present"] == len(analysis.seeds)].drop(columns="present")
    thin = alt.Chart(style.data(points)).mark_line(strokeWidth=1, clip=True)
    layers = [
        thin.encode(x=x, y=y, color=color, detail="seed:N", opacity=style.dim(toggle, 0.35))
        .add_params(toggle)
    ]  # fmt: skip
    if len(means):
        tip = ["arm:N", alt.Tooltip("flops:Q", format=".3e"), alt.Tooltip("nll:Q", format=".4f")]
        mean = alt.Chart(style.data(means)).encode(
            x=x, y=y, color=color, opacity=style.dim(toggle, 1.0), tooltip=tip
        )
        layers.append(mean.mark_line(strokeWidth=2.4, clip=True))
        layers.append(mean.mark_point(filled=True, size=24, clip=True))
    return style.Figure(
        name="loss_by_compute",
        title="Loss against compute",
        caption="Validation loss at each arm's chosen setting against the training FLOPs spent "
        "until then. Bold: mean over all seeds; thin: each seed. "
        f"{'Losses above the unigram entropy are cut. ' if is_cut else ''}Along a curve the "
        "learning rate changes: a point inside is not the end of a run of that budget. "
        f"{thinning.said(points, curves)}",
        spec=style.apply(alt.layer(*layers).properties(height=330), theme),
        table=curves,
    )


def _multiple(ratio: Estimate) -> str:
    text = f"{ratio.value:.2f}"
    if ratio.low is None:
        return text
    return f"{text} (95 % interval {ratio.low:.2f} to {ratio.high:.2f})"


def _median(tokens: TokenRatio) -> str:
    return f"median {'over ' if tokens.is_bound else ''}{tokens.median:.2f} times its tokens"


def _tokens(tokens: TokenRatio) -> str:
    mean: Any = tokens.mean
    if mean is None:
        return f"median {'> ' if tokens.is_bound else ''}{tokens.median:.2f}"
    return f"{mean.value:.2f}" + (
        "" if mean.low is None else f" ({mean.low:.2f} to {mean.high:.2f})"
    )


def _share(tokens: TokenRatio) -> str:
    return f"{tokens.reached} of {len(tokens.by_seed)}"
