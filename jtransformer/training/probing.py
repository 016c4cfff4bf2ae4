"""What a run measures of the inside of its model at declared steps, and any model when asked.

Every step, arm and seed is measured on the same rows, the first of the validation part, so that two
profiles differ by their models alone. The update whose size is measured is the one that these rows
would cause, from the optimizer's state at that step; it is thrown away, and nothing of a run is
moved.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from jtransformer import data, probes
from jtransformer.data import Batch
from jtransformer.spec import ModelSpec, RunSpec
from jtransformer.training.program import Program
from jtransformer.training.schedules import Hyperparameters
from jtransformer.training.state import TrainState

PART = "validation"
MOST_MAPS = 8
"""Heads whose attention is kept where none is named; the larger the model, the thinner they lie."""
MOST_PLACES = 64
"""Queries and keys of a map that is kept; there are neighbours in one where there are more."""


def probe_batch(corpus: data.Corpus, spec: RunSpec, batches: int = 1) -> Batch:
    """Returns what a model is measured on.

    Args:
        corpus: What the run reads.
        spec: The run.
        batches: How often as many rows as an update reads; fewer, where there are fewer.
    """
    rows = batches * spec.training.batch_size
    training = dataclasses.replace(spec.training, evaluation_batch_size=rows)
    changed = dataclasses.replace(spec, training=training)
    return next(iter(data.evaluation_batches(corpus, PART, changed)))


def spread_heads(model: ModelSpec) -> tuple[str, ...]:
    """Returns the names of some heads, evenly spread from the first to the last."""
    names = probes.head_names(model)
    places = np.linspace(0, len(names) - 1, min(len(names), MOST_MAPS)).round().astype(int)
    return tuple(names[place] for place in places)


def probe(
    program: Program,
    state: TrainState,
    batch: Batch,
    hyper: Hyperparameters,
    heads: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """Measures a model.

    Args:
        program: Its compiled functions.
        state: It, and where its optimizer stands.
        batch: From `probe_batch`.
        hyper: The numbers of its run.
        heads: Names of the heads whose attention is kept; None takes `spread_heads`.

    Returns:
        Plain data: what `jtransformer.probes.to_record` says, the step, the rows that were
        measured, and maps of at most `MOST_PLACES` a side.

    Raises:
        ValueError: If the model has no head of a name.
    """
    maps = spread_heads(program.model) if heads is None else heads
    measured = program.probe(state, batch, hyper, choice=probes.Choice(maps=maps))
    measured, step = jax.device_get((measured, state.step))
    activity = measured.activity
    kept = {name: pooled(weights) for name, weights in activity.maps.items()}
    thinned = activity._replace(maps={name: one.weights for name, one in kept.items()})
    found = probes.to_record(program.model, measured._replace(activity=thinned))
    sizes = [{"queries_in_one": one.queries, "keys_in_one": one.keys} for one in kept.values()]
    shown = [one | size for one, size in zip(found["maps"], sizes, strict=True)]
    about = {"step": int(step), "part": PART, "rows": len(batch.tokens)}
    return about | found | {"maps": shown}


class Pooled(NamedTuple):
    """A map of attention in which neighbours may be one.

    Attributes:
        weights: Queries by keys; the sum of a row is what it was.
        queries: How many queries a row is the mean of.
        keys: How many keys a column is the sum over.
    """

    weights: np.ndarray
    queries: int
    keys: int


def pooled(weights: np.ndarray) -> Pooled:
    """Makes neighbours one until no side is longer than `MOST_PLACES`.

    Args:
        weights: Queries by keys.
    """
    queries, keys = (-(-size // MOST_PLACES) for size in weights.shape)
    if max(queries, keys) == 1:
        return Pooled(weights, 1, 1)
    rows, columns = np.arange(0, len(weights), queries), np.arange(0, weights.shape[1], keys)
    summed = np.add.reduceat(weights, columns, axis=1)
    counts = np.add.reduceat(np.ones(len(weights), weights.dtype), rows)
    return Pooled(np.add.reduceat(summed, rows, axis=0) / counts[:, None], queries, keys)
