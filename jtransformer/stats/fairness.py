"""Was the comparison fair: what the runs' own records say about it."""

import dataclasses
from collections import defaultdict
from typing import Any

from jtransformer.records import Pairing, SweepRecord
from jtransformer.stats.selection import is_longest


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fairness:
    """What was checked over the finished runs, and what came out.

    `samplings` counts the ways in which batches are made, shorter rungs left out: they can be
    equal only where data, objective, batch size and steps are. `unequal_batches` lists the seeds
    whose runs did not see the same first and last batch although they should; `unequal_values`
    the "seed: parameter" whose initial values differ although path, shape and initialiser are
    equal. `shared_parameters` counts the parameters common to at least two arms.
    `budgets` are the (steps, tokens) of the runs that did not diverge, shorter rungs left out;
    `environments` are the values that differ between runs, by name.
    """

    runs: int
    samplings: int
    budgets: tuple[tuple[int, int], ...]
    unequal_batches: tuple[int, ...]
    unequal_values: tuple[str, ...]
    shared_parameters: int
    environments: dict[str, list[Any]]


def fairness(record: SweepRecord) -> Fairness:
    """Compares the pairing data and the environments of all finished runs."""
    pairing = Pairing()
    holders = defaultdict(set)
    budgets = set()
    contradictions = []
    finished = [(run, run.status) for run in record.runs if run.status is not None]
    for run, status in finished:
        contradictions += pairing.add(run.cell, status["pairing"])
        if run.state == "done" and is_longest(run):
            budgets.add((status["result"]["steps"], status["result"]["tokens"]))
        for path, entry in status["pairing"]["initial"].items():
            holders[path, tuple(entry["shape"]), entry["initialiser"]].add(run.cell["arm"])
    batches = {found.seed for found in contradictions if found.what == "batches"}
    values = {f"{found.seed}: {found.what}" for found in contradictions if found.what != "batches"}
    return Fairness(
        runs=len(finished),
        samplings=len({s["pairing"]["sampling"] for run, s in finished if is_longest(run)}),
        budgets=tuple(sorted(budgets)),
        unequal_batches=tuple(sorted(batches)),
        unequal_values=tuple(sorted(values)),
        shared_parameters=len({key[0] for key, arms in holders.items() if len(arms) > 1}),
        environments=_differing(record),
    )


def _differing(record: SweepRecord) -> dict[str, list[Any]]:
    values = defaultdict(list)
    for run in record.runs:
        for name, value in (run.environment or {}).items():
            # Which parameters decay follows from the arm, not from the machine.
            if name != "decayed_parameters" and value not in values[name]:
                values[name].append(value)
    return {name: seen for name, seen in values.items() if len(seen) > 1}
