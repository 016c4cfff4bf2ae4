"""The numbers of the sections with all their digits, read from a work directory as it is."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas

from jtransformer.records import load_sweep
from jtransformer.report import style
from jtransformer.report.contents import Contents, contents, find_all
from jtransformer.report.markup import markdown_section
from jtransformer.report.section import Section
from jtransformer.report.sections import Findings


class UnknownSection(ValueError):
    """No section of a sweep has the name that was asked for; the message lists those that are."""


def numbers_json(workdir: Path, name: str | None) -> str:
    """Writes what was found as JSON: of one section, or the analysis as a whole.

    Findings are as they are computed; beside them stand the rows behind figures and the texts of
    tables. What is no finite number is null.

    Args:
        workdir: A work directory; nothing is written there.
        name: The section's; None for the whole, which lists the names of all sections.

    Raises:
        FileNotFoundError: If the directory holds no sweep.
        UnknownSection: If no section has that name.
        ValueError: If a record is damaged.
    """
    found = find_all(load_sweep(workdir))
    shown = contents(found, style.PAPER)
    if name is None:
        analyses = [plain(one.analysis) for one in found]
        values = {"sections": _names(shown), "scales": analyses}
    else:
        _check_name(shown, name)
        values = section_values(found, shown, name)
    return json.dumps(values, ensure_ascii=False, allow_nan=False)


def section_text(workdir: Path, name: str) -> str:
    """Writes one section as Markdown, at every scale.

    Args:
        workdir: A work directory; nothing is written there.
        name: The section's.

    Raises:
        FileNotFoundError: If the directory holds no sweep.
        UnknownSection: If no section has that name.
        ValueError: If a record is damaged.
    """
    shown = contents(find_all(load_sweep(workdir)), style.PAPER)
    _check_name(shown, name)
    return "\n\n".join(markdown_section(one) for one in shown.all() if one.name == name)


def plain(value: Any) -> Any:
    """Turns a value into dicts, lists, texts, numbers, booleans and None."""
    if value is None or value is pandas.NA or isinstance(value, bool | str | int):
        return None if value is pandas.NA else value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, pandas.DataFrame):
        return plain(value.to_dict(orient="records"))
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, tuple) and type(value) is not tuple:
        named: Any = value
        return {name: plain(part) for name, part in named._asdict().items()}
    if isinstance(value, Mapping):
        return {_key(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part) for part in value]
    # What is left are numbers and arrays of NumPy.
    return plain(value.tolist())


def _key(key: Any) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _names(shown: Contents) -> list[str]:
    return list(dict.fromkeys(section.name for section in shown.all()))


def _check_name(shown: Contents, name: str) -> None:
    if name not in _names(shown):
        raise UnknownSection(f"no section is named {name!r}; use {', '.join(_names(shown))}.")


def section_values(found: list[Findings], shown: Contents, name: str) -> dict[str, Any]:
    """Gathers what stands behind one section, at every scale and across them."""
    scales = [
        {"scale": one.analysis.scale, "found": _finding(one, name)} | _written(section)
        for one, part in zip(found, shown.parts, strict=True)
        for section in (part.verdict, *part.sections)
        if section.name == name
    ]
    across = [_written(section) for section in shown.across if section.name == name]
    return {"section": name, "across": across, "scales": scales}


def _finding(found: Findings, name: str) -> Any:
    if name == "verdict":
        return plain(found.analysis)
    if name == "differences":
        return plain({arm.name: arm.comparison for arm in found.analysis.arms if arm.comparison})
    return plain(found._asdict().get(name))


def _written(section: Section) -> dict[str, Any]:
    return {
        "title": section.title,
        "paragraphs": section.paragraphs,
        "tables": {
            table.name: {column.heading: column.cells for column in table.columns}
            for table in section.tables
        },
        "figures": {figure.name: plain(figure.table) for figure in section.figures},
    }
