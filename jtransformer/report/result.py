"""What came out, as sections: the verdict, its differences, its yardsticks, and all scales."""

from jtransformer.report import equality, judging, sentences, style
from jtransformer.report.forest import forest
from jtransformer.report.scales import scales_figure, scales_table
from jtransformer.report.section import Section, Table
from jtransformer.report.summary import COLUMNS, check_table, summary_table
from jtransformer.stats import Analysis


def verdict(analysis: Analysis) -> Section:
    """Writes the answer, what must be known before it is believed, and the table of arms."""
    columns = summary_table(analysis, COLUMNS)
    unequal = [equality.is_unequal(analysis, arm.residual) for arm in analysis.arms]
    arms = Table(
        name="arms",
        caption=_caption(analysis),
        columns=columns,
        text=("arm", "verdict"),
        marks=[[column.heading == "mismatch" and mark for column in columns] for mark in unequal],
    )
    said = [sentences.answer(analysis), *sentences.caveats(analysis)]
    return Section("verdict", "Verdict", said, [arms], [])


def differences(analysis: Analysis, theme: style.Theme) -> Section | None:
    """Shows every difference to the baseline with its interval, and how it came about."""
    if not any(arm.comparison for arm in analysis.arms):
        return None
    table = Table(
        name="differences",
        caption=f"Differences to {analysis.baseline} in {analysis.data['loss_unit']}; ± is half "
        f"of a 95 % interval, unadjusted; df are degrees of freedom. The family of the adjusted p "
        f"and of the simultaneous intervals: {judging.family(analysis)}.",
        columns=check_table(analysis),
    )
    figure = forest(analysis, theme)
    return Section("differences", "Differences to the baseline", [], [table], [figure])


def yardsticks(analysis: Analysis) -> Section:
    """Holds the best arm against what needs no training."""
    data = analysis.data
    figures = [f"unigram {data['unigram_nll']:.4f}"]
    if data["bigram_nll"] is not None:
        figures += [f"bigram {data['bigram_nll']:.4f}", f"xz -9 {data['xz_nll']:.4f}"]
    said = f"Yardsticks on the validation part: {', '.join(figures)} {data['loss_unit']}."
    best = sentences.compressor(analysis) or "No arm has a figure yet."
    return Section("yardsticks", "How far is this from simple predictors?", [best, said], [], [])


def at_every_scale(analyses: tuple[Analysis, ...], theme: style.Theme) -> Section | None:
    """Holds the answers of several scales together; None where there is one alone."""
    if len(analyses) < 2:
        return None
    table = Table(
        name="scales",
        caption=f"Difference to the baseline of the same scale in {analyses[0].data['loss_unit']}; "
        f"± is half of a 95 % interval ({analyses[0].rule.intervals}), a negative difference is a "
        f"lower loss. Words are by p values that are {judging.correction(analyses[0])}-adjusted "
        "over all scales together.",
        columns=scales_table(analyses),
    )
    figure = scales_figure(analyses, theme)
    return Section("scales", "At every scale", [], [table], [figure] if figure else [])


def _caption(analysis: Analysis) -> str:
    fit = analysis.fit
    of = f", {fit.degrees_of_freedom} degrees of freedom" if fit and fit.degrees_of_freedom else ""
    quantity = equality.WORDS[equality.matched_quantity(analysis) or "parameters"]
    return (
        f"Loss is in {analysis.data['loss_unit']}; ± is half of a 95 % interval (of differences: "
        f"{judging.interval(analysis)}{of}). A negative difference is a lower loss, which is "
        f"better. p values are {judging.correction(analysis)}-adjusted over "
        f"{judging.family(analysis)}. Mismatch is that of {quantity} to the baseline."
    )
