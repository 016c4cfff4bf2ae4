"""What happens inside the models, by depth: one section of the page."""

from typing import Any

from jtransformer.report import numbers, style
from jtransformer.report.attention_maps import attention_maps
from jtransformer.report.probe_figures import ablation, profile
from jtransformer.report.section import Section, Table
from jtransformer.report.summary import Column
from jtransformer.stats import Analysis, Profiles, mean_estimate

DRAWN = (
    "gradient_norm",
    "update_ratio",
    "stream_rms",
    "outlier_ratio",
    "relative_entropy",
    "dead_fraction",
    "saturated_fraction",
    "spectral_norm_stream",
)
"""Quantities with a figure; the records have the others too."""
MOST_MAPPED = 6
"""Arms whose attention is drawn; the baseline is among them."""


def section(found: Profiles | None, analysis: Analysis, theme: style.Theme) -> Section | None:
    """Writes the section; None where no run at a chosen setting was probed."""
    if found is None:
        return None
    figures = [profile(name, found, analysis, theme) for name in DRAWN]
    maps = [
        attention_maps(arm, found, number, theme)
        for number, arm in enumerate(_mapped(found, analysis), 1)
    ]
    drawn = [*figures, ablation(found, analysis, theme), *maps]
    return Section(
        name="probes",
        title="What happens inside, by depth?",
        paragraphs=[*_about(found, analysis), found.caveat],
        tables=[_table(found, analysis)],
        figures=[figure for figure in drawn if figure is not None],
    )


def _about(found: Profiles, analysis: Analysis) -> list[str]:
    last, steps = max(found.steps), numbers.names([str(step) for step in found.steps])
    rows = " or ".join(map(str, found.rows))
    texts = [
        f"Measured at step{'s' if len(found.steps) > 1 else ''} {steps} on the first {rows} rows "
        "of the validation part, the same for every seed and step, at each arm's chosen setting. "
        "The update is the one that these rows would cause; it was not made. Layers are counted "
        "from 0; of the stream, layer l is what enters it, and the last entry what leaves the "
        "stack. Nothing here enters the verdicts, and no difference was tested."
    ]
    logits: Any = found.logits.dropna(subset=["sd"])
    there, probed = logits[logits["step"] == last], set(found.logits["arm"])
    missing = [
        arm.name
        for arm in analysis.arms
        if len(there[there["arm"] == arm.name]) < len(analysis.seeds) and arm.name in probed
    ]
    if missing:
        texts.append(
            f"Not every seed of {numbers.names(missing)} has numbers at step {last} (it diverged, "
            "ended or is not there yet): such an arm has no mean there."
        )
    if without := [arm.name for arm in analysis.arms if arm.name not in probed]:
        texts.append(f"No run of {numbers.names(without)} at a chosen setting was probed.")
    by_reason: dict[str, list[str]] = {}
    for arm, reasons in found.absent.items():
        for reason in dict.fromkeys(reasons.values()):
            by_reason.setdefault(reason, []).append(arm)
    if by_reason:
        said = [f"{reason} ({numbers.names(arms)})" for reason, arms in by_reason.items()]
        texts.append(f"What has no figures, and why: {'; '.join(said)}.")
    return texts


def _mapped(found: Profiles, analysis: Analysis) -> list[str]:
    arms = list(dict.fromkeys(one.arm for one in found.maps))
    return sorted(arms, key=lambda arm: arm != analysis.baseline)[:MOST_MAPPED]


def _table(found: Profiles, analysis: Analysis) -> Table:
    seeds = len(analysis.seeds)
    rows = [
        (arm.name, step)
        for arm in analysis.arms
        for step in found.steps
        if len(_at(found.logits, arm.name, step))
    ]
    cells = {
        "gradient norm, first layer": ("gradient_norm", "layer", "first"),
        "gradient norm, last layer": ("gradient_norm", "layer", "last"),
        "update / weight, largest": ("update_ratio", "layer", "max"),
        "stream RMS, last": ("stream_rms", "stream", "last"),
        "entropy / largest possible": ("relative_entropy", "attention", "mean"),
        "spectral norm, largest": ("spectral_norm_stream", None, "max"),
    }
    columns = [
        Column("arm", [arm for arm, _ in rows]),
        Column("step", [numbers.count(step) for _, step in rows]),
        *(
            Column(
                heading,
                [_cell(_over_layers(_at(found.layers, *row), *which), seeds) for row in rows],
            )
            for heading, which in cells.items()
        ),
        Column("sd of logits", [_cell(_at(found.logits, *row)["sd"], seeds) for row in rows]),
    ]
    return Table(
        name="probes",
        caption="Means, where every seed has a number; ± is half of a 95 % t interval over seeds, "
        "unadjusted. Of two stacks the decoder's layers are shown.",
        columns=columns,
    )


def _at(table: Any, arm: str, step: int) -> Any:
    return table[(table["arm"] == arm) & (table["step"] == step)]


def _over_layers(own: Any, quantity: str, part: str | None, how: str) -> Any:
    """Reduces the layers of each seed to one number."""
    own = own[own["quantity"] == quantity]
    if part is not None:
        own = own[own["part"] == part]
    if "decoder" in set(own["stack"]):
        own = own[own["stack"] == "decoder"]
    return own.sort_values("layer").groupby("seed")["value"].agg(how)


def _cell(values: Any, seeds: int) -> str:
    known = values.dropna().tolist()
    if len(known) < seeds:
        return numbers.NOTHING
    estimate = mean_estimate(known)
    half = estimate.half_width
    return f"{estimate.value:.3g}" + ("" if half is None else f" ± {half:.2g}")
