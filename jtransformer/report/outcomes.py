"""What diverged, and how the arms rank where a diverged run has no loss to be averaged."""

from typing import Any

import altair as alt
import pandas

from jtransformer.report import judging, numbers, style
from jtransformer.report.section import Section, Table
from jtransformer.report.summary import Column
from jtransformer.stats import LEVEL, Analysis, ArmDivergence, Divergence, Rate

_MOST_VALUES = 8
"""A table with more columns is not read; the data behind the figure have them all."""


def section(found: Divergence | None, analysis: Analysis, theme: style.Theme) -> Section | None:
    """Writes the section; None while nothing is finished."""
    if found is None:
        return None
    some = found.all.diverged > 0
    paragraphs = [_total(found)]
    if some:
        paragraphs += _compared(found, analysis)
    ranked = any(arm.median_rank is not None for arm in found.arms)
    if ranked:
        paragraphs.append(_ranked(found))
    tables = [_table(found, analysis, some, ranked)] if some or ranked else []
    return Section(
        name="divergence",
        title="What diverged?",
        paragraphs=paragraphs,
        tables=[*tables, *(_tables_by_value(found) if some else [])],
        figures=_figures(found, analysis, theme) if some else [],
    )


def _total(found: Divergence) -> str:
    text = f"{_share(found.all)} runs diverged"
    if found.all.diverged:
        text += f" ({_percent(found.all.value)}, 95 % interval {_interval(found.all)})."
    else:
        text += f" (95 %: at most {_percent(found.all.high)})."
    if found.shorter is not None:
        text += (
            f" Counted are runs of all steps; on the shorter rungs of the search it was "
            f"{_share(found.shorter)}."
        )
    return text


def _compared(found: Divergence, analysis: Analysis) -> list[str]:
    baseline = next(arm for arm in found.arms if arm.name == analysis.baseline)
    others = [arm for arm in found.arms if arm.name != analysis.baseline]
    told = [arm for arm in others if arm.p_adjusted is not None and arm.p_adjusted <= LEVEL]
    texts = [f"{_told(arm, baseline)}." for arm in told]
    if untold := [arm.name for arm in others if arm.p_adjusted is not None and arm not in told]:
        texts.append(
            f"For {numbers.names(untold)} no difference to {baseline.name} in how often runs "
            "diverge can be told."
        )
    if waiting := [arm.name for arm in others if arm.p_adjusted is None]:
        texts.append(
            f"Not compared, because runs of the arm or of {baseline.name} are not finished: "
            f"{numbers.names(waiting)}."
        )
    method = "Intervals of rates are exact (Clopper-Pearson), each for itself."
    if others:
        method += (
            " The p is that of Boschloo's exact test over all runs of two arms, adjusted "
            f"({judging.correction(analysis)}) over {found.comparisons} comparisons, a family of "
            "their own. It takes runs to be independent: where a seed's runs diverge together it "
            "is too small."
        )
    method += (
        " An arm is judged at the setting with the fewest diverged runs, so its rate there is "
        "flattered, and is not tested. A diverged run enters no mean."
    )
    return [*texts, method]


def _told(arm: ArmDivergence, baseline: ArmDivergence) -> str:
    assert arm.all is not None and baseline.all is not None
    word = "more" if arm.all.value > baseline.all.value else "less"
    return (
        f"{arm.name} diverges {word} often than {baseline.name} ({_share(arm.all)} runs against "
        f"{_share(baseline.all)}, adjusted p = {numbers.p_value(arm.p_adjusted)})"
    )


def _ranked(found: Divergence) -> str:
    text = (
        "Within each seed the arms are ranked by the validation loss at their chosen settings: 1 "
        "is the lowest, a diverged run comes last, equal ones share their ranks. The table has the "
        "median over seeds, without an interval: it orders what was run and claims no more."
    )
    if found.unranked:
        missing = [
            f"{name} (seed{'s' if len(seeds) > 1 else ''} {numbers.names([*map(str, seeds)])})"
            for name, seeds in found.unranked.items()
        ]
        text += f" Without a finished run there, and so left out: {numbers.names(missing)}."
    return text


def _table(found: Divergence, analysis: Analysis, some: bool, ranked: bool) -> Table:
    columns = [Column("arm", [arm.name for arm in found.arms])]
    if some:
        columns += [
            Column("diverged, all runs", [_share_or_nothing(arm.all) for arm in found.arms]),
            Column("rate (95 % interval)", [_rate(arm.all) for arm in found.arms]),
            Column("at the chosen setting", [_share_or_nothing(arm.chosen) for arm in found.arms]),
            Column("rate there (95 % interval)", [_rate(arm.chosen) for arm in found.arms]),
            Column(
                f"p against {analysis.baseline} (Boschloo, {judging.correction(analysis)})",
                [numbers.p_value(arm.p_adjusted) for arm in found.arms],
            ),
        ]
    if ranked:
        columns += [
            Column("median rank", [_rank(arm.median_rank) for arm in found.arms]),
            Column("ranks by seed", [_ranks(arm) for arm in found.arms]),
        ]
    return Table(
        name="divergence",
        caption="How often runs diverged and how the arms rank by validation loss within seeds."
        if some
        else "How the arms rank by validation loss within seeds, at their chosen settings.",
        columns=columns,
    )


