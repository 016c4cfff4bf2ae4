"""Choosing each arm's nuisance setting on validation, and saying where the choice is doubtful."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from jtransformer.records import RunRecord
from jtransformer.stats.estimates import Choice, Count, Edge, RungCount


def count(runs: Sequence[RunRecord]) -> Count:
    """Counts runs by how they stand."""
    states = [run.state for run in runs]
    return Count(
        planned=len(states),
        finished=states.count("done") + states.count("diverged"),
        diverged=states.count("diverged"),
        failed=states.count("failed"),
    )


def is_longest(run: RunRecord) -> bool:
    """Says whether a run has all the steps: one of a shorter rung of a search has not."""
    rung = run.cell.get("rung")
    return rung is None or rung["number"] == rung["of"]


def rungs(runs: Sequence[RunRecord]) -> tuple[RungCount, ...]:
    """Lists the rungs of one arm's runs, the shortest first; none of a search without rungs."""
    found: dict[int, list[RunRecord]] = {}
    for run in runs:
        if "rung" in run.cell:
            found.setdefault(run.cell["rung"]["number"], []).append(run)
    return tuple(
        RungCount(**own[0].cell["rung"], settings=len(by_setting(own)))
        for _, own in sorted(found.items())
    )


def by_setting(runs: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """Groups an arm's runs by nuisance setting, in the order of the records."""
    groups: dict[tuple, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(_key(run.cell["nuisance"]), []).append(run)
    return list(groups.values())


def choose(runs: Sequence[RunRecord], among: Literal["grid", "draws"] = "grid") -> Choice | None:
    """Chooses the nuisance setting of one arm.

    The lowest mean final validation loss over seeds wins. A setting with a diverged run counts as
    infinitely bad unless every setting has one; then the fewest diverged runs win, and among equal
    counts the lowest mean of the others. While the arm is unfinished, settings with the most
    finished runs are compared, and the choice is provisional. Of a search by halving only the
    last rung has a choice; the others have chosen what stands on it.

    Args:
        runs: All runs of one arm.
        among: What its settings are, for the words about an edge.

    Returns:
        The choice, or None while no run is finished.
    """
    longest = [run for run in runs if is_longest(run)]
    settings = [group for group in by_setting(longest) if count(group).finished]
    if not settings:
        return None
    most = max(count(group).finished for group in settings)
    candidates = [group for group in settings if count(group).finished == most]
    chosen = min(candidates, key=lambda group: (count(group).diverged, _mean_or_inf(group)))
    return Choice(
        nuisance=dict(chosen[0].cell["nuisance"]),
        edges=_edges(chosen[0].cell["nuisance"], runs, among),
        runs=count(chosen),
        validation=final(chosen, "validation_nll"),
        test=final(chosen, "test_nll"),
        train=final(chosen, "train_nll"),
    )


def final(runs: Sequence[RunRecord], key: str) -> dict[int, float]:
    """Returns a figure of the finished, undiverged runs by seed."""
    return {
        run.cell["seed"]: run.status["result"][key]
        for run in runs
        if run.state == "done" and run.status is not None and run.status["result"][key] is not None
    }


def is_chosen(run: RunRecord, choice: Choice | None) -> bool:
    """Says whether a run of the arm is one that it is judged by, of its chosen setting."""
    chosen = choice is not None and _key(run.cell["nuisance"]) == _key(choice.nuisance)
    return chosen and is_longest(run)


def is_number(value: Any) -> bool:
    """Says whether a tried value has a place on an axis (True and False have none)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _key(nuisance: dict[str, Any]) -> tuple:
    return tuple(sorted((path, repr(value)) for path, value in nuisance.items()))


def _mean_or_inf(runs: Sequence[RunRecord]) -> float:
    values = list(final(runs, "validation_nll").values())
    return float(np.mean(values)) if values else math.inf


def _edges(
    nuisance: dict[str, Any], runs: Sequence[RunRecord], among: Literal["grid", "draws"]
) -> tuple[Edge, ...]:
    edges = []
    for factor, value in nuisance.items():
        tried = sorted(
            {r.cell["nuisance"][factor] for r in runs if is_number(r.cell["nuisance"][factor])}
        )
        if len(tried) < 2 or not is_number(value):
            continue
        if value in (tried[0], tried[-1]):
            side = "lowest" if value == tried[0] else "highest"
            edges.append(Edge(factor=factor, side=side, value=value, among=among))
    return tuple(edges)
