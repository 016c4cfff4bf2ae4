"""Tests of tables as LaTeX and Markdown: whatever a name is, it stays text in one cell."""

import re

import pytest

from jtransformer.report.latex import latex_table, latex_text
from jtransformer.report.markup import markdown_table, markdown_text
from jtransformer.report.section import Table
from jtransformer.report.summary import Column

NAMES = (
    "<script>alert(1)</script>",
    "a \"quoted\" 'name'",
    "two\nlines\r\nand\tmore",
    r"\input{/etc/passwd} $x$ 5 % & #1 _ ^ ~",
    "[starts a bracket] * --flag | a\\",
    "−0.03 ± 0.01",
)
COLUMNS = [Column("arm", list(NAMES)), Column("50 % | of & all", ["1"] * len(NAMES))]
TABLE = Table("arms", "Loss in nats/byte; ± is half.", COLUMNS)
MARKED = TABLE._replace(marks=[[False, index == 1] for index in range(len(NAMES))])


def body(text):
    return text.partition("\\midrule\n")[2].partition("\\bottomrule")[0].splitlines()


def test_every_row_of_latex_has_its_cells():
    text = latex_table(TABLE)
    assert text.isascii() and "\\begin{tabular}{lr}" in text and "\\label{tab:arms}" in text
    lines = body(text)
    assert len(lines) == len(NAMES)
    for line in lines:
        assert line.endswith(r" & 1 \\") and len(re.findall(r"(?<!\\)&", line)) == 1
        assert not line.lstrip().startswith(("[", "*")), "would be read as an option of the row"


def test_no_command_of_a_name_reaches_latex():
    written = latex_text(NAMES[3])
    commands = set(re.findall(r"\\([A-Za-z]+)", written))
    assert commands == {"textbackslash", "textasciicircum", "textasciitilde"}
    assert not re.search(r"(?<!\\)[%&#_$]", written)
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", written):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0


@pytest.mark.parametrize(
    "text, written",
    [
        ("a_b", r"a\_b"),
        ("--json", r"-{}-json"),
        ("---", "-{}-{}-"),
        ("−1 ± 2", r"$-$1 $\pm$ 2"),
        ("“no” — 1–2…", "``no'' --- 1--2\\ldots{}"),
        ("\\{", r"\textbackslash{}\{"),
        ("a\n\nb", "a b"),
    ],
)
def test_latex_text(text, written):
    assert latex_text(text) == written


def test_every_row_of_markdown_has_its_cells():
    lines = markdown_table(TABLE).splitlines()
    assert len(lines) == len(NAMES) + 2 and lines[1] == "| --- | ---: |"
    for line in lines:
        assert len(re.findall(r"(?<!\\)\|", line)) == 3, line
    assert markdown_text("<script>") == r"\<script\>"


def test_live_marks_stand_out_in_both():
    for write, mark in ((latex_table, r"\textcolor{red}{1}"), (markdown_table, "**1**")):
        assert mark not in write(TABLE) and write(MARKED).count(mark) == 1
