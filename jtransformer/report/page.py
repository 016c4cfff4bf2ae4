"""The page: everything in one HTML file that needs no network."""

import importlib.resources
import json
import math
import re
import shlex
from typing import Any

import jinja2
import markupsafe

from jtransformer.records import SweepRecord
from jtransformer.report import equality, numbers, sentences
from jtransformer.report.contents import Contents, Part
from jtransformer.report.section import Section, Table
from jtransformer.report.style import Figure, arms_of
from jtransformer.report.summary import Column
from jtransformer.stats import results_table

_DIGITS = 7
"""Significant digits of what is drawn on the page; the data behind figures have all."""


def page(record: SweepRecord, shown: Contents, reload_seconds: float | None = None) -> str:
    """Writes the page of a sweep as HTML text, each scale on its own and all of them above.

    All text from configs and records is escaped by the template engine.

    Args:
        record: The sweep's records.
        shown: Its sections in the page's theme.
        reload_seconds: How often the page loads itself anew, None for never.
    """
    analyses = tuple(part.analysis for part in shown.parts)
    question, details = _split_question(analyses[0].question)
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            analysis=analyses[0],
            reload_seconds=None if reload_seconds is None else math.ceil(reload_seconds),
            question=question,
            details=details,
            finished=sum(one.runs.finished for one in analyses),
            planned=sum(one.runs.planned for one in analyses),
            across=[ready(section, "all") for section in shown.across],
            parts=[_part(*one) for one in enumerate(shown.parts, 1)],
            bundle=bundle() if any(section.figures for section in shown.all()) else "",
            environment=_environment(record),
            data=analyses[0].data,
            runs=_table(_runs(record, analyses[0].data["loss_unit"])),
            workdir=_workdir(analyses[0].command),
        )
    )


def environment() -> jinja2.Environment:
    """Returns the template engine, which escapes all text and knows this package's templates."""
    folder = importlib.resources.files("jtransformer.report")
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _part(number: int, part: Part) -> dict[str, Any]:
    analysis = part.analysis
    return {
        "analysis": analysis,
        "number": number,
        "heading": None if analysis.scale is None else sentences.scale(analysis),
        "answer": part.verdict.paragraphs[0],
        "caveats": part.verdict.paragraphs[1:],
        "arms": _table(part.verdict.tables[0]),
        "sections": [ready(section, str(number)) for section in part.sections],
        "statistics": sentences.statistics(analysis),
        "inequality": equality.inequality(analysis),
    }


def ready(section: Section, place: str) -> dict[str, Any]:
    """Readies a section for the template; `place` tells apart those of several scales, in ids."""
    return {
        "id": f"{section.name}-{place}",
        "name": section.name,
        "title": section.title,
        "paragraphs": section.paragraphs,
        "tables": [_table(table) for table in section.tables],
        "figures": [_figure(figure) for figure in section.figures],
    }


def _figure(figure: Figure) -> dict[str, Any]:
    # Vega says this of the picture to those who do not see it.
    spec = figure.spec | {"description": f"{figure.title}. {figure.caption}"}
    changes = [[choice.changes for choice in control.choices] for control in figure.controls]
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "wide": figure.wide,
        "arms": arms_of(figure.spec),
        "controls": figure.controls,
        "json": script_json(_rounded({"spec": spec, "changes": changes})),
    }


def _table(table: Table) -> dict[str, Any]:
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    return {
        "name": table.name,
        "caption": table.caption,
        "headings": [column.heading for column in table.columns],
        "rows": rows,
        "text": table.text,
        "marks": table.marks or [[False] * len(table.columns) for _ in rows],
    }


def script_json(value: Any) -> markupsafe.Markup:
    """Writes JSON that may stand inside a script element: no "<" can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return markupsafe.Markup(text.replace("<", "\\u003c"))


def script_text(code: str) -> markupsafe.Markup:
    """Writes JavaScript that may stand inside a script element."""
    return markupsafe.Markup(re.sub("</(script)", r"<\\/\1", code, flags=re.IGNORECASE))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return value


def bundle() -> markupsafe.Markup:
    """Returns Vega, Vega-Lite and vega-embed, to be put into a page with figures."""
    import vl_convert

    return script_text(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _workdir(command: str) -> str:
    """Returns the work directory that the sweep's command names, as it stands there."""
    words = shlex.split(command)
    if "--workdir" in words[:-1]:
        return shlex.quote(words[words.index("--workdir") + 1])
    given = [word for word in words if word.startswith("--workdir=")]
    return shlex.quote(given[0].removeprefix("--workdir=")) if given else "DIR"


def _split_question(text: str) -> tuple[str, str]:
    question, _, details = text.strip().partition("\n\n")
    return " ".join(question.split()), details.strip()


def _environment(record: SweepRecord) -> dict[str, str]:
    shown = {}
    for run in record.runs:
        for name, value in (run.environment or {}).items():
            if name != "decayed_parameters":
                shown.setdefault(name, []).append(str(value))
    return {name: " / ".join(dict.fromkeys(values)) for name, values in shown.items()}


def _runs(record: SweepRecord, unit: str) -> Table:
    """Tabulates the runs for reading; `results.csv` has the digits."""
    table = results_table(record).drop(
        columns=["parameters", "training_flops_per_token", "fingerprint", "tokens"]
    )
    columns = [
        Column(name.replace("_", " "), [_cell(name, value) for value in table[name]])
        for name in table.columns
    ]
    caption = f"One row per run; losses in {unit}. The test loss stands at chosen settings alone."
    return Table("runs", caption, columns, ("arm", "state"))


def _cell(name: str, value: Any) -> str:
    # Only a missing number differs from itself; pandas.NA answers neither way.
    if value is None or str(value) in ("nan", "<NA>"):
        return ""
    if name == "selected":
        return "yes" if value else ""
    if name.endswith("nll") or name.startswith("validation_bits"):
        return numbers.nll(value)
    return numbers.setting(value)
