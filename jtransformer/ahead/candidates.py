"""Which layouts, rematerialisations and microbatches a search may try, and what each should take.

Nothing is compiled here. What a device must hold of the state follows exactly from the rules of
`training.partition`. Operations and bytes on the network are counted as the published schemes have
them: over "fsdp" a gather of the parameters in each pass and a sum of their gradients (Rajbhandari
et al. 2019, https://arxiv.org/abs/1910.02054), over "data" a sum of gradients (where the state of
the optimizer is divided, a sum of each part and a gather of the new parameters: as much), over
"tensor" two sums of a layer's results in each pass (Shoeybi et al. 2019,
https://arxiv.org/abs/1909.08053), over "sequence" a gather of keys and values. A compiler does
better or worse: this is the order in which candidates are worth its time, and what is reported
comes from the compiled programs.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

import jax

from jtransformer import accounting
from jtransformer.accounting import Chip
from jtransformer.ahead.roofline import Roofline, roofline
from jtransformer.ahead.work import training_work
from jtransformer.spec import EncoderDecoder, Layout, RunSpec
from jtransformer.spec.model import Rematerialize
from jtransformer.spec.precision import FLOAT_BYTES
from jtransformer.training import TrainState, divisions, partition_optimizer, partition_parameters

COMPUTED_AGAIN: dict[Rematerialize, frozenset[str]] = {
    "nothing": frozenset(),
    "attention": frozenset({"scores"}),
    "elementwise": frozenset({"elementwise"}),
    "everything": frozenset({"scores", "elementwise", "products"}),
}
"""What the backward pass forms a second time."""
BYTES_OF_STATE = 4
MOST_MICROBATCHES = 64
PRODUCTS_THAT_SUM = 2
"""Products in a layer whose results are summed over "tensor": of attention and feed-forward."""


class Candidate(NamedTuple):
    """One way to compute a run.

    Attributes:
        layout: How the devices are arranged.
        rematerialize: As the field of the model.
        microbatches: As the field of the training.
    """

    layout: Layout
    rematerialize: Rematerialize
    microbatches: int

    def applied(self, run: RunSpec) -> RunSpec:
        """Returns the run so computed."""
        return dataclasses.replace(
            run,
            model=dataclasses.replace(run.model, rematerialize=self.rematerialize),
            training=dataclasses.replace(run.training, microbatches=self.microbatches),
        )

    def is_leaner(self, other: "Candidate") -> bool:
        """Whether this should hold no more than another, and be no faster: by one mesh alone."""
        return (
            self.layout in (other.layout, *_sharded(other.layout))
            and self.microbatches >= other.microbatches
            and COMPUTED_AGAIN[self.rematerialize] >= COMPUTED_AGAIN[other.rematerialize]
        )


class StateBytes(NamedTuple):
    """Bytes of a run's state that one device holds under a layout; exact.

    Attributes:
        parameters: The model; of its gradients it holds as much.
        state: Parameters, optimizer and average.
    """

    parameters: int
    state: int


class Expected(NamedTuple):
    """What is known of a candidate before it is compiled, for each device.

    Attributes:
        held: Bytes of the state, the gradients, and an estimate of what the layers keep.
        roofline: The time of an update; its memory traffic is not known and left out.
    """

    held: float
    roofline: Roofline


def layouts(run: RunSpec, devices: int) -> list[Layout]:
    """Lists the arrangements of devices that divide a run without a rest, "data" first.

    Rows go to "data" times "fsdp" devices, the model's width to "fsdp", tokens of a row to
    "sequence", heads and hidden units to "tensor". Behind each with "data" is the same whose
    optimizer's state is divided over it too, with `shard_optimizer`.

    Args:
        run: The run.
        devices: How many there are.
    """
    model, lengths = run.model, run.row_lengths
    found = []
    for data, fsdp, tensor, sequence in _factorizations(devices, 4):
        divided = [(run.training.batch_size, data * fsdp), (model.width, fsdp)]
        divided += [(size, tensor) for size in (model.heads, model.ffn_width)]
        divided += [(length, sequence) for length in lengths if length is not None]
        if not any(whole % parts for whole, parts in divided):
            layout = Layout(data=data, fsdp=fsdp, tensor=tensor, sequence=sequence)
            found += [layout, *_sharded(layout)]
    return found


def candidates(run: RunSpec, arrangements: list[Layout]) -> list[Candidate]:
    """Lists all that a search may try, in some arrangements of devices."""
    found = []
    for layout in arrangements:
        for microbatches in _divisors(run.training.batch_size // layout.row_parts):
            if _is_possible(run, microbatches):
                found += [
                    Candidate(layout, rematerialize, microbatches)
                    for rematerialize in get_args(Rematerialize)
                ]
    return found


def state_bytes(state: TrainState, layout: Layout) -> StateBytes:
    """Returns what one device holds of a state.

    Args:
        state: The shapes of its arrays.
        layout: How the devices are arranged.
    """
    parameters = _bytes(state.parameters, partition_parameters(state.parameters, layout), layout)
    moments = partition_optimizer(state.optimizer, state.parameters, layout)
    average = 0 if state.average is None else parameters
    return StateBytes(parameters, parameters + average + _bytes(state.optimizer, moments, layout))


def expected(run: RunSpec, candidate: Candidate, own: StateBytes, chip: Chip) -> Expected:
    """Predicts what a candidate takes.

    Args:
        run: The run.
        candidate: How it would be computed.
        own: What one device holds of its state.
        chip: Each of the devices.
    """
    run, layout = candidate.applied(run), candidate.layout
    length, source_length = run.row_lengths
    rows = run.training.batch_size // (candidate.microbatches * layout.row_parts)
    kept = accounting.activation_bytes(
        run.model, length=length, source_length=source_length, rows=rows
    )
    sent = _sent(run, candidate, rows * (length + (source_length or 0)))
    work = training_work(run, memory_bytes=0, network_bytes=int(sent))
    return Expected(
        held=own.state + own.parameters + kept / (layout.tensor * layout.sequence),
        roofline=roofline(work, chip, devices=layout.devices),
    )


def _sharded(layout: Layout) -> list[Layout]:
    """Returns the layout with the optimizer's state divided over "data" too, where it may be."""
    if layout.data == 1 or layout.shard_optimizer:
        return []
    return [dataclasses.replace(layout, shard_optimizer=True)]


