"""Was the comparison fair: what the runs' own records say about it."""

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from jtransformer.records import Fact, Pairing, RunRecord, SweepRecord, facts
from jtransformer.stats.changes import changes
from jtransformer.stats.selection import by_setting, choose, is_chosen, is_longest

_NAMED = 3
_LENGTHS = ("training.steps", "training.batch_size", "data.")
"""Settings that decide how many updates and tokens a run has."""


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


def unfair_reasons(record: SweepRecord) -> dict[str, list[str]]:
    """Says of every arm why its comparison with the baseline is not one of like with like.

    What counts: batches or initial values that differ though they should be equal, steps or tokens
    that differ though they are not what is asked and neither arm may stop early, and another number
    of tuned settings. They are asked about if they are all that the arm changes.

    Args:
        record: A sweep in any state, or one scale of it.

    Returns:
        Clauses by arm, none where nothing was found. Those of the baseline are what its own runs
        contradict one another in.
    """
    arms = {arm["name"]: arm for arm in record.manifest["arms"]}
    runs = {name: [run for run in record.runs if run.cell["arm"] == name] for name in arms}
    seen = {name: values_by_fact(own) for name, own in runs.items()}
    found = {}
    for name, arm in arms.items():
        other = baseline_of(record, arm)
        found[name] = _pairing(seen[name], seen[other], "its own" if name == other else other)
        if name != other:
            found[name] += _budgets((arm, runs[name]), (arms[other], runs[other]))
            found[name] += _settings(runs[name], runs[other], other)
    return found


def baseline_of(record: SweepRecord, arm: dict[str, Any]) -> str:
    """Returns the name of the arm that an arm of the manifest is compared with."""
    return arm.get("baseline") or record.manifest["baseline"]


def values_by_fact(runs: Sequence[RunRecord]) -> dict[Fact, set[Any]]:
    """Gathers what the finished runs show of everything that paired runs have in common."""
    found = defaultdict(set)
    for run in runs:
        if run.status is not None:
            for fact, value in facts(run.cell, run.status["pairing"]).items():
                found[fact].add(value)
    return dict(found)


def unequal_facts(own: dict[Fact, set[Any]], other: dict[Fact, set[Any]]) -> list[Fact]:
    """Lists what is not one value over the runs of two arms."""
    return [fact for fact, values in own.items() if len(values | other.get(fact, set())) > 1]


def _pairing(own: dict[Fact, set[Any]], other: dict[Fact, set[Any]], name: str) -> list[str]:
    unequal = unequal_facts(own, other)
    seeds = sorted({fact.seed for fact in unequal if fact.what == "batches"})
    starts = sorted(f"{f.what} (seed {f.seed})" for f in unequal if f.what != "batches")
    whose = "between its own runs" if name == "its own" else f"from those of {name}"
    found = []
    if seeds:
        found.append(f"the batches of seed {', '.join(map(str, seeds))} differ {whose}")
    if starts:
        more = f" and {len(starts) - _NAMED} more" if len(starts) > _NAMED else ""
        found.append(f"the initial values of {', '.join(starts[:_NAMED])}{more} differ {whose}")
    return found


def _budgets(
    own: tuple[dict[str, Any], Sequence[RunRecord]], other: tuple[dict[str, Any], Sequence[Any]]
) -> list[str]:
    mine, theirs = (chosen_budgets(runs) for _, runs in (own, other))
    if mine == theirs or not mine or not theirs:
        return []
    if may_stop_early(own[0]) or may_stop_early(other[0]):
        return []
    asked = [change.path for change in changes(own[0], other[0]) if not change.part]
    if asked and all(path.startswith(_LENGTHS) for path in asked):
        return []
    words = [
        " or ".join(f"{steps:,} steps and {tokens:,} tokens" for steps, tokens in sorted(budgets))
        for budgets in (mine, theirs)
    ]
    return [f"it was trained for {words[0]}, {other[0]['name']} for {words[1]}"]


def chosen_budgets(runs: Sequence[RunRecord]) -> set[tuple[int, int]]:
    """Returns the steps and tokens of an arm's finished runs at its choice."""
    choice = choose(runs)
    return {
        (run.status["result"]["steps"], run.status["result"]["tokens"])
        for run in runs
        if run.status is not None and run.state == "done" and is_chosen(run, choice)
    }


def may_stop_early(arm: dict[str, Any]) -> bool:
    """Says whether a run of an arm of the manifest may end before its last update."""
    training = arm.get("spec", {}).get("training", {})
    return training.get("early_stopping", {"kind": "none"})["kind"] != "none"


def _settings(own: Sequence[RunRecord], other: Sequence[RunRecord], name: str) -> list[str]:
    mine, theirs = len(by_setting(own)), len(by_setting(other))
    if mine == theirs:
        return []
    return [f"it was tuned over {mine} settings, {name} over {theirs}"]
