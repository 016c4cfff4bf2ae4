"""Loss and differences against scale: fits, where the differences go, and what lies beyond."""

import dataclasses
from collections.abc import Sequence

from jtransformer.report import judging, ladder_figures, numbers, style
from jtransformer.report.ladder_figures import AXES
from jtransformer.report.section import Section, Table
from jtransformer.report.summary import Column
from jtransformer.stats import Analysis, Estimate, Ladder

_VARIED = {
    "non_embedding_parameters": "in size alone",
    "parameters": "in size alone",
    "tokens": "in training tokens alone",
    "training_flops": "in size and in training tokens (FLOPs are tokens · FLOPs per token)",
}
TRENDS = {
    "grows": "grows with scale",
    "shrinks": "shrinks with scale",
    "vanishes": "shrinks, and at the largest scale it cannot be told from 0",
    "reverses": "changes its side",
    "holds": "holds",
    "cannot tell": "may grow, hold or shrink: that cannot be told",
}


def section(
    found: Ladder | None, analyses: Sequence[Analysis], theme: style.Theme
) -> Section | None:
    """Writes the section; None of a sweep whose scales cannot be put in a row.

    Args:
        found: The ladder.
        analyses: Of every scale.
        theme: Where its figures are shown.
    """
    if found is None:
        return None
    first = _labelled(analyses[0], found)
    paragraphs = [_scope(found), *_trends(found, first), _fits(found), *_gaps(found)]
    if any(arm.fit or arm.trend for arm in found.arms):
        paragraphs.append(
            f"What goes beyond {_size(max(found.sizes.values()))} is extrapolated, by a factor of "
            f"{found.beyond / max(found.sizes.values()):g}: it is what the same law and the same "
            "line would give, and no run has tested it."
        )
    figures = [
        ladder_figures.fits(found, first, theme),
        ladder_figures.differences(found, first, theme),
    ]
    return Section(
        name="ladder",
        title="What happens with scale?",
        paragraphs=paragraphs,
        tables=[table for table in (_trend_table(found, first), _fit_table(found)) if table],
        figures=[figure for figure in figures if figure is not None],
    )


def _labelled(analysis: Analysis, found: Ladder) -> Analysis:
    """Names the arms as they are called at every scale, for their colours."""
    arms = tuple(
        dataclasses.replace(arm, name=own.label)
        for arm, own in zip(analysis.arms, found.arms, strict=True)
    )
    return dataclasses.replace(analysis, arms=arms, baseline=found.baseline)


def _size(size: float) -> str:
    return f"{size:,.0f}" if size < 1e7 else f"{size:.3g}"


def _scope(found: Ladder) -> str:
    begin = "" if found.complete else "Provisional, not all runs are finished. "
    sizes = list(found.sizes.values())
    return (
        f"{begin}The scales differ {_VARIED[found.axis]}. Losses are looked at against "
        f"{AXES[found.axis]}, from {_size(sizes[0])} to {_size(sizes[-1])} of the baseline, a "
        f"factor of {sizes[-1] / sizes[0]:.3g}."
    )


def _trends(found: Ladder, first: Analysis) -> list[str]:
    trends = [(arm.label, arm.trend) for arm in found.arms if arm.trend]
    if not trends:
        return []
    unit = first.data["loss_unit"]
    clauses = [
        f"that of {label} {TRENDS[trend.word]} ({_slope(trend.slope)} {unit} per doubling)"
        for label, trend in trends
    ]
    margin = "the declared margin" if found.declared else "no margin is declared"
    rule = (
        "A difference holds if the 95 % interval of its slope lies within "
        f"±{found.tolerance:.2g} {unit} per doubling, which adds up to {found.margin:g} over the "
        f"whole ladder ({margin}). It grows or shrinks if the slope's p, adjusted over "
        f"{found.comparisons} arm{'s' if found.comparisons != 1 else ''}, is at most 0.05; which "
        "of them is decided by the difference at the largest scale. Slopes are those of each "
        "seed's paired differences over the logarithm of scale, with a t interval over seeds."
    )
    if all(trend.slope.low is None for _, trend in trends):
        rule = "Without a second seed there is no interval of a slope, so nothing is claimed."
    return [f"Of the differences to {found.baseline}, {'; '.join(clauses)}.", rule]


