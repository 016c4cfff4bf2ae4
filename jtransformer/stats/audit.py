"""Everything that could make a comparison unfair, arm by arm, from the records alone."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jtransformer.records import Fact, RunRecord, SweepRecord, facts
from jtransformer.stats.changes import Change, changes
from jtransformer.stats.estimates import Analysis, ArmAnalysis
from jtransformer.stats.fairness import (
    Fairness,
    chosen_budgets,
    fairness,
    unequal_facts,
    values_by_fact,
)
from jtransformer.stats.selection import is_chosen

MACHINE = ("machine", "platform", "device_kind", "device_count", "process_count", "mode")
"""What must agree before times can be compared."""
_ADDED = ("label_smoothing", "z_loss")


class Check(NamedTuple):
    """How many things were compared with the baseline's, and how many of them differ."""

    compared: int
    unequal: int


class Timing(NamedTuple):
    """Medians over the runs of an arm at its choice."""

    wall_seconds: float
    tokens_per_second: float


class EnvironmentValue(NamedTuple):
    """A value of the environment that differs between runs.

    Attributes:
        name: What it is.
        value: One of its values.
        runs: How many runs of each arm have it.
        of: How many runs of each arm have any.
    """

    name: str
    value: str
    runs: dict[str, int]
    of: dict[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmAudit:
    """What one arm was, took and had in common with the baseline.

    `quantities` are absolute, None where the manifest has none. `budgets` are the steps and tokens
    of its runs at the choice. `batches` counts runs, `values` initial values of parameters, each
    compared with the baseline's; the baseline with itself. `added` is what was minimised beside
    the plain loss. `stopped` are the steps after which runs ended early. `timing` is None where
    its runs and the baseline's were not all on one kind of machine. `start` is what its runs took
    over from other parameters; None where they start anew.
    """

    name: str
    changes: tuple[Change, ...]
    quantities: dict[str, float | None]
    budgets: tuple[tuple[int, int], ...]
    batches: Check
    values: Check
    added: dict[str, float]
    stopped: tuple[int, ...]
    timing: Timing | None
    start: dict[str, Any] | None = None

    @property
    def joint(self) -> bool:
        """Whether more than one setting was changed, what comes with another left out."""
        return sum(not change.part for change in self.changes) > 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit:
    """The audit of a sweep, or of one scale of it.

    `environment` has what differs between runs. `apart` names, by arm, what no run of it has in
    common with any run of the baseline.
    """

    fairness: Fairness
    arms: tuple[ArmAudit, ...]
    environment: tuple[EnvironmentValue, ...]
    apart: dict[str, tuple[str, ...]]


def audit(record: SweepRecord, analysis: Analysis) -> Audit:
    """Gathers what a reader must know before a difference is believed; no run is needed for it.

    Args:
        record: A sweep in any state, or one scale of it.
        analysis: Its analysis.
    """
    summary = fairness(record)
    environment = tuple(_environment(record, list(summary.environments)))
    runs = {
        arm.name: [run for run in record.runs if run.cell["arm"] == arm.name]
        for arm in analysis.arms
    }
    manifest = {arm["name"]: arm for arm in record.manifest["arms"]}
    base = analysis.arm(analysis.baseline)
    reference = _Side(manifest[base.name], base, runs[base.name])
    return Audit(
        fairness=summary,
        arms=tuple(
            _arm(_Side(manifest[arm.name], arm, runs[arm.name]), reference, record.manifest["base"])
            for arm in analysis.arms
        ),
        environment=environment,
        apart=_apart(environment, analysis.baseline),
    )


class _Side(NamedTuple):
    record: dict[str, Any]
    analysis: ArmAnalysis
    runs: list[RunRecord]

    def chosen(self) -> list[RunRecord]:
        return [r for r in self.runs if r.state == "done" and is_chosen(r, self.analysis.choice)]


def _arm(side: _Side, reference: _Side, base: dict[str, Any]) -> ArmAudit:
    own, other = values_by_fact(side.runs), values_by_fact(reference.runs)
    results = [run.status["result"] for run in side.runs if run.status is not None]
    ends = [result.get("stopped_early_at") for result in results]
    return ArmAudit(
        name=side.analysis.name,
        changes=tuple(changes(side.record, reference.record)),
        quantities=_quantities(side),
        budgets=tuple(sorted(chosen_budgets(side.runs))),
        batches=_batches(side, other),
        values=_initial(own, other),
        added=_added(side, base),
        stopped=tuple(sorted(end for end in ends if end is not None)),
        timing=_timing(side, reference),
        start=side.record.get("start"),
    )


def _quantities(side: _Side) -> dict[str, float | None]:
    arm = side.analysis
    known = {
        "parameters": arm.parameters,
        "non_embedding_parameters": arm.non_embedding_parameters,
        "training_flops": arm.training_flops_per_token,
        "inference_flops": None,
        "kv_bytes": None,
    }
    # Sweeps of earlier versions lack them.
    return known | side.record.get("quantities", {})


def _initial(own: dict[Fact, set[Any]], other: dict[Fact, set[Any]]) -> Check:
    shared = {fact: own[fact] for fact in own if fact.what != "batches" and fact in other}
    return Check(len(shared), len(unequal_facts(shared, other)))


def _batches(side: _Side, other: dict[Fact, set[Any]]) -> Check:
    """Compares the batches of each run with the one value that the baseline's runs have."""
    alike = [
        other[fact] == {value}
        for run in side.runs
        if run.status is not None
        for fact, value in facts(run.cell, run.status["pairing"]).items()
        if fact.what == "batches" and fact in other
    ]
    return Check(len(alike), alike.count(False))


def _added(side: _Side, base: dict[str, Any]) -> dict[str, float]:
    """Returns what the chosen runs minimise beside the plain loss; what is 0 is left out."""
    declared = {**base.get("loss", {}), **side.record.get("spec", {}).get("loss", {})}
    tuned = side.analysis.choice.nuisance if side.analysis.choice else {}
    found = {
        name: tuned.get(
            f"loss.{name}", side.record["factors"].get(f"loss.{name}", declared.get(name))
        )
        for name in _ADDED
    }
    return {name: value for name, value in found.items() if value}


def _timing(side: _Side, reference: _Side) -> Timing | None:
    own, other = side.chosen(), reference.chosen()
    machines = {_machine(run) for run in [*own, *other]}
    if not own or not other or len(machines) > 1 or None in machines:
        return None
    times = [run.status["timing"] for run in own if run.status is not None]
    keys = ("wall_seconds", "tokens_per_second")
    if any(time.get(key) is None for time in times for key in keys):
        return None
    return Timing(*(float(np.median([time[key] for time in times])) for key in keys))


def _machine(run: RunRecord) -> tuple[Any, ...] | None:
    found = run.environment
    return None if found is None else tuple(str(found.get(name)) for name in MACHINE)


def _environment(record: SweepRecord, names: Sequence[str]) -> list[EnvironmentValue]:
    arms = [arm["name"] for arm in record.manifest["arms"]]
    known = [(run.cell["arm"], run.environment) for run in record.runs if run.environment]
    of = {arm: sum(owner == arm for owner, _ in known) for arm in arms}
    found = []
    for name in names:
        holders: dict[str, dict[str, int]] = {}
        for arm, environment in known:
            if name in environment:
                counts = holders.setdefault(str(environment[name]), {})
                counts[arm] = counts.get(arm, 0) + 1
        found += [EnvironmentValue(name, value, runs, of) for value, runs in holders.items()]
    return found


def _apart(environment: Sequence[EnvironmentValue], baseline: str) -> dict[str, tuple[str, ...]]:
    values: dict[tuple[str, str], set[str]] = {}
    for one in environment:
        for arm in one.runs:
            values.setdefault((arm, one.name), set()).add(one.value)
    found: dict[str, tuple[str, ...]] = {}
    for (arm, name), own in values.items():
        other = values.get((baseline, name), set())
        if arm != baseline and other and not own & other:
            found[arm] = (*found.get(arm, ()), name)
    return found
