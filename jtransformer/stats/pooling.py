"""Several sweeps on one page: what stands against putting their runs together, and the runs as one.

Runs are put together only where nothing but the seeds differs: same data, same settings of every
arm, same baseline, same tuned settings. The runs of all directories are then one sweep with more
seeds, and it is analysed as one: arm + seed, so that what is peculiar to a directory (a machine, a
version) is taken out with its seeds as long as each seed's runs come from one directory. A run
that stands in several directories counts once.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jtransformer.records import RunRecord, SweepRecord, verdict_rule
from jtransformer.stats.analysis import analyse_scales
from jtransformer.stats.estimates import Analysis

Run = tuple[str, str]
"""An arm's name and a run's fingerprint."""

_ELSEWHERE = ("data.source.", "data.tokenizer.file.path", "seed")
"""Settings that a comparison of specs leaves to others: the data are known by their hash."""
_PARTS = ("stream", "attention", "ffn", "head")
_UNUSED = {f"model.precision.{part}": "float32" for part in _PARTS} | {
    "training.microbatches": 1,
    "model.first_norm": True,
    "model.head.tokens.transform_bias": True,
}
"""Values of settings of later versions that change no run; of others that is None and none."""
_MOST_SAID = 6


class Obstacle(NamedTuple):
    """Something in which two sweeps differ, so that their runs are not those of one.

    Attributes:
        what: A setting by its path, or another part of a sweep.
        first: How it is in the first sweep.
        other: How it is in the other.
    """

    what: str
    first: str
    other: str


class Repeat(NamedTuple):
    """A run with different results in two directories, although its fingerprint is the same.

    Attributes:
        arm: Its arm.
        seed: Its seed.
        kept: Its final validation loss where it counts, None if it diverged there.
        other: In the other directory.
    """

    arm: str
    seed: int
    kept: float | None
    other: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """Sweeps whose runs are analysed as one.

    Attributes:
        names: The directories.
        record: Their runs.
        analyses: One for each scale, or of them all.
        repeated: How many runs stand in several directories.
        contradictions: Those of them whose results differ; the first directory's counts.
    """

    names: tuple[str, ...]
    record: SweepRecord
    analyses: tuple[Analysis, ...]
    repeated: int
    contradictions: tuple[Repeat, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    """Several sweeps of one question.

    Attributes:
        analyses: Of each directory, one for each scale.
        obstacles: Why a directory is not pooled with the first one; empty where it is.
        pools: Those that are pooled with each other.
        environments: Of each version or device that differs between runs, what each directory has.
    """

    analyses: dict[str, tuple[Analysis, ...]]
    obstacles: dict[str, tuple[Obstacle, ...]]
    pools: tuple[Pool, ...]
    environments: dict[str, dict[str, list[Any]]]


def compare(sweeps: Mapping[str, SweepRecord]) -> Compared:
    """Analyses sweeps side by side, and those together that may be.

    Args:
        sweeps: Two or more in any state, by the name of their directory.

    Raises:
        ValueError: If their losses are not of one kind, so that no table could hold both.
    """
    first, *others = sweeps
    for other in others:
        check_comparable(first, sweeps[first], other, sweeps[other])
    groups: list[list[str]] = []
    for name, record in sweeps.items():
        fitting = (g for g in groups if not obstacles(sweeps[g[0]], record))
        group = next(fitting, None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return Compared(
        analyses={name: analyse_scales(record) for name, record in sweeps.items()},
        obstacles={name: tuple(obstacles(sweeps[first], sweeps[name])) for name in others},
        pools=tuple(pool({name: sweeps[name] for name in g}) for g in groups if len(g) > 1),
        environments=_environments(sweeps),
    )


def check_comparable(first: str, sweep: SweepRecord, other: str, second: SweepRecord) -> None:
    """Refuses sweeps whose losses are not of one kind.

    Raises:
        ValueError: If unit or metric differ.
    """
    facts = {
        "loss unit": [record.manifest["data"]["loss_unit"] for record in (sweep, second)],
        "metric": [record.manifest["metric"] for record in (sweep, second)],
    }
    for what, (ours, theirs) in facts.items():
        if ours != theirs:
            raise ValueError(
                f"the {what} of {first} is {ours} and that of {other} is {theirs}, so no table can "
                "hold both; compare directories whose losses are of one kind."
            )


def obstacles(first: SweepRecord, other: SweepRecord) -> list[Obstacle]:
    """Lists what stands against putting the runs of two sweeps together; nothing if they may be."""
    ours, theirs = first.manifest, other.manifest
    unit = ours["data"]["unit"]
    facts = [("the data (SHA-256)", *(m["data"]["sha256"][:12] for m in (ours, theirs)))]
    for part in ("train", "validation", "test"):
        key = f"{part}_{unit}"
        facts.append((f"{part} {unit}", *(m["data"].get(key) for m in (ours, theirs))))
    facts.append(("the baseline", ours["baseline"], theirs["baseline"]))
    facts.append(("the scales", *(m.get("scales", {}) for m in (ours, theirs))))
    names = [sorted(arm["name"] for arm in m["arms"]) for m in (ours, theirs)]
    facts.append(("the arms", *names))
    rules = [dataclasses.asdict(verdict_rule(m)) for m in (ours, theirs)]
    facts += [(f"the declared {name}", value, rules[1][name]) for name, value in rules[0].items()]
    found = [Obstacle(what, _said(a), _said(b)) for what, a, b in facts if a != b]
    if names[0] == names[1]:
        found += _differing_settings(ours, theirs)
        found += _differing_trials(first, other)
    if not found and (strangers := _strangers(first, other)):
        found.append(Obstacle("the fingerprint of a run", *strangers))
    return found


def _differing_settings(ours: dict[str, Any], theirs: dict[str, Any]) -> list[Obstacle]:
    """Compares the specs of every arm; a difference that all arms have is said once."""
    arms = {arm["name"]: arm for arm in theirs["arms"]}
    own = {path for m in (ours, theirs) for names in m["nuisance"] for path in names.split(", ")}
    holders = defaultdict(list)
    for arm in ours["arms"]:
        trees = [_tree(ours, arm), _tree(theirs, arms[arm["name"]])]
        flat = [dict(_leaves(tree)) for tree in trees]
        for path in dict.fromkeys([*flat[0], *flat[1]]):
            values = [leaves.get(path) for leaves in flat]
            # A setting that came with a later version, and is not used, changes no run.
            used = [value for value in values if value and value != _UNUSED.get(path)]
            is_unused = not used and not all(path in leaves for leaves in flat)
            is_alike = values[0] == values[1] or is_unused
            if not is_alike and path not in own and not path.startswith(_ELSEWHERE):
                holders[path, *map(_said, values)].append(arm["name"])
    return [
        Obstacle(path if len(named) == len(arms) else f"{path} of {', '.join(named)}", a, b)
        for (path, a, b), named in holders.items()
    ]


def _tree(manifest: dict[str, Any], arm: dict[str, Any]) -> dict[str, Any]:
    # Sweeps of earlier versions have what their arms are made from.
    return arm.get("spec") or manifest["base"] | {"factors": arm["factors"]}


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    kind = tree.get("kind")
    for name, value in tree.items():
        if not isinstance(value, dict):
            yield prefix + name, value
        # The settings of a kind that is not chosen are not read.
        elif kind is None or name == kind:
            yield from _leaves(value, f"{prefix}{name}.")


def _differing_trials(first: SweepRecord, other: SweepRecord) -> list[Obstacle]:
    """Compares the tuned settings that were tried: a best of more is better by chance alone."""
    tried = [_tried(record) for record in (first, other)]
    for arm, settings in tried[0].items():
        if settings != (theirs := tried[1][arm]):
            alone = [_said(sorted(one)) for one in (settings - theirs, theirs - settings)]
            return [Obstacle(f"tuned settings of {arm} that are tried in one alone", *alone)]
    return []


def _tried(record: SweepRecord) -> dict[str, set[str]]:
    found = {arm["name"]: set() for arm in record.manifest["arms"]}
    for run in record.runs:
        parts = dict(sorted(run.cell["nuisance"].items()))
        if "rung" in run.cell:
            parts["steps"] = run.cell["rung"]["steps"]
        found[run.cell["arm"]].add(", ".join(f"{k} = {v}" for k, v in parts.items()))
    return found


def _strangers(first: SweepRecord, other: SweepRecord) -> tuple[str, str] | None:
    """Finds two runs that should be one by their settings and are not by their fingerprints."""
    known = {_place(run): run.cell["fingerprint"] for run in first.runs}
    for run in other.runs:
        ours, theirs = known.get(_place(run)), run.cell["fingerprint"]
        if ours is not None and ours != theirs:
            return ours[:12], theirs[:12]
    return None


def _place(run: RunRecord) -> tuple[Any, ...]:
    cell = run.cell
    tuned = repr(sorted(cell["nuisance"].items()))
    return cell["arm"], cell["seed"], tuned, str(cell.get("rung"))


def pool(sweeps: Mapping[str, SweepRecord]) -> Pool:
    """Puts the runs of sweeps together that `obstacles` has nothing against.

    Of a run that stands in several directories, the first finished one counts.
    """
    kept: dict[Run, RunRecord] = {}
    repeated: set[Run] = set()
    contradictions = []
    for record in sweeps.values():
        for run in record.runs:
            key = (run.cell["arm"], run.cell["fingerprint"])
            before = kept.setdefault(key, run)
            if before is run:
                continue
            repeated.add(key)
            if before.status is None:
                kept[key] = run
            elif run.status is not None and _outcome(before) != _outcome(run):
                losses = (one["result"]["validation_nll"] for one in (before.status, run.status))
                contradictions.append(Repeat(run.cell["arm"], run.cell["seed"], *losses))
    manifests = [record.manifest for record in sweeps.values()]
    seeds = list(dict.fromkeys(seed for manifest in manifests for seed in manifest["seeds"]))
    cells = [run.cell for run in kept.values()]
    merged = SweepRecord(manifests[0] | {"seeds": seeds, "cells": cells}, tuple(kept.values()))
    return Pool(
        names=tuple(sweeps),
        record=merged,
        analyses=analyse_scales(merged),
        repeated=len(repeated),
        contradictions=tuple(contradictions),
    )


def _outcome(run: RunRecord) -> Any:
    return None if run.status is None else (run.status["state"], run.status["result"])


def _environments(sweeps: Mapping[str, SweepRecord]) -> dict[str, dict[str, list[Any]]]:
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: {name: [] for name in sweeps})
    for sweep, record in sweeps.items():
        for run in record.runs:
            for name, value in (run.environment or {}).items():
                # Which parameters decay follows from the arm, not from the machine.
                if name != "decayed_parameters" and value not in found[name][sweep]:
                    found[name][sweep].append(value)
    return {name: seen for name, seen in found.items() if not _is_uniform(list(seen.values()))}


def _is_uniform(values: Sequence[list[Any]]) -> bool:
    """Whether all directories that have run have one and the same value."""
    distinct = [value for one in values for value in one]
    return all(value == distinct[0] for value in distinct)


def _said(value: Any) -> str:
    if isinstance(value, list):
        more = "" if len(value) <= _MOST_SAID else f"; {len(value) - _MOST_SAID} more"
        return "; ".join(map(str, value[:_MOST_SAID])) + more or "none"
    return str(value)
