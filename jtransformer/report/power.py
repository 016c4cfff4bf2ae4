"""What the sweep could have seen: smallest resolvable difference, noise floor, seeds needed."""

from typing import Any

import altair as alt
import pandas

from jtransformer.report import numbers, style
from jtransformer.report.section import Section, Table
from jtransformer.report.summary import Column
from jtransformer.stats import MOST_SEEDS, POWER, Analysis, Need, Power, Spread

_LOWEST = 1 / 30
"""How far below the smallest resolvable difference the frame goes."""


def section(found: Power | None, analysis: Analysis, theme: style.Theme) -> Section | None:
    """Writes the section; None where there is neither noise nor a noise floor."""
    if found is None:
        return None
    paragraphs = [*_resolves(found, analysis), *_noise(found, analysis), *_margin(found, analysis)]
    if found.needs:
        paragraphs.append(
            "Seeds needed are for planning another sweep: they take the observed difference and "
            "the noise for the true ones, and both are estimates. They turn no difference that "
            "could not be told into one that is not there."
        )
    return Section(
        name="power",
        title="What could this sweep have seen?",
        paragraphs=paragraphs,
        tables=[_table(found, analysis)] if found.needs else [],
        figures=[_figure(found, analysis, theme)] if found.needs else [],
    )


def _resolves(found: Power, analysis: Analysis) -> list[str]:
    if not found.needs:
        return [
            "The finished runs leave no noise between arms, so what they could have shown cannot "
            "be said."
        ]
    sizes = [need.resolvable for need in found.needs]
    least, most = numbers.nll(min(sizes)), numbers.nll(max(sizes))
    size = least if least == most else f"{least} to {most} (by arm)"
    begin = "" if analysis.runs.complete else "Provisional, not all runs are finished: "
    level = "level 0.05" + (f" / {found.comparisons}" if found.comparisons > 1 else "")
    return [
        f"{begin}{'with' if begin else 'With'} {found.seeds} seeds, a true difference of {size} "
        f"{analysis.data['loss_unit']} is found with {100 * POWER:.0f} % power by a two-sided test "
        f"at {level}; a smaller one is often missed."
    ]


def _noise(found: Power, analysis: Analysis) -> list[str]:
    sentences = []
    if found.floor:
        sentences.append(
            f"The noise floor of the task: from seed to seed the loss of {analysis.baseline} has "
            f"an sd of {_spread(found.floor)} {analysis.data['loss_unit']}, over "
            f"{found.floor.degrees_of_freedom + 1} seeds."
        )
    if found.residual:
        sentences.append(
            "Once what a seed does to all arms alike is taken out, a residual sd of "
            f"{_spread(found.residual)} is left, on {found.residual.degrees_of_freedom} degrees of "
            "freedom. Differences are judged by this one."
        )
    return [" ".join(sentences)] if sentences else []


def _margin(found: Power, analysis: Analysis) -> list[str]:
    if found.margin is None or not found.needs:
        return []
    return [
        f"A true difference as large as the declared margin, {found.margin:g} "
        f"{analysis.data['loss_unit']}, is found with {_seeds(found.margin_seeds)} seeds."
    ]


def _table(found: Power, analysis: Analysis) -> Table:
    cells = {
        f"observed difference ({analysis.data['loss_unit']})": lambda need: numbers.difference(
            need.difference
        ),
        "seeds shared with the baseline": lambda need: str(need.shared_seeds),
        "smallest resolvable": lambda need: numbers.nll(need.resolvable),
        "seeds that resolve the observed one": lambda need: _seeds(need.seeds),
    }
    columns = [
        Column("arm", [need.arm for need in found.needs]),
        *(Column(heading, [cell(n) for n in found.needs]) for heading, cell in cells.items()),
    ]
    return Table(
        name="power",
        caption="What each difference would have taken: 80 % power at the strictest level, "
        "with the noise of this sweep. The observed difference is itself uncertain.",
        columns=columns,
    )


