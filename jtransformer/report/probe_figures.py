"""Figures of probes: profiles over depth, and the loss without each head."""

from typing import Any, NamedTuple

import altair as alt
import pandas

from jtransformer.report import style, thinning
from jtransformer.stats import Analysis, Profiles, mean_profiles

_PANEL = 250
"""Width of a panel of a profile, in pixels; two stand side by side."""
_IN_A_ROW = 3


class _Look(NamedTuple):
    """How a quantity is drawn.

    Attributes:
        title: Of the figure.
        axis: Of its axis, with the unit.
        parts: Which parts of a layer; empty is all.
        log: Whether the axis is logarithmic, where all values are positive.
        said: What the caption says it is.
    """

    title: str
    axis: str
    parts: tuple[str, ...]
    log: bool
    said: str


_LOOKS = {
    "gradient_norm": _Look(
        "Gradient norm", "gradient norm, nats", ("layer",), True,
        "Euclidean norm of the gradient of the training loss over all parameters of a layer.",
    ),
    "update_ratio": _Look(
        "Update against weights", "|update| / |weights|", ("layer",), True,
        "Norm of one update over that of the weights that it changes, for all of a layer.",
    ),
    "stream_rms": _Look(
        "Residual stream", "RMS of the stream", (), True,
        "Root mean square over positions and channels.",
    ),
    "outlier_ratio": _Look(
        "Outlier channels", "largest / median channel RMS", (), True,
        "RMS of the largest channel of the stream over that of the median channel.",
    ),
    "relative_entropy": _Look(
        "Attention entropy", "entropy / largest possible", (), False,
        "Entropy of the attention weights over the logarithm of the keys that a query sees, mean "
        "over heads: 1 reads all keys alike, 0 reads one.",
    ),
    "dead_fraction": _Look(
        "Dead units", "share of dead units", (), False,
        "Share of hidden units that are 0 at every position that was measured.",
    ),
    "saturated_fraction": _Look(
        "Saturated gates", "share of saturated gates", (), False,
        "Share of gate values at which the slope of the gate is below 0.05.",
    ),
    "spectral_norm_stream": _Look(
        "Largest stretch of a sublayer", "spectral norm of the Jacobian", (), True,
        "Largest singular value of the Jacobian of the stream behind a sublayer by the stream "
        "before it, on one row, by power iteration: a lower bound.",
    ),
}  # fmt: skip


def profile(
    quantity: str, found: Profiles, analysis: Analysis, theme: style.Theme
) -> style.Figure | None:
    """Draws a quantity over depth at the first and the last probed step; None without numbers."""
    look, layers = _LOOKS[quantity], found.layers
    table: Any = layers[layers["quantity"] == quantity]
    shown: Any = table[table["part"].isin(look.parts)] if look.parts else table
    shown = shown[shown["step"].isin((found.steps[0], found.steps[-1]))]
    if not len(shown):
        return None
    drawn = thinning.thin(
        shown.reset_index(drop=True), by=["arm", "seed", "step", "stack", "part"], y="value"
    )
    means = mean_profiles(shown, len(analysis.seeds))
    log = look.log and bool((shown["value"] > 0).all())
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False)
    title = look.axis + (" (log scale)" if log else "")
    y = alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(format=".4~g", tickCount=5))
    steps = list(dict.fromkeys((found.steps[0], found.steps[-1])))
    places = [
        (group, step)
        for group in dict.fromkeys(zip(shown["stack"], shown["part"], strict=True))
        for step in steps
    ]
    panels = [
        _panel(_only(drawn, *place), _only(means, *place), y, analysis, theme).properties(
            title=_name(shown, *place)
        )
        for place in places
    ]
    # In one view alone: the others follow it by its name.
    panels[0] = panels[0].add_params(style.arm_color(analysis, theme)[1])
    chart = alt.concat(*panels, columns=len(steps)).resolve_scale(y="shared")
    return style.Figure(
        name=f"probe_{quantity}",
        title=f"{look.title}, by depth",
        caption=f"{look.said} Bold: mean over seeds, where all were probed; thin: each seed. "
        f"Without intervals. {thinning.said(drawn, shown)}".strip(),
        spec=style.apply(chart, theme),
        table=table,
    )


def _only(table: Any, group: tuple[str, str], step: int) -> Any:
    stack, part = group
    same = (table["stack"] == stack) & (table["part"] == part) & (table["step"] == step)
    return table[same].drop(columns=["stack", "part", "quantity"])


