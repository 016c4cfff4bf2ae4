"""The result as Markdown, for a README or a lab log."""

from jtransformer.report import equality, judging, sentences
from jtransformer.report.markup import markdown_table, markdown_text
from jtransformer.report.scales import scales_table
from jtransformer.report.section import Table
from jtransformer.report.summary import COLUMNS, Column, check_table, summary_table
from jtransformer.stats import Analysis


def results_markdown(*analyses: Analysis) -> str:
    """Writes title, question, answer, tables and how the figures were made, scale by scale."""
    first = analyses[0]
    parts = [f"# {markdown_text(first.title)}", _paragraphs(first.question)]
    if first.scales:
        parts.append(_table(scales_table(analyses)))
    for analysis in analyses:
        if analysis.scale is not None:
            parts.append(f"# {markdown_text(sentences.scale(analysis))}")
        parts += _answered(analysis)
    parts.append(f"Reproduce with:\n\n    {first.command}")
    return "\n\n".join(parts) + "\n"


def _answered(analysis: Analysis) -> list[str]:
    parts = [f"**{markdown_text(sentences.answer(analysis))}**"]
    parts += [f"- {markdown_text(text)}" for text in sentences.caveats(analysis)]
    parts.append(_table(summary_table(analysis, COLUMNS)))
    if away := sentences.compressor(analysis):
        parts.append(markdown_text(away))
    if analysis.fit:
        said = f"The family of the correction: {judging.family(analysis)}."
        table = _table(check_table(analysis))
        parts += ["## How the differences came about", markdown_text(said), table]
    parts += ["## What is equal", markdown_text(equality.rule(analysis))]
    parts.append("Mismatch to the baseline in everything that can be held equal:")
    parts.append(_table(equality.mismatch_table(analysis)))
    parts.append("## How the figures were made")
    parts.append("\n".join(f"- {markdown_text(note)}" for note in sentences.statistics(analysis)))
    return parts


def _table(columns: list[Column]) -> str:
    return markdown_table(Table("", "", columns, ("arm", "verdict")))


def _paragraphs(text: str) -> str:
    """Keeps the line breaks of the question, and no markup."""
    return "\n".join(map(markdown_text, text.strip().split("\n")))
