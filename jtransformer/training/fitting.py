"""What a layout must divide: a device that would have nothing of its own is refused."""

import jax

from jtransformer.spec import Layout, RunSpec, SpanCorruption, SpecError
from jtransformer.training.partition import divisions, partition_optimizer, sizes_over
from jtransformer.training.state import TrainState

DIVIDED = {
    "fsdp": "the width of the model",
    "tensor": "heads, hidden units and the vocabulary",
}
"""What of its parameters each axis divides."""
MOST_NAMED = 6
"""How many sizes that an axis could have a sentence names: those nearest to what was asked for."""


def check_layout(spec: RunSpec, state: TrainState, layout: Layout) -> None:
    """Refuses a layout of which an axis would do nothing for a run.

    Args:
        spec: The run.
        state: Its state, or the shapes of it.
        layout: By how much each part is divided.

    Raises:
        SpecError: For the first such axis.
    """
    names = " * ".join(axis for axis in ("data", "fsdp") if getattr(layout, axis) > 1)
    check_rows(spec, layout.row_parts, names)
    _check_lengths(spec, layout)
    for axis, what in DIVIDED.items():
        size = getattr(layout, axis)
        sizes = sizes_over(state.parameters, axis)
        if size > 1 and all(whole % size for whole in sizes):
            raise SpecError(
                f"--mesh {axis}",
                f"= {size} divides nothing: it is for {what}, which this model has in "
                f"{', '.join(map(str, sizes))}; use one of {_nearest_divisors(sizes, size)}.",
            )
    if layout.shard_optimizer:
        _check_optimizer(state, layout)


def check_rows(spec: RunSpec, parts: int, names: str) -> None:
    """Refuses to divide the rows of an update among more devices than there are rows.

    Args:
        spec: The run.
        parts: Devices that have rows of their own.
        names: What makes them so many, for the sentence.

    Raises:
        SpecError: If there are too few.
    """
    training = spec.training
    rows = training.batch_size // training.microbatches
    if rows < parts:
        of = f"training.batch_size={training.batch_size}"
        if training.microbatches > 1:
            of += f" in {training.microbatches} microbatches"
        raise SpecError(
            f"--mesh {names}",
            f"= {parts} leaves devices without a row: {of} has {rows} at a time; use at most "
            f"{rows}.",
        )


def _check_lengths(spec: RunSpec, layout: Layout) -> None:
    names = "data.length", "data.source_length"
    if isinstance(spec.objective, SpanCorruption):
        names = "the spans to restore", "the corrupted source"
    for name, length in zip(names, spec.row_lengths, strict=True):
        if length is not None and length % layout.sequence:
            raise SpecError(
                "--mesh sequence",
                f"must divide {name}, got sequence={layout.sequence} for {length} tokens; use a "
                "divisor of it.",
            )


def _nearest_divisors(sizes: list[int], asked: int) -> str:
    """Returns the divisors of sizes in words, those nearest to what was asked for."""
    every = {n for whole in sizes for n in range(2, whole + 1) if whole % n == 0}
    nearest = sorted(every, key=lambda n: (abs(n - asked), n))[:MOST_NAMED]
    return ", ".join(map(str, sorted(nearest)))


def _check_optimizer(state: TrainState, layout: Layout) -> None:
    places = partition_optimizer(state.optimizer, state.parameters, layout)
    over_data = Layout(data=layout.data)
    if not any(divisions(place, over_data) > 1 for place in jax.tree.leaves(places)):
        raise SpecError(
            "--mesh shard_optimizer",
            f"= true divides nothing: no state of this optimizer has an axis that data="
            f"{layout.data} divides; leave it out.",
        )
