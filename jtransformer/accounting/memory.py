"""Bytes that training a run takes, part by part.

Parameters, gradients, optimizer and average are float32; activations are of the types of the model.
"""

import dataclasses
import math

from jtransformer.accounting.activations import activation_bytes
from jtransformer.accounting.leaves import Leaf, leaves
from jtransformer.accounting.parameters import parameters
from jtransformer.spec import Adafactor, Adam, AdamW, Lion, ModelSpec, Muon, RunSpec, Sgd
from jtransformer.spec.optimizer import Rule

BYTES_PER_NUMBER = 4
MATRICES = ("kernel", "table")
"""Names of parameters that a rule may see as a matrix."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes; exact but for the activations.

    Attributes:
        parameters: The model.
        gradients: As much again; twice as much where those of microbatches are added up.
        optimizer: What the rule remembers; its counters, a few bytes, are left out.
        average: The mean of the parameters, where there is one.
        activations: What the forward pass leaves for the backward pass, estimated; see
            `activation_bytes`.
    """

    parameters: int
    gradients: int
    optimizer: int
    average: int
    activations: int

    @property
    def total(self) -> int:
        return sum(dataclasses.asdict(self).values())


def memory(run: RunSpec) -> Memory:
    """Counts what a training step of a run needs on one device that holds all of it."""
    model, training = run.model, run.training
    weights = BYTES_PER_NUMBER * parameters(model).total
    length, source_length = run.row_lengths
    return Memory(
        parameters=weights,
        gradients=weights if training.microbatches == 1 else 2 * weights,
        optimizer=BYTES_PER_NUMBER * optimizer_numbers(model, run.optimizer.rule),
        average=0 if training.average_decay is None else weights,
        activations=activation_bytes(
            model,
            length=length,
            source_length=source_length,
            rows=training.batch_size // training.microbatches,
            chunk=run.loss.chunk,
        ),
    )


def optimizer_numbers(model: ModelSpec, rule: Rule) -> int:
    """Counts the numbers that a rule remembers.

    Two per parameter for Adam and AdamW, one for Lion and for momentum; for Muon one for each
    entry of a layer's matrices and two for all else. Adafactor keeps a row and a column of every
    matrix that is large enough, and all entries of what is not; optax adds a placeholder or two.
    """
    total = parameters(model).total
    match rule:
        case AdamW() | Adam():
            return 2 * total
        case Lion():
            return total
        case Sgd(momentum=None):
            return 0
        case Sgd():
            return total
        case Muon():
            orthogonal = [
                leaf for leaf in leaves(model) if _in_layer(leaf) and _ends(leaf, "kernel")
            ]
            return 2 * total - sum(leaf.copies * math.prod(leaf.shape) for leaf in orthogonal)
        case Adafactor(factored_from=factored_from):
            return sum(_factored(leaf, factored_from) for leaf in leaves(model))


def _factored(leaf: Leaf, factored_from: int) -> int:
    """Counts what Adafactor remembers of a parameter, seen as a matrix [rows, columns]."""
    stacked = "layers" in leaf.path.split("/")
    copies, shape = leaf.copies, leaf.shape
    if stacked:
        copies, shape = copies * shape[0], shape[1:]
    size = math.prod(shape)
    if len(shape) < 2 or not _ends(leaf, *MATRICES):
        return copies * (size + 2)
    # Tables, and what projects heads back to the stream, end with their columns.
    by_columns = _ends(leaf, "table") or leaf.path.split("/")[-2] == "out"
    rows = size // shape[-1] if by_columns else shape[0]
    columns = size // rows
    if min(rows, columns) < factored_from:
        return copies * (size + 2)
    return copies * (rows + columns + 1)


def _in_layer(leaf: Leaf) -> bool:
    return any(name == "layers" or name.startswith("layer_") for name in leaf.path.split("/"))


def _ends(leaf: Leaf, *names: str) -> bool:
    return leaf.path.rpartition("/")[2] in names
