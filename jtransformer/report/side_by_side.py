"""Sweeps in columns beside each other: a table and a figure of every arm in every directory."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import altair as alt
import pandas

from jtransformer.report import numbers, style
from jtransformer.report.section import Table
from jtransformer.report.summary import Column
from jtransformer.stats import Analysis, ArmAnalysis, Compared, Pool

_ROW = 18
"""Height of one estimate, in pixels."""


class Shown(NamedTuple):
    """A column of the table: a directory, one scale of it, or directories pooled.

    Attributes:
        name: Its heading.
        analysis: What came out.
        pool: What was pooled; None of a directory alone.
    """

    name: str
    analysis: Analysis
    pool: Pool | None


def shown(compared: Compared) -> list[Shown]:
    """Lists the columns: every directory at every scale, then what is pooled."""
    found = [
        Shown(_named(name, analysis), analysis, None)
        for name, analyses in compared.analyses.items()
        for analysis in analyses
    ]
    is_clear = len(compared.pools) == 1 and "pooled" not in compared.analyses
    for pool in compared.pools:
        heading = "pooled" if is_clear else f"pooled {' + '.join(pool.names)}"
        found += [Shown(_named(heading, one), one, pool) for one in pool.analyses]
    return found


def rows(compared: Compared) -> list[dict[str, Any]]:
    """Lists every arm in every column with all digits: the data behind the page."""
    return [
        {
            "arm": column.analysis.label(arm),
            "directory": column.name,
            "pooled": column.pool is not None,
            "scale": column.analysis.scale,
            "baseline": _baseline(column),
            "seeds": len(column.analysis.seeds),
            "verdict": arm.verdict.word,
            "difference": estimate.value if estimate else None,
            "low": estimate.low if estimate else None,
            "high": estimate.high if estimate else None,
            "interval": column.analysis.rule.intervals,
            "p_adjusted": arm.comparison.p_adjusted if arm.comparison else None,
        }
        for column in shown(compared)
        for arm in column.analysis.arms
        for estimate in [column.analysis.difference(arm)]
    ]


def arms_table(columns: list[Shown]) -> Table:
    """Tabulates the difference and the verdict of every arm in every column."""
    arms = _arms(columns)
    return Table(
        name="comparison",
        caption=f"Difference to the baseline {_baselines(columns)}, in {_unit(columns)}; ± is half "
        f"of a 95 % interval ({_intervals(columns)}), a negative difference is a lower loss. A "
        "word is by adjusted p values of its own column.",
        columns=[
            Column("arm", arms),
            *(Column(one.name, [_cell(one.analysis, arm) for arm in arms]) for one in columns),
        ],
        text=("arm", *(one.name for one in columns)),
    )


def _arms(columns: list[Shown]) -> list[str]:
    return list(dict.fromkeys(c.analysis.label(arm) for c in columns for arm in c.analysis.arms))


def _cell(analysis: Analysis, name: str) -> str:
    found = [arm for arm in analysis.arms if analysis.label(arm) == name]
    return _verdict(analysis, found[0]) if found else numbers.NOTHING


def _verdict(analysis: Analysis, arm: ArmAnalysis) -> str:
    word, difference = arm.verdict.word, analysis.difference(arm)
    if difference is None or word == "baseline":
        return word
    return f"{numbers.difference_with_interval(difference)}, {word}"


def _baseline(column: Shown) -> str:
    return column.analysis.label(column.analysis.arm(column.analysis.baseline))


def _baselines(columns: list[Shown]) -> str:
    names = set(map(_baseline, columns))
    return next(iter(names)) if len(names) == 1 else "of the column's own directory"


def _intervals(columns: list[Shown]) -> str:
    said = list(dict.fromkeys(one.analysis.rule.intervals for one in columns))
    return said[0] if len(said) == 1 else "unadjusted or simultaneous, as each directory declares"


def _unit(columns: list[Shown]) -> str:
    return columns[0].analysis.data["loss_unit"]


def _named(name: str, analysis: Analysis) -> str:
    return name if analysis.scale is None else f"{name}, {analysis.scale}"


def forest(columns: list[Shown], theme: style.Theme) -> style.Figure | None:
    """Draws every difference with its interval, directory by directory within an arm."""
    drawn = list(_estimates(columns))
    if not drawn:
        return None
    names = [one.name for one in columns]
    palette = iter(style.OKABE_ITO * len(names))
    # What is pooled is in ink: it is no further observation.
    colors = [next(palette) if one.pool is None else theme.ink for one in columns]
    title = [f"difference to the baseline, {_unit(columns)}", "(negative: lower loss, better)"]
    arms = list(dict.fromkeys(row["arm"] for row in drawn))
    scale = alt.Scale(zero=True, padding=12, nice=False)
    tip = [alt.Tooltip(f"{name}:Q", format="+.4f") for name in ("difference", "low", "high")]
    legend = alt.Legend(orient="top", columns=4)
    look = {
        "y": alt.Y("arm:N", sort=arms, title=None),
        "yOffset": alt.YOffset("directory:N", sort=names),
        "color": alt.Color(
            "directory:N", title=None, scale=alt.Scale(domain=names, range=colors), legend=legend
        ),
        "tooltip": ["arm:N", "directory:N", *tip, "verdict:N"],
    }
    x = alt.X("difference:Q", title=title, scale=scale, axis=alt.Axis(tickCount=7, format="+.4~g"))
    zero = alt.Chart(style.data([{"difference": 0}])).mark_rule(strokeDash=[3, 3], opacity=0.6)
    point = alt.Chart(style.data(drawn)).mark_point(filled=True, size=70)
    layers = [
        zero.encode(x="difference:Q", color=alt.value(theme.ink)),
        point.encode(x=x, **look),
    ]
    if intervals := [row for row in drawn if row["low"] is not None]:
        rule = alt.Chart(style.data(intervals)).mark_rule(strokeWidth=2.2)
        layers.append(rule.encode(x=alt.X("low:Q", title=title), x2="high:Q", **look))
    height = max(_ROW * len(names), 2 * _ROW) * len(arms)
    return style.Figure(
        name="differences_by_directory",
        title="Differences by work directory",
        caption=f"Estimate and 95 % interval ({_intervals(columns)}) of every arm against the "
        f"baseline {_baselines(columns)}. Whether two directories differ is not for two intervals "
        "to say that overlap or do not."
        + (
            " Pooled is no further observation: it holds the runs of the others."
            if any(one.pool for one in columns)
            else ""
        ),  # fmt: skip
        spec=style.apply(alt.layer(*layers).properties(height=height), theme),
        table=pandas.DataFrame(drawn),
        wide=True,
    )


def _estimates(columns: list[Shown]) -> Iterator[dict[str, Any]]:
    for column in columns:
        for arm in column.analysis.arms:
            if (estimate := column.analysis.difference(arm)) is not None:
                yield {
                    "arm": column.analysis.label(arm),
                    "directory": column.name,
                    "difference": estimate.value,
                    "low": estimate.low,
                    "high": estimate.high,
                    "verdict": arm.verdict.word,
                }
