"""Whether the records of a sweep have all that statistics and pages read of them.

The program writes them whole. Whoever edits, merges or copies them by hand may not, and is then
told of the file and of what it lacks.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jtransformer.records.files import DamagedRecord
from jtransformer.records.layout import RunRecord, SweepRecord

_ARM = (
    "name",
    "factors",
    "matched",
    "parameters",
    "components",
    "residual",
    "training_flops_per_token",
)
_CELL = ("arm", "nuisance", "seed")
_DATA = ("source", "sha256", "unit", "loss_unit", "unigram_nll", "bigram_nll", "xz_nll")
_DATA_BY_UNIT = ("{}", "train_{}", "validation_{}", "test_{}")
_COUNTS = ("steps", "tokens")
_LOSSES = ("train_nll", "validation_nll", "test_nll")
_PAIRING = ("sampling", "first_batch", "last_batch", "initial")
_TIMES = ("wall_seconds", "tokens_per_second")
_ROW = ("step", "tokens", "train_nll", "validation_nll")
_KINDS: dict[str, Any] = {
    "title": str,
    "question": str,
    "command": str,
    "scientific": Mapping,
    "nuisance": Mapping,
    "seeds": list,
    "base": Mapping,
    "arms": list,
    "cells": list,
    "scales": Mapping,
    "search": Mapping,
}


def check_complete(record: SweepRecord) -> None:
    """Refuses records that lack what is read of them, or have something else in its place.

    Raises:
        DamagedRecord: If there is such a record; the message names the file and what is wrong.
    """
    if wrong := next(_of_manifest(record.manifest), None):
        raise DamagedRecord(
            f"sweep.json is damaged ({wrong}); restore it from a copy, or use another work "
            "directory."
        )
    for run in record.runs:
        for name, found in (("status", _of_status(run)), ("metrics", _of_rows(run.metrics))):
            if wrong := next(found, None):
                ending = "jsonl" if name == "metrics" else "json"
                raise DamagedRecord(
                    f"{run.cell['directory']}/{name}.{ending} is damaged ({wrong}); restore it, or "
                    "delete that run's directory to have it trained again."
                )


def _of_manifest(manifest: dict[str, Any]) -> Iterator[str]:
    for name, kind in _KINDS.items():
        if name in manifest and not isinstance(manifest[name], kind):
            yield f"its {name} is {manifest[name]!r}"
    yield from _of_data(manifest["data"])
    for name in ("seeds", "arms"):
        if not manifest[name]:
            yield f"it has no {name}"
    yield from _of_arms(manifest["arms"], bool(manifest.get("scales")))
    names = {arm["name"] for arm in manifest["arms"]}
    if not manifest.get("scales") and manifest["baseline"] not in names:
        yield f"its baseline {manifest['baseline']!r} is no arm"
    yield from _of_cells(manifest["cells"], names)


def _of_arms(arms: Sequence[Any], has_scales: bool) -> Iterator[str]:
    parts = (*_ARM, "scale", "baseline") if has_scales else _ARM
    for number, arm in enumerate(arms, 1):
        yield from _lacking(f"arm {number}", arm, parts)
        yield from _lacking(f"mismatches of arm {number}", arm.get("mismatches", {}), ())
        for name in ("parameters", "residual", "training_flops_per_token"):
            if not _is_number(arm[name]):
                yield f"{name} of arm {number} is {arm[name]!r}"


def _of_cells(cells: Sequence[Any], arms: set[str]) -> Iterator[str]:
    tuned: dict[str, set[str]] = {}
    for number, cell in enumerate(cells, 1):
        yield from _lacking(f"cell {number}", cell, _CELL)
        if not isinstance(cell["seed"], int):
            yield f"seed of cell {number} is {cell['seed']!r}"
        own = set(cell["nuisance"])
        if tuned.setdefault(cell["arm"], own) != own:
            yield f"cell {number} tunes other settings than other cells of {cell['arm']!r}"
        if cell["arm"] not in arms:
            yield f"cell {number} is of {cell['arm']!r}, which is no arm"


def _of_status(run: RunRecord) -> Iterator[str]:
    if run.status is None:
        return
    result = run.status["result"]
    yield from _lacking("its result", result, (*_COUNTS, *_LOSSES))
    # A test loss that is not finite leaves a run done, and is null.
    needed = ("train_nll", "validation_nll") if run.state == "done" else ()
    for name in (*_COUNTS, *_LOSSES):
        value = result[name]
        is_left_out = value is None and name not in (*_COUNTS, *needed)
        if not is_left_out and not _is_number(value):
            yield f"its {name} is {value!r}"
    yield from _of_pairing(run.status["pairing"])
    yield from _lacking("its timing", run.status["timing"], ())
    for name in _TIMES:
        value = run.status["timing"].get(name)
        if value is not None and not _is_number(value):
            yield f"its {name} is {value!r}"


def _of_pairing(pairing: Any) -> Iterator[str]:
    yield from _lacking("its pairing", pairing, _PAIRING)
    if not isinstance(pairing["initial"], Mapping):
        yield "its pairing has no initial values"
    for path, start in pairing["initial"].items():
        what = f"{path} of its pairing"
        yield from _lacking(what, start, ("shape", "initialiser", "hash"))
        if not isinstance(start["shape"], list):
            yield f"the shape of {what} is {start['shape']!r}"


def _of_rows(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for number, row in enumerate(rows, 1):
        yield from _lacking(f"row {number}", row, _ROW)
        for name in _ROW:
            is_left_out = row[name] is None and name.endswith("nll")
            if not is_left_out and not _is_number(row[name]):
                yield f"{name} of row {number} is {row[name]!r}"


def _lacking(what: str, value: Any, parts: Sequence[str]) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{what} is {value!r}"
    elif missing := [part for part in parts if part not in value]:
        yield f"{what} lacks {', '.join(missing)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _of_data(data: dict[str, Any]) -> Iterator[str]:
    yield from _lacking("its data", data, _DATA)
    unit = data["unit"]
    yield from _lacking("its data", data, [name.format(unit) for name in _DATA_BY_UNIT])
    for name in ("unigram_nll", "bigram_nll", "xz_nll"):
        is_left_out = data[name] is None and name != "unigram_nll"
        if not is_left_out and not _is_number(data[name]):
            yield f"its {name} is {data[name]!r}"
