"""What a program of a run computes, counted from its spec.

Operations are those of `jtransformer.accounting.flops`, scores as computed. What is computed again
in the backward pass is counted apart, since the model does not need it: with `rematerialize`
"everything" each layer's forward pass, with "attention" the products of queries and keys, with
`loss.chunk` the logits. "elementwise" computes no product again. Kernels that form attention's
weights again on their own (flash attention) are not counted: at most half of the scores.
"""

from jtransformer.accounting import Flops, flops
from jtransformer.ahead.programs import Decoding
from jtransformer.ahead.roofline import Work
from jtransformer.spec import RunSpec


def training_work(spec: RunSpec, *, memory_bytes: int, network_bytes: int) -> Work:
    """Returns what an update does.

    Args:
        spec: The run.
        memory_bytes: Bytes that one device moves to and from its memory.
        network_bytes: Bytes that one device sends.
    """
    length, source_length = spec.row_lengths
    tokens = spec.training.batch_size * length
    figures = flops(spec.model, length=length, source_length=source_length)
    return Work(
        model_flops=figures.training * tokens,
        extra_flops=_again(spec, figures) * tokens,
        memory_bytes=memory_bytes,
        network_bytes=network_bytes,
        tokens=tokens,
    )


def decoding_work(
    spec: RunSpec, decoding: Decoding, *, memory_bytes: int, network_bytes: int
) -> Work:
    """Returns what the last token of a full cache costs, for all rows.

    Args:
        spec: The run.
        decoding: Rows, and tokens of the cache.
        memory_bytes: Bytes that one device moves to and from its memory.
        network_bytes: Bytes that one device sends.
    """
    source_length = spec.row_lengths.source_length
    figures = flops(spec.model, length=decoding.capacity, source_length=source_length)
    return Work(
        model_flops=figures.decoding * decoding.rows,
        extra_flops=0,
        memory_bytes=memory_bytes,
        network_bytes=network_bytes,
        tokens=decoding.rows,
    )


def _again(spec: RunSpec, figures: Flops) -> float:
    """Counts what the backward pass computes a second time, per token."""
    logits = 0 if spec.loss.chunk is None else figures.head
    match spec.model.rematerialize:
        case "everything":
            return figures.forward - figures.head + logits
        case "attention":
            return (figures.scores + figures.cross_scores + figures.encoder_scores) / 2 + logits
        case _:
            return logits
