"""The figures of the page."""

from typing import Any

import altair as alt
import pandas

from jtransformer.report import style
from jtransformer.report.style import OKABE_ITO, Figure, Theme

from .aims import ratio
from .curves import AXES
from .journal import Journal
from .peers import OURS, PEERS
from .rounds import Spread, spread

MIB = 2**20
HEIGHT = 300


def ratios(journal: Journal, sizes: list[str], theme: Theme) -> Figure:
    """Draws how much longer the step of each peer takes."""
    rows = []
    for size in sizes:
        for name, peer in PEERS.items():
            found = ratio(journal, size, name)
            if found is not None and name != OURS:
                rows.append({"peer": peer.title, "size": size, **found._asdict()})
    table = pandas.DataFrame(rows, columns=["peer", "size", *Spread._fields])
    titles = [peer.title for name, peer in PEERS.items() if name != OURS]
    scale = alt.Scale(type="log", nice=False, padding=16)
    base = alt.Chart(style.data(table)).encode(
        y=alt.Y("peer:N", sort=titles, title=None),
        yOffset=alt.YOffset("size:N", sort=sizes),
        color=alt.Color("size:N", sort=sizes, scale=_range(len(sizes)), title="size"),
    )
    axis = alt.Axis(format=".2~f", tickCount=8)
    x = alt.X("median:Q", scale=scale, axis=axis, title="its time / time here (log scale)")
    tip = ["peer:N", "size:N", *[alt.Tooltip(f"{f}:Q", format=".2f") for f in Spread._fields]]
    even = alt.Chart(style.data([{"one": 1.0}])).mark_rule(strokeDash=[4, 3]).encode(
        x=alt.X("one:Q", scale=scale), color=alt.value(theme.ink)
    )  # fmt: skip
    bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
    points = base.mark_point(filled=True, size=70, opacity=1).encode(x=x, tooltip=tip)
    chart = alt.layer(even, bars, points).properties(height=40 * max(1, len(titles)))
    return Figure(
        name="step_ratios",
        title="Time of a training step, as a multiple of the time here",
        caption="Right of the dashed line the step here is faster. Points: medians of the ratios, "
        "round by round; bars: quartiles.",
        spec=style.apply(chart, theme),
        table=table,
        wide=True,
    )


def curve(journal: Journal, axis: str) -> list[tuple[int, Spread]]:
    """Returns the seconds of an update by the value of what grows."""
    values = sorted({line["value"] for line in journal.of("curve", axis=axis)})
    taken = [journal.seconds("curve", axis=axis, value=value).values() for value in values]
    return [(value, spread(list(s))) for value, s in zip(values, taken, strict=True)]


def curves(journal: Journal, axis: str, theme: Theme) -> Figure:
    """Draws what an update costs along one axis."""
    rows = [
        {"value": value, **{name: 1e3 * s for name, s in found._asdict().items()}}
        for value, found in curve(journal, axis)
    ]
    table = pandas.DataFrame(rows, columns=["value", *Spread._fields])
    title = AXES[axis].title
    x = _log("value", title, [row["value"] for row in rows])
    y = alt.Y(
        "median:Q", title="ms per update", scale=alt.Scale(type="log", nice=False, padding=12)
    )
    tip = [alt.Tooltip("value:Q", title=title), alt.Tooltip("median:Q", format=".2f", title="ms")]
    base = alt.Chart(style.data(table)).encode(x=x, color=alt.value(OKABE_ITO[0]))
    chart = alt.layer(
        base.mark_line(strokeWidth=2.4).encode(y=y),
        base.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q"),
        base.mark_point(filled=True, size=50, opacity=1).encode(y=y, tooltip=tip),
    ).properties(height=HEIGHT)
    return Figure(
        name=f"curve_{axis}",
        title=f"Cost against {title}",
        caption="Logarithmic axes. Points: medians over the rounds; bars: quartiles.",
        spec=style.apply(chart, theme),
        table=table,
    )


def compile_points(journal: Journal) -> dict[int, dict[str, Spread]]:
    """Returns the seconds of compiling, by layers and form."""
    points: dict[int, dict[str, Spread]] = {}
    for layers in sorted({line["layers"] for line in journal.of("compile")}):
        points[layers] = {}
        for form in ("scan", "loop"):
            if seconds := journal.seconds("compile", form=form, layers=layers):
                points[layers][form] = spread(list(seconds.values()))
    return points


def compiling(journal: Journal, theme: Theme) -> Figure:
    """Draws the time of compiling against depth."""
    rows = [
        {"layers": layers, "form": form, **found._asdict()}
        for layers, forms in compile_points(journal).items()
        for form, found in forms.items()
    ]
    table = pandas.DataFrame(rows, columns=["layers", "form", *Spread._fields])
    y = alt.Y("median:Q", title="seconds")
    chart = _lines(table, "form", ["scan", "loop"], alt.X("layers:Q", title="layers"), y)
    return Figure(
        name="compile",
        title="Time of compiling against depth",
        caption="Tracing, lowering and compiling one update. Medians.",
        spec=style.apply(chart.properties(height=HEIGHT), theme),
        table=table,
    )


def memory_rows(journal: Journal) -> list[dict[str, Any]]:
    """Returns what was reserved, a row for each variant and length."""
    wanted = ("variant", "length", "arguments", "temporaries")
    return [{key: line[key] for key in wanted} for line in journal.of("memory")]


def memory(journal: Journal, theme: Theme) -> Figure:
    """Draws the temporaries of an update against the length of its rows."""
    table = pandas.DataFrame(memory_rows(journal))
    table["MiB"] = table["temporaries"] / MIB
    variants = list(dict.fromkeys(table["variant"]))
    y = alt.Y(
        "MiB:Q", title="temporaries, MiB", scale=alt.Scale(type="log", nice=False, padding=12)
    )
    x = _log("length", "length, tokens", sorted(set(table["length"])))
    chart = _lines(table, "variant", variants, x, y)
    return Figure(
        name="memory",
        title="Memory of an update against length",
        caption="Logarithmic axes. What the compiler reserves, exact.",
        spec=style.apply(chart.properties(height=HEIGHT + 60), theme),
        table=table,
        wide=True,
    )


def _log(field: str, title: str, values: list[int]) -> alt.X:
    axis = alt.Axis(values=values, format="~d")
    return alt.X(f"{field}:Q", title=title, axis=axis, scale=_tight())


def _tight() -> alt.Scale:
    return alt.Scale(type="log", nice=False, padding=16)


def _range(count: int) -> alt.Scale:
    return alt.Scale(range=[OKABE_ITO[i % len(OKABE_ITO)] for i in range(count)])


def _lines(table: pandas.DataFrame, field: str, names: list[str], x: alt.X, y: alt.Y) -> Any:
    """Draws a line for each name; where colours repeat, dashes tell them apart."""
    dashes = [list(style.DASHES[i // len(OKABE_ITO)]) for i in range(len(names))]
    legend = alt.Legend(orient="top", symbolType="stroke", symbolSize=500, symbolStrokeWidth=3)
    color = alt.Color(f"{field}:N", sort=names, scale=_range(len(names)), title=None, legend=legend)
    dash = alt.StrokeDash(
        f"{field}:N", sort=names, scale=alt.Scale(range=dashes), title=None, legend=legend
    )
    base = alt.Chart(style.data(table)).encode(x=x, y=y, color=color)
    # Dashed points would have a legend of their own.
    return alt.layer(
        base.mark_line(strokeWidth=2.2).encode(strokeDash=dash),
        base.mark_point(filled=True, size=40, opacity=1),
    )
