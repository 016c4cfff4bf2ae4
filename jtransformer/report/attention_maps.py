"""Where heads read: maps of attention as they are drawn."""

from typing import Any

import altair as alt
import pandas

from jtransformer.report import style
from jtransformer.stats import AttentionMap, Profiles

_MOST_HEADS = 4
_MOST_CELLS = 32
"""A side of a map as it is drawn; the data behind it have twice as many at most."""
_SIDE = 220
"""The same in pixels; two maps stand side by side."""


def attention_maps(
    arm: str, found: Profiles, number: int, theme: style.Theme
) -> style.Figure | None:
    """Draws where some heads of an arm read; None where it has no maps.

    Args:
        arm: Its name.
        found: What was measured.
        number: Counted from 1, for the figure's name.
        theme: Where it is shown.
    """
    own = [one for one in found.maps if one.arm == arm]
    if not own:
        return None
    count = min(len(own), _MOST_HEADS)
    chosen = [own[round(n * (len(own) - 1) / max(count - 1, 1))] for n in range(count)]
    color = alt.Color(
        "weight:Q",
        title="share of attention",
        scale=alt.Scale(type="sqrt", domain=[0, 1], scheme="viridis"),
        legend=alt.Legend(orient="top", gradientLength=160),
    )
    return style.Figure(
        name=f"attention_maps_{number}",
        title=f"Where heads of {arm} read",
        caption=f"Attention weights of {len(chosen)} of the {len(own)} heads that were kept, from "
        f"first to last, of seed {own[0].seed} at step {own[0].step}, on one row of the "
        f"validation part; colours go with the square root.{_pooled(chosen)} Where a head reads "
        "does not say what it is for.",
        spec=style.apply(alt.concat(*(_map(one, color) for one in chosen), columns=2), theme),
        table=pandas.DataFrame([row for one in chosen for row in _rows(one)]),
    )


def _pooled(maps: list[AttentionMap]) -> str:
    if max(max(one.weights.shape) * one.keys_in_one for one in maps) <= _MOST_CELLS:
        return ""
    return (
        f" Thinned to at most {_MOST_CELLS} × {_MOST_CELLS} cells: a cell is the mean over "
        "neighbouring queries of the sum over neighbouring keys."
    )


def _map(one: AttentionMap, color: alt.Color) -> Any:
    rows = [cell | {"weight": round(cell["weight"], 4)} for cell in one.cells(_MOST_CELLS)]
    places = {name: sorted({row[name] for row in rows}) for name in ("query", "key")}
    ticks = {name: own[:: max(1, len(own) // 8)] for name, own in places.items()}
    axes = {
        name: alt.Axis(values=ticks[name], labelAngle=0, ticks=False, grid=False) for name in ticks
    }
    return (
        alt.Chart(style.data(rows))
        .mark_rect()
        .encode(
            x=alt.X("key:O", title="key", axis=axes["key"]),
            y=alt.Y("query:O", title="query", axis=axes["query"]),
            color=color,
            tooltip=["query:O", "key:O", alt.Tooltip("weight:Q", format=".3f")],
        )
        .properties(title=one.name, width=_SIDE, height=_SIDE)
    )


def _rows(one: AttentionMap) -> list[dict[str, Any]]:
    whose = {"arm": one.arm, "seed": one.seed, "step": one.step, "head": one.name}
    return [whose | cell for cell in one.cells(max(one.weights.shape))]
