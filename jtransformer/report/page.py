"""The page: everything in one HTML file that needs no network."""

import importlib.resources
import json
import re
from typing import Any, NamedTuple

import jinja2
import markupsafe

from jtransformer.records import SweepRecord
from jtransformer.report import equality, numbers, sentences
from jtransformer.report.figures import Figure
from jtransformer.report.scales import scales_table
from jtransformer.report.summary import COLUMNS, Column, check_table, summary_table
from jtransformer.stats import Analysis, fairness, results_table


class Part(NamedTuple):
    """What the page shows of one scale, or of a sweep without scales.

    Attributes:
        record: Its records.
        analysis: Their analysis.
        figures: The figures in the page's theme.
    """

    record: SweepRecord
    analysis: Analysis
    figures: list[Figure]


def page(record: SweepRecord, analysis: Analysis, figures: list[Figure]) -> str:
    """Writes the page of a sweep without scales as HTML text.

    All text from configs and records is escaped by the template engine.

    Args:
        record: The sweep's records.
        analysis: Their analysis.
        figures: The figures in the page's theme.
    """
    return page_of_scales(record, [Part(record, analysis, figures)], None)


def page_of_scales(record: SweepRecord, parts: list[Part], overview: Figure | None) -> str:
    """Writes the page of a sweep, each scale on its own and all of them above.

    Args:
        record: The sweep's records.
        parts: Its scales, or itself alone.
        overview: The figure that holds the scales together, if there is one.
    """
    analyses = tuple(part.analysis for part in parts)
    analysis = analyses[0]
    template = importlib.resources.files("jtransformer.report") / "page.html.j2"
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    question, details = _split_question(analysis.question)
    return environment.from_string(template.read_text(encoding="utf-8")).render(
        analysis=analysis,
        question=question,
        details=details,
        finished=sum(one.runs.finished for one in analyses),
        planned=sum(one.runs.planned for one in analyses),
        scales=_rows(scales_table(analyses)) if analysis.scales else None,
        overview=[(overview, script_json(overview.spec))] if overview else [],
        parts=[_shown(part) for part in parts],
        bundle=_bundle() if any(part.figures for part in parts) else "",
        environment=_environment(record),
        data=analysis.data,
        runs=_runs(record),
    )


def _shown(part: Part) -> dict[str, Any]:
    analysis = part.analysis
    return {
        "analysis": analysis,
        "heading": None if analysis.scale is None else sentences.scale(analysis),
        "answer": sentences.answer(analysis),
        "caveats": sentences.caveats(analysis),
        "compressor": sentences.compressor(analysis),
        "statistics": sentences.statistics(analysis),
        "summary": _rows(summary_table(analysis, COLUMNS)),
        "checks": _rows(check_table(analysis)),
        "figures": [(figure, script_json(figure.spec)) for figure in part.figures],
        "components": _components(analysis),
        "audit": fairness(part.record),
        "tuning": _tuning(analysis),
        "equality": _equality(analysis),
    }


def script_json(value: Any) -> markupsafe.Markup:
    """Writes JSON that may stand inside a script element: no "<" can end the element."""
    return markupsafe.Markup(json.dumps(value, ensure_ascii=False).replace("<", "\\u003c"))


def script_text(code: str) -> markupsafe.Markup:
    """Writes JavaScript that may stand inside a script element."""
    return markupsafe.Markup(re.sub("</(script)", r"<\\/\1", code, flags=re.IGNORECASE))


def _bundle() -> markupsafe.Markup:
    import vl_convert

    return script_text(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _split_question(text: str) -> tuple[str, str]:
    question, _, details = text.strip().partition("\n\n")
    return " ".join(question.split()), details.strip()


def _rows(table: list[Column]) -> dict[str, Any]:
    return {
        "headings": [column.heading for column in table],
        "rows": list(zip(*(column.cells for column in table), strict=True)),
    }


def _components(analysis: Analysis) -> dict[str, Any]:
    names = list(dict.fromkeys(name for arm in analysis.arms for name in arm.components))
    rows = [
        [
            arm.name,
            *(numbers.count(arm.components.get(name, 0)) for name in names),
            numbers.count(arm.parameters),
            ", ".join(f"{k.rsplit('.', 1)[-1]} = {v}" for k, v in arm.matched.items()) or "—",
        ]
        for arm in analysis.arms
    ]
    plain = [name.replace("_", " ") for name in names]
    return {"headings": ["arm", *plain, "total", "solved for"], "rows": rows}


def _equality(analysis: Analysis) -> dict[str, Any]:
    """Gathers what is equal; `residuals` says which arms stand out in the table of arms."""
    quantity = equality.matched_quantity(analysis) or "parameters"
    return {
        "quantity": equality.WORDS[quantity],
        "rule": equality.rule(analysis),
        "caption": equality.caption(analysis),
        "inequality": equality.inequality(analysis),
        "residuals": [equality.is_unequal(analysis, arm.residual) for arm in analysis.arms],
        "table": _rows(equality.mismatch_table(analysis)) | {"marks": equality.marks(analysis)},
    }


def _tuning(analysis: Analysis) -> dict[str, Any]:
    headings = ["arm", "settings tried", "runs", "finished", "diverged", "failed"]
    rows = [
        [arm.name, arm.settings]
        + [arm.runs.planned, arm.runs.finished, arm.runs.diverged, arm.runs.failed]
        for arm in analysis.arms
    ]
    return {"headings": headings, "rows": rows}


def _environment(record: SweepRecord) -> dict[str, str]:
    shown = {}
    for run in record.runs:
        for name, value in (run.environment or {}).items():
            if name != "decayed_parameters":
                shown.setdefault(name, []).append(str(value))
    return {name: " / ".join(dict.fromkeys(values)) for name, values in shown.items()}


def _runs(record: SweepRecord) -> dict[str, Any]:
    """Tabulates the runs for reading; `results.csv` has the digits."""
    table = results_table(record).drop(
        columns=["parameters", "training_flops_per_token", "fingerprint", "tokens"]
    )
    rows = [
        [_cell(name, value) for name, value in zip(table.columns, row, strict=True)]
        for row in table.itertuples(index=False)
    ]
    return {"headings": [name.replace("_", " ") for name in table.columns], "rows": rows}


def _cell(name: str, value: Any) -> str:
    # Only a missing number differs from itself; pandas.NA answers neither way.
    if value is None or str(value) in ("nan", "<NA>"):
        return ""
    if name == "selected":
        return "yes" if value else ""
    if name.endswith("nll") or name.startswith("validation_bits"):
        return numbers.nll(value)
    return numbers.setting(value)
