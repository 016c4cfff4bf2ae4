"""Tables for a paper: LaTeX with booktabs, every text escaped."""

import re

from jtransformer.report.section import Table

_NO_LIGATURE = "\x00"
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    _NO_LIGATURE: "{}",
    '"': r"\textquotedbl{}",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "√": r"$\surd$",
    "∞": r"$\infty$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "ρ": r"$\rho$",
    "σ": r"$\sigma$",
    "χ": r"$\chi$",
    "²": r"$^2$",
    "→": r"$\rightarrow$",
    "—": "---",
    "–": "--",
    "“": "``",
    "”": "''",
    "…": r"\ldots{}",
}


def latex_text(text: str) -> str:
    """Escapes a text; line breaks and control characters become spaces."""
    text = re.sub(r"[\x00-\x1f\x7f\u2028\u2029]+", " ", text)
    # Two hyphens would be set as a dash.
    text = re.sub("-(?=-)", f"-{_NO_LIGATURE}", text)
    return "".join(_SPECIAL.get(character, character) for character in text)


def latex_table(table: Table) -> str:
    """Writes a table as a float; cells that stand out are red.

    It needs the packages booktabs, graphicx and xcolor, and T1 as the font encoding.
    """
    aligned = "".join("l" if c.heading in table.text else "r" for c in table.columns)
    head = [latex_text(column.heading) for column in table.columns]
    body = [
        [rf"\textcolor{{red}}{{{latex_text(c)}}}" if m else latex_text(c) for c, m in row]
        for row in table.rows()
    ]
    lines = [
        r"% \usepackage[T1]{fontenc} \usepackage{booktabs,graphicx,xcolor}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(table.caption)}}}",
        rf"\label{{tab:{table.name}}}",
        # Wide tables shrink to the line; narrow ones are not blown up.
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{aligned}}}",
        r"\toprule",
        _row(head),
        r"\midrule",
        *map(_row, body),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