def _is_possible(run: RunSpec, microbatches: int) -> bool:
    """Whether a run may have so many: they divide its rows, and a chunk of its loss is less."""
    rows, rest = divmod(run.training.batch_size, microbatches)
    if rest or microbatches > MOST_MICROBATCHES:
        return False
    return run.loss.chunk is None or run.loss.chunk < rows * run.row_lengths.length


def _bytes(shapes: Any, places: Any, layout: Layout) -> int:
    """Returns the bytes that one device holds of arrays."""
    arrays = zip(jax.tree.leaves(shapes), jax.tree.leaves(places), strict=True)
    return sum(
        math.prod(array.shape) * array.dtype.itemsize // divisions(place, layout)
        for array, place in arrays
    )


def _sent(run: RunSpec, candidate: Candidate, tokens: int) -> float:
    """Returns the bytes that a device sends in an update.

    Args:
        run: The run.
        candidate: How it is computed.
        tokens: Those of one microbatch's rows on one device, before "sequence" divides them.
    """
    model, layout = run.model, candidate.layout
    size = FLOAT_BYTES[model.precision.ffn]
    passes = 3 if model.rematerialize == "everything" else 2
    layers = model.layers
    if isinstance(model.stack, EncoderDecoder):
        layers += model.stack.encoder_layers
    weights = accounting.parameters(model).total / layout.tensor
    stream = size * tokens / layout.sequence * model.width
    memories = size * tokens * model.K * (model.H + model.Hv) / math.gcd(layout.tensor, model.K)
    return candidate.microbatches * (
        # The gradients are summed in the type of the parameters.
        weights * (passes * size + BYTES_OF_STATE) * _rest(layout.fsdp)
        + 2 * BYTES_OF_STATE * weights / layout.fsdp * _rest(layout.data)
        + 2 * passes * PRODUCTS_THAT_SUM * layers * stream * _rest(layout.tensor)
        + (passes + 1) * layers * memories * _rest(layout.sequence)
    )


def _rest(parts: int) -> float:
    """Returns the share of an array that one of so many devices lacks."""
    return (parts - 1) / parts


def _factorizations(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yields the ordered products of so many numbers, those with a large first one first."""
    if parts == 1:
        yield (number,)
        return
    for first in reversed(_divisors(number)):
        for rest in _factorizations(number // first, parts - 1):
            yield (first, *rest)


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