def _figure(found: Power, analysis: Analysis, theme: style.Theme) -> style.Figure:
    curve, marks = _curve(found), [_mark(need) for need in found.needs]
    color, toggle = style.arm_color(analysis, theme)
    unit = analysis.data["loss_unit"]
    sizes = [row["difference"] for row in [*curve, *marks] if row["difference"] > 0]
    lowest = max(min(sizes), _LOWEST * min(found.curve.values()))
    highest = max([*sizes, *(row["high"] for row in curve)])
    frame = alt.Scale(type="log", domain=[lowest / 1.3, highest * 1.1], nice=False, clamp=True)
    ticks = [seeds for seeds in (2, 3, 4, 6, 8, 12, 16, 24, 32) if seeds in found.curve]
    x = alt.X(
        "seeds:Q",
        title="seeds (log scale)",
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(values=ticks, format="d"),
    )
    y = alt.Y(
        "difference:Q", title=f"|difference|, {unit} (log scale)", scale=frame,
        axis=alt.Axis(format=".4~g"),
    )  # fmt: skip
    ink = alt.value(theme.ink)
    resolvable = alt.Chart(style.data(curve)).encode(x=x, color=ink)
    tip = ["seeds:Q", alt.Tooltip("difference:Q", title="smallest resolvable", format=".4f")]
    seen = ["arm:N", "seeds:Q", alt.Tooltip("signed:Q", title="difference", format="+.4f")]
    # The legend has the baseline in the same ink. Above the line, to the right, nothing is drawn.
    words = {"align": "left", "dx": 6, "dy": -8, "text": "smallest resolvable"}
    label = alt.Chart(style.data([row for row in curve if row["seeds"] == 8])).mark_text(**words)
    observed = alt.Chart(style.data(marks)).mark_point(filled=True, size=80)
    layers = [
        resolvable.mark_area(opacity=0.12).encode(y=alt.Y("low:Q", scale=frame), y2="high:Q"),
        resolvable.mark_line(strokeWidth=2, point=True).encode(y=y, tooltip=tip),
        label.encode(x=x, y=y, color=ink),
        observed.encode(x=x, y=y, color=color, opacity=style.dim(toggle, 1.0), tooltip=seen)
        .add_params(toggle),
    ]  # fmt: skip
    table = pandas.DataFrame([{"what": "resolvable"} | row for row in curve])
    drawn = pandas.DataFrame([{"what": "observed"} | row for row in marks])
    return style.Figure(
        name="power",
        title="Smallest resolvable difference by seeds",
        caption="Line: the smallest true difference found with 80 % power at the strictest level "
        "of the family, with as many arms of the same noise. Band: at the ends of the noise's "
        "95 % interval. Points: the observed difference of each arm, without its sign, at the "
        "seeds it shares with the baseline; one at the lower edge may lie below it. A point "
        "under the line says that such a difference is often missed, not that there is none.",
        spec=style.apply(alt.layer(*layers).properties(height=330), theme),
        table=pandas.concat([table, drawn], ignore_index=True),
    )


def _curve(found: Power) -> list[dict[str, Any]]:
    assert found.residual is not None
    low, high = (end / found.residual.sd for end in (found.residual.low, found.residual.high))
    return [
        {"seeds": seeds, "difference": size, "low": low * size, "high": high * size}
        for seeds, size in found.curve.items()
    ]


def _mark(need: Need) -> dict[str, Any]:
    return {
        "seeds": need.shared_seeds,
        "arm": need.arm,
        "difference": abs(need.difference),
        "signed": need.difference,
    }


def _spread(spread: Spread) -> str:
    sd, low, high = (numbers.nll(value) for value in (spread.sd, spread.low, spread.high))
    return f"{sd} (95 % interval {low} to {high})"


def _seeds(number: int | None) -> str:
    return f"more than {numbers.count(MOST_SEEDS)}" if number is None else str(number)
