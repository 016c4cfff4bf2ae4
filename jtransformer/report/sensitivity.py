"""How much the result owes to tuning: sensitivity to tuned values, and luck in the best one."""

import re

import pandas

from jtransformer.report import intervals, numbers, reestimation, style
from jtransformer.report.section import Section, Table
from jtransformer.report.summary import Column
from jtransformer.stats import Analysis, FactorSensitivity, Sensitivity


def section(found: Sensitivity | None, analysis: Analysis, theme: style.Theme) -> Section | None:
    """Writes the section; None where nothing was tuned or too little is finished."""
    if found is None:
        return None
    paragraphs, tables, figures = [], [], []
    for factor in found.factors:
        paragraphs += _paragraphs(factor, analysis)
        tables.append(_table(factor, analysis))
        figures.append(_figure(factor, analysis, theme))
    if found.arms:
        paragraphs += reestimation.paragraphs(found.arms, analysis)
        tables.append(reestimation.table(found.arms, analysis))
        figures.append(reestimation.figure(found.arms, analysis, theme))
    return Section(
        name="sensitivity",
        title="How much does tuning matter?",
        paragraphs=paragraphs,
        tables=tables,
        figures=[figure for figure in figures if figure is not None],
    )


def _paragraphs(factor: FactorSensitivity, analysis: Analysis) -> list[str]:
    arms = [arm for arm in factor.arms if arm.mean is not None]
    first, unit = arms[0], analysis.data["loss_unit"]
    values = numbers.names([numbers.setting(value) for value in first.values])
    text = (
        f"Sensitivity to the {_words(factor)} is the mean, over the values tried ({values}), of "
        f"the loss minus the lowest of them, in {unit}: what a value picked blindly among them "
        "costs. A diverged run counts as the loss before training"
    )
    if first.untrained is None:
        text += ", which is not recorded, so that seeds with one are left out."
    else:
        text += (
            "; records do not hold it, and a uniform guess stands for it "
            f"(ln V = {first.untrained:.4f})."
        )
    texts = [text]
    for word, sign in (("more", 1), ("less", -1)):
        told = [
            f"{arm.name} ({numbers.difference_with_interval(arm.difference)})"
            for arm in arms
            if arm.difference is not None
            and reestimation.excludes_zero(arm.difference)
            and sign * arm.difference.value > 0
        ]
        if told:
            verb = "is" if len(told) == 1 else "are"
            texts.append(
                f"{numbers.names(told)} {verb} {word} sensitive than {analysis.baseline}, by "
                "intervals that are not adjusted for the number of arms."
            )
    return texts


def _table(factor: FactorSensitivity, analysis: Analysis) -> Table:
    unit, arms = analysis.data["loss_unit"], factor.arms
    differences = [numbers.difference_with_interval(arm.difference) for arm in arms]
    return Table(
        name=f"sensitivity_{_stem(factor)}",
        caption=f"Sensitivity to the {_words(factor)} over seeds; ± is half of a 95 % t interval "
        f"(unadjusted). Differences to {analysis.baseline} are paired by seed; a negative one is "
        "less sensitive.",
        columns=[
            Column("arm", [arm.name for arm in arms]),
            Column(f"sensitivity ({unit})", [numbers.nll_with_interval(arm.mean) for arm in arms]),
            Column(f"difference ({unit})", differences),
            Column("seeds", [str(len(arm.by_seed)) for arm in arms]),
            Column("values tried", [str(len(arm.values)) for arm in arms]),
        ],
    )


def _figure(factor: FactorSensitivity, analysis: Analysis, theme: style.Theme) -> style.Figure:
    arms = [arm for arm in factor.arms if arm.mean is not None]
    means = [intervals.row(arm.name, "mean", arm.mean) for arm in arms if arm.mean is not None]
    seeds = [
        intervals.seed_row(arm.name, seed, value)
        for arm in arms
        for seed, value in arm.by_seed.items()
    ]
    rows = intervals.Rows(
        title=f"sensitivity to the {_words(factor)}, {analysis.data['loss_unit']}",
        format=".4~g",
        arms=[arm.name for arm in arms],
        analysis=analysis,
        theme=theme,
    )
    return style.Figure(
        name=f"sensitivity_{_stem(factor)}",
        title=f"Sensitivity to the {_words(factor)}",
        caption="Filled: mean over seeds with its 95 % t interval (unadjusted). Open: each seed. "
        "Near zero, the arm does as well at every value tried. It says how an arm bears these "
        "values, not how good its best one is.",
        spec=intervals.drawn(rows, [(seeds, False, 11), (means, True, 0)]),
        table=pandas.DataFrame([*means, *seeds]),
    )


def _words(factor: FactorSensitivity) -> str:
    names = [numbers.words(path) for path in factor.paths]
    return f"{names[0]} (with {numbers.names(names[1:])})" if names[1:] else names[0]


def _stem(factor: FactorSensitivity) -> str:
    return re.sub(r"\W+", "_", "_".join(factor.paths))