def _tables_by_value(found: Divergence) -> list[Table]:
    tables = []
    for factor in _factors(found):
        values = sorted({value for arm in found.arms for value in arm.by_value.get(factor, {})})
        if len(values) > _MOST_VALUES:
            continue
        name = numbers.words(factor)
        rates = [arm.by_value.get(factor, {}) for arm in found.arms]
        columns = [
            Column(f"{name} {numbers.setting(value)}", [_rate_of(own.get(value)) for own in rates])
            for value in values
        ]
        tables.append(
            Table(
                name=f"divergence_by_{factor.replace('.', '_')}",
                caption=f"Diverged runs by {name}, whatever else was tuned, with the exact 95 % "
                "interval of the rate.",
                columns=[Column("arm", [arm.name for arm in found.arms]), *columns],
            )
        )
    return tables


def _figures(found: Divergence, analysis: Analysis, theme: style.Theme) -> list[style.Figure]:
    factors = _factors(found)
    if not factors:
        rows = [_row(arm.name, arm.name, arm.all) for arm in found.arms if arm.all is not None]
        return [_figure("divergence", "arm", rows, analysis, theme)]
    return [
        _figure(
            f"divergence_by_{factor.replace('.', '_')}",
            numbers.words(factor),
            [
                _row(arm.name, value, rate)
                for arm in found.arms
                for value, rate in arm.by_value.get(factor, {}).items()
            ],
            analysis,
            theme,
        )
        for factor in factors
    ]


def _row(arm: str, value: Any, rate: Rate) -> dict[str, Any]:
    return {
        "arm": arm,
        "value": value,
        "diverged": rate.diverged,
        "finished": rate.finished,
        "rate": rate.value,
        "low": rate.low,
        "high": rate.high,
    }


def _figure(
    name: str, what: str, rows: list[dict[str, Any]], analysis: Analysis, theme: style.Theme
) -> style.Figure:
    color, toggle = style.arm_color(analysis, theme)
    values = list(dict.fromkeys(row["value"] for row in rows))
    order = values if name == "divergence" else sorted(values)
    axis = alt.Axis(labelAngle=0, format=".4~g") if order is not values else alt.Axis(labelAngle=0)
    x = alt.X("value:O", title=what, sort=order, axis=axis)
    offset = alt.XOffset("arm:N", sort=[arm.name for arm in analysis.arms])
    scale = alt.Scale(domain=[0, 1], nice=False)
    title = "share of runs that diverged"
    y = alt.Y("rate:Q", title=title, scale=scale, axis=alt.Axis(format="%", tickCount=5))
    percent = [alt.Tooltip(f"{end}:Q", format=".1%") for end in ("rate", "low", "high")]
    base = alt.Chart(style.data(rows)).encode(
        x=x,
        xOffset=offset,
        color=color,
        opacity=style.dim(toggle, 1.0),
        tooltip=["arm:N", "value:O", "diverged:Q", "finished:Q", *percent],
    )
    layers = [
        base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title=title), y2="high:Q"),
        base.mark_point(filled=True, size=70).encode(y=y).add_params(toggle),
    ]
    return style.Figure(
        name=name,
        title=f"Diverged runs by {what}",
        caption="Share of the finished runs that diverged, with its exact 95 % interval, each for "
        "itself. Intervals that overlap do not show that two arms diverge equally often.",
        spec=style.apply(alt.layer(*layers).properties(height=330), theme),
        table=pandas.DataFrame(rows),
    )


def _factors(found: Divergence) -> list[str]:
    return list(dict.fromkeys(factor for arm in found.arms for factor in arm.by_value))


def _share(rate: Rate) -> str:
    return f"{numbers.count(rate.diverged)} of {numbers.count(rate.finished)}"


def _share_or_nothing(rate: Rate | None) -> str:
    return numbers.NOTHING if rate is None else _share(rate)


def _rate(rate: Rate | None) -> str:
    return numbers.NOTHING if rate is None else f"{_percent(rate.value)} ({_interval(rate)})"


def _rate_of(rate: Rate | None) -> str:
    return numbers.NOTHING if rate is None else f"{_share(rate)} ({_interval(rate)})"


def _interval(rate: Rate) -> str:
    return f"{_percent(rate.low)} to {_percent(rate.high)}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _rank(median: float | None) -> str:
    return numbers.NOTHING if median is None else f"{median:g}"


def _ranks(arm: ArmDivergence) -> str:
    return ", ".join(f"{rank:g}" for rank in arm.ranks.values()) or numbers.NOTHING
