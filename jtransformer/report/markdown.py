"""The result as Markdown, for a README or a lab log."""

from jtransformer.report import equality, sentences
from jtransformer.report.scales import scales_table
from jtransformer.report.summary import COLUMNS, Column, check_table, summary_table
from jtransformer.stats import Analysis


def results_markdown(*analyses: Analysis) -> str:
    """Writes title, question, answer, tables and how the figures were made, scale by scale."""
    first = analyses[0]
    parts = [f"# {_escape(first.title)}", _escape(first.question.strip())]
    if first.scales:
        parts.append(_table(scales_table(analyses)))
    for analysis in analyses:
        if analysis.scale is not None:
            parts.append(f"# {_escape(sentences.scale(analysis))}")
        parts += _answered(analysis)
    parts.append(f"Reproduce with:\n\n    {first.command}")
    return "\n\n".join(parts) + "\n"


def _answered(analysis: Analysis) -> list[str]:
    parts = [f"**{_escape(sentences.answer(analysis))}**"]
    parts += [f"- {_escape(text)}" for text in sentences.caveats(analysis)]
    parts.append(_table(summary_table(analysis, COLUMNS)))
    if away := sentences.compressor(analysis):
        parts.append(_escape(away))
    if analysis.fit:
        parts += ["## How the differences came about", _table(check_table(analysis))]
    parts += ["## What is equal", _escape(equality.rule(analysis))]
    parts.append("Mismatch to the baseline in everything that can be held equal:")
    parts.append(_table(equality.mismatch_table(analysis)))
    parts.append("## How the figures were made")
    parts.append("\n".join(f"- {_escape(note)}" for note in sentences.statistics(analysis)))
    return parts


def _table(table: list[Column]) -> str:
    rules = ["---" if column.heading in ("arm", "verdict") else "---:" for column in table]
    rows = zip(*([_escape(cell) for cell in column.cells] for column in table), strict=True)
    lines = [[_escape(column.heading) for column in table], rules, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escape(text: str) -> str:
    """Keeps names from configs from being read as markup."""
    for character in "\\`*|<>":
        text = text.replace(character, f"\\{character}")
    return text