def _fits(found: Ladder) -> str:
    fitted = [arm for arm in found.arms if arm.fit]
    text = ""
    if fitted:
        text = (
            "Each arm's loss is fitted by L = E + A · N^−α, by robust least squares (Huber's "
            "loss) over all seeds; intervals come from resampling seeds, for all arms together. "
        )
    if any(arm.fit.floor is None for arm in fitted if arm.fit):
        text += (
            "Three scales do not bend enough for three unknowns, so E is taken to be 0: α then "
            "belongs to the whole loss and not to what can be learned, and the law, which has no "
            "floor, is not drawn on beyond the largest scale. "
        )
    reasons: dict[str, list[str]] = {}
    for arm in found.arms:
        if arm.unfitted:
            reasons.setdefault(arm.unfitted, []).append(arm.label)
    text += " ".join(
        f"No fit for {numbers.names(labels)}: {reason}." for reason, labels in reasons.items()
    )
    return text.strip()


def _gaps(found: Ladder) -> list[str]:
    gaps = [
        f"{arm.label} at {scale}, which {reason}"
        for arm in found.arms
        for scale, reason in arm.left_out.items()
    ]
    return [f"Left out: {'; '.join(gaps)}."] if gaps else []


def _slope(slope: Estimate) -> str:
    half = "" if slope.half_width is None else f" ± {slope.half_width:.5f}"
    return numbers.signed(f"{slope.value:+z.5f}") + half


def _interval(estimate: Estimate | None, digits: int) -> str:
    if estimate is None or estimate.low is None or estimate.high is None:
        return numbers.NOTHING
    low, high = (numbers.signed(f"{x:.{digits}f}") for x in (estimate.low, estimate.high))
    return f"{numbers.signed(f'{estimate.value:.{digits}f}')} ({low} to {high})"


def _trend_table(found: Ladder, first: Analysis) -> Table | None:
    rows = [(arm, arm.trend) for arm in found.arms if arm.trend]
    if not rows:
        return None
    beyond = [numbers.difference_with_interval(trend.at([found.beyond])[0]) for _, trend in rows]
    scales = list(found.sizes)
    ends = dict.fromkeys((scales[0], scales[-1]))
    unit = first.data["loss_unit"]
    return Table(
        name="ladder_trends",
        caption=f"Differences to {found.baseline} along the scales, in {unit} (negative: lower "
        "loss, better); ± is half of a 95 % interval, of slopes and lines unadjusted, of each "
        f"scale {first.rule.intervals}. Slopes are per doubling of {AXES[found.axis]}. "
        "The last column is extrapolated.",
        columns=[
            Column("arm", [arm.label for arm, _ in rows]),
            Column("with scale", [trend.word for _, trend in rows]),
            Column("slope per doubling", [_slope(trend.slope) for _, trend in rows]),
            Column(
                f"p ({judging.correction(first)})",
                [numbers.p_value(trend.p_adjusted) for _, trend in rows],
            ),
            *(
                Column(
                    f"difference at {scale}",
                    [
                        numbers.difference_with_interval(arm.differences.get(scale))
                        for arm, _ in rows
                    ],
                )
                for scale in ends
            ),
            Column(f"extrapolated to {_size(found.beyond)}", beyond),
        ],
        text=("arm", "with scale"),
    )


def _fit_table(found: Ladder) -> Table | None:
    fits = [(arm, arm.fit) for arm in found.arms if arm.fit]
    if not fits:
        return None
    return Table(
        name="ladder_fits",
        caption="L = E + A · N^−α, with 95 % intervals over seeds in brackets, unadjusted; the "
        "differences of α are from the same resamples. The last column is extrapolated.",
        columns=[
            Column("arm", [arm.label for arm, _ in fits]),
            Column("E", [_interval(fit.floor, 4) if fit.floor else "0, fixed" for _, fit in fits]),
            Column("α", [_interval(fit.exponent, 4) for _, fit in fits]),
            Column(f"α minus {found.baseline}'s", [_interval(arm.exponent, 4) for arm, _ in fits]),
            Column(
                f"loss extrapolated to {_size(found.beyond)}",
                [_interval(fit.at([found.beyond])[0], 4) if fit.floor else numbers.NOTHING
                 for _, fit in fits],
            ),
        ],
    )  # fmt: skip