def _name(shown: Any, group: tuple[str, str], step: int) -> str:
    """Names a panel by what tells it from its neighbours."""
    stack, part = group
    words = [stack] if len(set(shown["stack"])) > 1 else []
    words += [part.replace("_", " ")] if len(set(shown["part"])) > 1 else []
    return ", ".join([*words, f"step {step}" if step else "step 0, at initialisation"])


def _panel(
    seeds: pandas.DataFrame,
    means: pandas.DataFrame,
    y: alt.Y,
    analysis: Analysis,
    theme: style.Theme,
) -> Any:
    color, toggle = style.arm_color(analysis, theme)
    layers = sorted(set(seeds["layer"]))
    # Without a layer the panel stays, empty, beside those of the other steps.
    axis = alt.Axis(values=layers[:: max(1, -(-len(layers) // 9))], format="d")
    x = alt.X("layer:Q", title="layer", axis=axis, scale=alt.Scale(nice=False, padding=8))
    tip = ["arm:N", "layer:Q", alt.Tooltip("value:Q", format=".4g")]
    thin = alt.Chart(style.data(seeds)).mark_line(strokeWidth=1, point={"size": 10})
    thin = thin.encode(x=x, y=y, color=color, detail="seed:N", opacity=style.dim(toggle, 0.35))
    bold = alt.Chart(style.data(means)).encode(
        x=x, y=y, color=color, opacity=style.dim(toggle, 1.0), tooltip=tip
    )
    return alt.layer(
        thin,
        bold.mark_line(strokeWidth=2.4),
        bold.mark_point(filled=True, size=26),
    ).properties(width=_PANEL, height=200)


def ablation(found: Profiles, analysis: Analysis, theme: style.Theme) -> style.Figure | None:
    """Draws what the loss gains without each head, layers by heads; None without numbers."""
    heads: Any = found.heads.dropna(subset=["ablation"])
    if not len(heads):
        return None
    last = heads.groupby("arm")["step"].transform("max")
    where = ["arm", "step", "stack", "sublayer", "layer", "head"]
    grouped = heads[heads["step"] == last].groupby(where, sort=False)
    shown: Any = grouped.agg(
        gained=("ablation", "mean"), present=("ablation", "count")
    ).reset_index()
    shown = shown[shown["present"] == len(analysis.seeds)]
    if not len(shown):
        return None
    most = float(shown["gained"].abs().max()) or 1.0
    color = alt.Color(
        "gained:Q",
        title=f"loss gained, {analysis.data['loss_unit']}",
        scale=alt.Scale(domain=[-most, most], scheme="blueorange"),
        legend=alt.Legend(orient="top", gradientLength=220, format="+.2g"),
    )
    groups = ["arm", "stack", "sublayer"]
    panels = [
        _heads(own.drop(columns=[*groups, "present"]), color, _head_title(shown, own))
        for _, own in shown.groupby(groups, sort=False)
    ]
    return style.Figure(
        name="probe_ablation",
        title="Loss without each head",
        caption="By how much the loss on the measured rows grows when one head is switched off and "
        "all others stay, mean over seeds, at the last step that was probed. Without intervals. A "
        "head without which the loss hardly grows may still matter together with another.",
        spec=style.apply(alt.concat(*panels, columns=_IN_A_ROW), theme),
        table=heads,
    )


def _head_title(shown: Any, own: Any) -> str:
    first = own.iloc[0]
    words = [first["arm"]] if len(set(shown["stack"])) < 2 else [first["arm"], first["stack"]]
    words += [] if first["sublayer"] == "attention" else ["cross attention"]
    return ", ".join([*words, f"step {first['step']}"])


def _heads(rows: Any, color: alt.Color, title: str) -> Any:
    size = {"width": max(60, min(180, 26 * rows["head"].nunique()))}
    size |= {"height": max(40, min(200, 26 * rows["layer"].nunique()))}
    tip = ["layer:O", "head:O", alt.Tooltip("gained:Q", format="+.4f")]
    return (
        alt.Chart(style.data(rows))
        .mark_rect()
        .encode(
            x=alt.X("head:O", axis=alt.Axis(labelAngle=0)), y="layer:O", color=color, tooltip=tip
        )
        .properties(title=title, **size)
    )
