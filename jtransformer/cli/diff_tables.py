"""What `jtransformer diff` shows: a row for each place, then what explains the difference."""

import math
from typing import Any

from rich.markup import escape
from rich.table import Table

from jtransformer.cli.progress import console
from jtransformer.diff import Difference, Round, Row, Trial

FIRST, BEYOND = "<- first", "differs"


def show(found: Difference) -> None:
    """Prints a comparison."""
    comparison = found.comparison
    title = f"A = {found.a}, B = {found.b}"
    console().print(_table(title, "place", comparison.rows))
    for name, rows in (
        ("gradient at, backward", comparison.gradients),
        ("gradient of, backward", comparison.parameters),
    ):
        if rows:
            console().print(_table(title, name, rows))
    for side, names in (("A", comparison.only_a), ("B", comparison.only_b)):
        if names:
            print(f"{len(names)} places of {side} alone are not compared, such as {names[0]}.")
    for line in sentences(found):
        print(line)


def _table(title: str, what: str, rows: tuple[Row, ...]) -> Table:
    table = Table(title=escape(title))
    for heading in (what, "largest |A - B|", "relative", "tolerance", ""):
        table.add_column(heading, justify="left" if heading in (what, "") else "right")
    marked = False
    for row in rows:
        mark = ""
        if row.beyond:
            mark, marked = BEYOND if marked else FIRST, True
        table.add_row(
            escape(row.name),
            _number(row.largest),
            _number(row.relative),
            f"{row.tolerance:.1e}",
            escape("; ".join(text for text in (mark, row.problem) if text)),
        )
    return table


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2g}"


def sentences(found: Difference) -> list[str]:
    """Says in words where two sides part, and what explains it."""
    first, backward = found.comparison.first, found.comparison.first_gradient
    if found.equal:
        places = len(found.comparison.rows)
        return [f"Equal: all {places} places agree within rounding."]
    lines = []
    if first is not None:
        lines.append(f"The first difference is at {first.name}{_size(first)}.")
    explained = [line for round in found.rounds for line in _explained(found, round)]
    lines += explained if first is not None else []
    if backward is not None:
        lines.append(f"The first gradient that differs is at {backward.name}{_size(backward)}.")
    return lines if first is not None else lines + explained


def _size(row: Row) -> str:
    if row.problem:
        return f" ({row.problem})"
    return f": {row.largest:.2g}, relative {row.relative:.2g}, tolerance {row.tolerance:.1e}"


def _explained(found: Difference, round: Round) -> list[str]:
    where = "" if found.side is None else f" in {found.side}"
    if not round.best:
        lines = [f"None of {round.tried} known differences explains {round.first.name}."]
        return lines + [f"  nearer: {trial.sentence}" for trial in round.nearer]
    lines = [f"Explained by {trial.kind}{where}: {trial.sentence}." for trial in round.best]
    if len(round.best) > 1:
        lines.append(f"  These {len(round.best)} have the same effect here; other ids may tell.")
    return lines + [f"  also possible at that place: {trial.words}" for trial in round.others[:3]]


def as_json(found: Difference) -> dict[str, Any]:
    """Returns a comparison as JSON has it; what is no number is null."""
    comparison = found.comparison
    first, backward = comparison.first, comparison.first_gradient
    return {
        "a": found.a,
        "b": found.b,
        "equal": found.equal,
        "stored": found.stored,
        "computed": found.computed,
        "first": None if first is None else _row(first),
        "first_gradient": None if backward is None else _row(backward),
        "places": [_row(row) for row in comparison.rows],
        "gradients": [_row(row) for row in comparison.gradients],
        "parameter_gradients": [_row(row) for row in comparison.parameters],
        "only_a": comparison.only_a,
        "only_b": comparison.only_b,
        "changed_side": found.side,
        "explanations": [
            {
                "place": round.first.name,
                "tried": round.tried,
                "best": [_trial(trial) for trial in round.best],
                "others": [_trial(trial) for trial in round.others],
                "nearer": [_trial(trial) for trial in round.nearer],
            }
            for round in found.rounds
        ],
    }


def _row(row: Row) -> dict[str, Any]:
    numbers = {
        "largest": row.largest,
        "relative": row.relative,
        "rms": row.rms,
        "tolerance": row.tolerance,
    }
    finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
    return {"place": row.name, **finite, "beyond": row.beyond, "problem": row.problem}


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "kind": trial.kind,
        "hypothesis": trial.words,
        "sentence": trial.sentence,
        "before": _row(trial.before),
        "after": _row(trial.after),
        "next_first": trial.next_first,
    }
