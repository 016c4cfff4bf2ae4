"""Depth profiles: what probes measured inside the models, layer by layer and arm by arm."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas

from jtransformer.records import RunRecord, SweepRecord
from jtransformer.stats.estimates import Analysis
from jtransformer.stats.selection import is_chosen

Probe = dict[str, Any]
"""What was measured of one model, as its file has it."""
QUANTITIES = (
    "gradient_norm",
    "update_ratio",
    "stream_rms",
    "outlier_ratio",
    "relative_entropy",
    "zero_fraction",
    "dead_fraction",
    "saturated_fraction",
    "spectral_norm_stream",
    "spectral_norm_branch",
)
"""What has a profile, in the order in which it is shown."""
_LAYERS = ["stack", "quantity", "part", "layer", "value"]
_HEADS = ["stack", "sublayer", "layer", "head", "relative_entropy", "ablation"]
_WHOSE = ["arm", "seed", "step"]


class AttentionMap(NamedTuple):
    """Where one head of one run reads.

    Attributes:
        arm: Its arm.
        seed: Its seed.
        step: Updates made.
        stack: "encoder" or "decoder".
        layer: Its layer, counted from 0.
        sublayer: "attention" or "cross_attention".
        head: Its number, counted from 0.
        weights: Queries by keys, each row with the sum 1; rows that see nothing are 0.
        queries_in_one: How many queries a row is the mean of.
        keys_in_one: How many keys a column is the sum over.
    """

    arm: str
    seed: int
    step: int
    stack: str
    layer: int
    sublayer: str
    head: int
    weights: np.ndarray
    queries_in_one: int
    keys_in_one: int

    @property
    def name(self) -> str:
        """What the head is called in figures."""
        which = "" if self.sublayer == "attention" else "cross "
        where = "encoder " if self.stack == "encoder" else ""
        return f"{where}layer {self.layer}, {which}head {self.head}"

    def cells(self, most: int) -> list[dict[str, Any]]:
        """Lists the first query, the first key and the weight of every cell of the map.

        Args:
            most: How many cells a side may have; where there are more places, neighbours are one
                cell, the mean over their queries of the sum over their keys.
        """
        queries, keys = (-(-size // most) for size in self.weights.shape)
        rows, columns = (
            np.arange(0, size, step)
            for size, step in zip(self.weights.shape, (queries, keys), strict=True)
        )
        summed = np.add.reduceat(self.weights, columns, axis=1)
        counts = np.add.reduceat(np.ones(len(summed)), rows)
        pooled = np.add.reduceat(summed, rows, axis=0) / counts[:, None]
        queries, keys = queries * self.queries_in_one, keys * self.keys_in_one
        return [
            {"query": row * queries, "key": column * keys, "weight": float(weight)}
            for (row, column), weight in np.ndenumerate(pooled)
        ]


class Profiles(NamedTuple):
    """What the probes of a sweep say, each arm at its chosen setting.

    Attributes:
        layers: A row per number of a layer: arm, seed, step, stack, quantity (of `QUANTITIES`),
            part of the layer, layer, value.
        heads: A row per head: arm, seed, step, stack, sublayer, layer, head, relative_entropy,
            ablation.
        logits: A row per run and step: arm, seed, step, sd, largest.
        maps: Attention of some heads, of one seed, each arm at its last probed step.
        steps: The steps that some run was probed at.
        rows: Rows of validation that were measured.
        absent: Why something has no numbers, by arm; the names are those of the records.
        caveat: What none of this shows.
    """

    layers: pandas.DataFrame
    heads: pandas.DataFrame
    logits: pandas.DataFrame
    maps: tuple[AttentionMap, ...]
    steps: tuple[int, ...]
    rows: tuple[int, ...]
    absent: dict[str, dict[str, str]]
    caveat: str


def profiles(
    record: SweepRecord, analysis: Analysis, read: Callable[[Path], Probe]
) -> Profiles | None:
    """Gathers the probes of every arm's runs at its chosen setting; None if there are none.

    Args:
        record: The sweep's records.
        analysis: Their analysis.
        read: Returns what is in the file of a probe.
    """
    choices = {arm.name: arm.choice for arm in analysis.arms}
    probed: list[tuple[RunRecord, list[Probe]]] = [
        (run, [read(path) for path in run.probes])
        for run in record.runs
        if run.probes and is_chosen(run, choices[run.cell["arm"]])
    ]
    if not probed:
        return None
    whose = [
        ((run.cell["arm"], run.cell["seed"], probe["step"]), probe)
        for run, found in probed
        for probe in found
    ]
    logits = [(*who, probe["logits"]["sd"], probe["logits"]["largest"]) for who, probe in whose]
    return Profiles(
        layers=_table(_LAYERS, [(*who, *row) for who, probe in whose for row in layer_rows(probe)]),
        heads=_table(_HEADS, [(*who, *row) for who, probe in whose for row in head_rows(probe)]),
        logits=_table(["sd", "largest"], logits),
        maps=tuple(_maps(probed, min(run.cell["seed"] for run, _ in probed))),
        steps=tuple(sorted({step for (_, _, step), _ in whose})),
        rows=tuple(sorted({probe["rows"] for _, probe in whose})),
        absent={arm: probe["reasons"] for (arm, _, _), probe in whose},
        caveat=whose[0][1]["caveat"],
    )


def mean_profiles(layers: pandas.DataFrame, seeds: int) -> pandas.DataFrame:
    """Averages profiles over seeds, where every seed has a number: survivors have no mean.

    Args:
        layers: As `Profiles.layers`.
        seeds: How many seeds the sweep has.

    Returns:
        The columns of `layers` without the seed.
    """
    keys = [name for name in layers.columns if name not in ("seed", "value")]
    grouped = layers.groupby(keys, sort=False)
    means = grouped.agg(value=("value", "mean"), present=("value", "count")).reset_index()
    return means.query("present == @seeds").drop(columns="present")


def layer_rows(probe: Probe) -> Iterator[tuple[str, str, str, int, float]]:
    """Yields stack, quantity, part, layer and value of all numbers that a layer has.

    Of the stream, layer l stands for what enters layer l, and L for what leaves the last one. What
    heads have one by one is here their mean.
    """
    for stack, found in probe["stacks"].items():
        for quantity, part, values in _profiles_of(found):
            for layer, value in enumerate(values):
                if value is not None:
                    yield stack, quantity, part, layer, float(value)


def head_rows(probe: Probe) -> Iterator[tuple[str, str, int, int, float, float]]:
    """Yields stack, sublayer, layer, head, relative entropy and loss gained by switching it off."""
    for stack, found in probe["stacks"].items():
        entropies, gains = found["relative_entropy"] or {}, found["ablation"] or {}
        for sublayer in dict.fromkeys([*entropies, *gains]):
            for layer, gained in enumerate(gains.get(sublayer) or entropies[sublayer] or []):
                for head in range(len(gained)):
                    at = layer, head
                    yield (
                        stack,
                        sublayer,
                        *at,
                        _at(entropies.get(sublayer), *at),
                        _at(gains.get(sublayer), *at),
                    )


def _profiles_of(found: dict[str, Any]) -> Iterator[tuple[str, str, list[float | None]]]:
    for quantity in ("gradient_norm", "update_ratio"):
        for part, values in (found[quantity] or {}).items():
            yield quantity, part, values
    yield "stream_rms", "stream", found["stream"]["rms"]
    yield "outlier_ratio", "stream", found["stream"]["outlier_ratio"]
    for sublayer, by_head in (found["relative_entropy"] or {}).items():
        yield "relative_entropy", sublayer, [_mean(heads) for heads in by_head or []]
    for quantity in ("zero_fraction", "dead_fraction", "saturated_fraction"):
        yield quantity, "ffn", found["ffn"][quantity] or []
    for what, parts in (found["spectral_norm"] or {}).items():
        for part, values in parts.items():
            yield f"spectral_norm_{what}", part, values["value"]


def _mean(values: list[float | None]) -> float | None:
    return None if None in values or not values else float(np.mean(np.array(values, float)))


def _at(values: list[list[float | None]] | None, layer: int, head: int) -> float:
    value = None if values is None else values[layer][head]
    return float("nan") if value is None else float(value)


def _table(columns: list[str], rows: list[Any]) -> pandas.DataFrame:
    return pandas.DataFrame(rows, columns=pandas.Index([*_WHOSE, *columns]))


def _maps(probed: list[tuple[RunRecord, list[Probe]]], seed: int) -> Iterator[AttentionMap]:
    for run, found in probed:
        if run.cell["seed"] == seed:
            for one in found[-1]["maps"]:
                weights = np.array(one["weights"], float)
                rest = {name: value for name, value in one.items() if name != "weights"}
                yield AttentionMap(
                    arm=run.cell["arm"], seed=seed, step=found[-1]["step"], weights=weights, **rest
                )
