"""Sections and tables as Markdown."""

import re

from jtransformer.report.contents import Contents
from jtransformer.report.section import Section, Table


def markdown_text(text: str) -> str:
    """Keeps names from configs from being read as markup; line breaks become spaces."""
    text = re.sub(r"[\x00-\x1f\x7f\u2028\u2029]+", " ", text)
    for character in "\\`*|<>":
        text = text.replace(character, f"\\{character}")
    return text


def markdown_table(table: Table) -> str:
    """Writes a table; cells that stand out are bold."""
    rules = ["---" if column.heading in table.text else "---:" for column in table.columns]
    body = [
        [f"**{markdown_text(c)}**" if m else markdown_text(c) for c, m in row]
        for row in table.rows()
    ]
    head = [markdown_text(column.heading) for column in table.columns]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rules, *body])


def markdown_section(section: Section) -> str:
    """Writes a section with its tables; of its figures the captions."""
    parts = [f"## {markdown_text(section.title)}", *map(markdown_text, section.paragraphs)]
    for table in section.tables:
        parts += [markdown_text(table.caption), markdown_table(table)]
    for figure in section.figures:
        said = markdown_text(f"{figure.title}. {figure.caption}")
        parts.append(f"![{markdown_text(figure.title)}](figures/{figure.name}.svg)\n\n{said}")
    return "\n\n".join(parts)


def markdown_of(shown: Contents, title: str) -> str:
    """Writes all sections, scale by scale."""
    parts = [f"# {markdown_text(title)}", *map(markdown_section, shown.across)]
    for part in shown.parts:
        if part.analysis.scale is not None:
            parts.append(f"# {markdown_text(part.analysis.scale)}")
        parts += map(markdown_section, (part.verdict, *part.sections))
    return "\n\n".join(parts) + "\n"
