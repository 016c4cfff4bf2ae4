"""Was the comparison fair: what the runs' own records say about it."""

import dataclasses
from collections import defaultdict
from typing import Any

from jtransformer.records import SweepRecord


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fairness:
    """What was checked over the finished runs, and what came out.

    `unequal_batches` lists the seeds whose runs did not see the same first and last batch;
    `unequal_values` the "seed: parameter" whose initial values differ although path, shape and
    initialiser are equal. `shared_parameters` counts the parameters common to at least two arms.
    `budgets` are the (steps, tokens) of the runs that did not diverge; `environments` are the
    values that differ between runs, by name.
    """

    runs: int
    budgets: tuple[tuple[int, int], ...]
    unequal_batches: tuple[int, ...]
    unequal_values: tuple[str, ...]
    shared_parameters: int
    environments: dict[str, list[Any]]


def fairness(record: SweepRecord) -> Fairness:
    """Compares the pairing data and the environments of all finished runs."""
    batches = defaultdict(set)
    hashes = defaultdict(set)
    holders = defaultdict(set)
    budgets = set()
    runs = 0
    for run in record.runs:
        if run.status is None:
            continue
        runs += 1
        seed, pairing = run.cell["seed"], run.status["pairing"]
        # A diverged run stops early, so its last batch is another one by right.
        last = pairing["last_batch"] if run.state == "done" else None
        steps = run.status["result"]["steps"]
        if run.state == "done":
            budgets.add((steps, run.status["result"]["tokens"]))
        batches[seed, "first"].add(pairing["first_batch"])
        if last is not None:
            batches[seed, steps].add(last)
        for path, entry in pairing["initial"].items():
            key = (seed, path, tuple(entry["shape"]), entry["initialiser"])
            hashes[key].add(entry["hash"])
            holders[key[1:]].add(run.cell["arm"])
    return Fairness(
        runs=runs,
        budgets=tuple(sorted(budgets)),
        unequal_batches=tuple(sorted({key[0] for key, seen in batches.items() if len(seen) > 1})),
        unequal_values=tuple(
            f"{key[0]}: {key[1]}" for key, seen in hashes.items() if len(seen) > 1
        ),
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
