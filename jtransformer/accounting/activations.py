"""What the forward pass leaves in memory for the backward pass: an estimate.

Counted is what derivatives need: each matrix keeps its input, each norm and each activation
function its input, attention its queries, keys, values and weights, dropout a mask of one byte
per entry and the weights it dropped, the loss the logits and their gradient. For a pre-norm layer
of dense feed-forward this is the count of Korthikanti et al. 2022, sec. 4.1,
https://arxiv.org/abs/2205.05198: B·T·D (34 + 5·N·T / D) bytes at two bytes per number with all
dropout, at F = 4D. Left out are statistics of norms, gradients on their way, and what a compiler
keeps or forms beside that.

XLA for the CPU (JAX 0.10) gives a scanned layer 0.94 to 1.0 of this with LayerNorm and ReLU, or
where the layer is computed again; 1.3 to 1.6 with RMSNorm, GELU or SiLU, whose derivatives are
taken step by step and keep what each step needs; a whole update of small models 1.04 to 1.41. In
a loop it computes nothing again, whatever `rematerialize` says, and the estimate is too low.

With `rematerialize` "elementwise" a layer keeps its input and the results of its matrix products,
with "everything" its input alone; one layer at a time is then formed again in full.

Attention over more than 2^23 scores keeps no weights: it is computed in blocks of queries whose
weights are formed again, unless dropout needs all of them at once.
"""

import math
from typing import NamedTuple

from jtransformer.accounting.costs import CHUNK
from jtransformer.accounting.flops import check_lengths
from jtransformer.accounting.stacks import StackView, stacks_of
from jtransformer.spec import (
    Classifier,
    DotProduct,
    Embedder,
    LatentAttention,
    LinearAttention,
    ModelSpec,
    SpecError,
    Tagger,
    TokenHead,
)

BLOCKWISE_BEYOND = 2**23
"""Scores of a layer from which on attention is computed in blocks."""


class Kept(NamedTuple):
    """Entries kept for one sequence.

    Attributes:
        numbers: Numbers.
        masks: Entries of dropout masks, one byte each.
    """

    numbers: int
    masks: int = 0

    def __add__(self, other: "Kept") -> "Kept":  # pyright: ignore[reportIncompatibleMethodOverride]
        return Kept(self.numbers + other.numbers, self.masks + other.masks)

    def times(self, count: int) -> "Kept":
        return Kept(count * self.numbers, count * self.masks)


class Sizes(NamedTuple):
    """How large a batch is: rows, tokens of a sequence of this stack, tokens of the memory."""

    rows: int
    tokens: int
    memory: int


def activation_bytes(
    model: ModelSpec,
    *,
    length: int,
    source_length: int | None = None,
    rows: int = 1,
    bytes_per_number: int = 4,
) -> int:
    """Estimates the bytes that one training step keeps between forward and backward pass.

    Args:
        model: The model.
        length: Tokens of a row [T], of the target where there is a source.
        source_length: Tokens of the source [S]; None is `length`.
        rows: Rows of a batch [B].
        bytes_per_number: 4 for float32.

    Raises:
        SpecError: If a size is below 1, or a source length is given to a model without a source.
    """
    S = check_lengths(model, length, source_length)
    for name, size in (("rows", rows), ("bytes_per_number", bytes_per_number)):
        if size < 1:
            raise SpecError(name, f"must be at least 1, got {size}.")
    kept = _ends(model, length)
    largest = Kept(0)
    for stack in stacks_of(model):
        tokens = length if stack.causal or not model.has_encoder else S
        sizes = Sizes(rows, tokens, S)
        full = _layer(model, stack, sizes)
        if model.rematerialize == "nothing":
            kept += full.times(stack.layers)
            continue
        entry = Kept(tokens * model.width)
        products = _products(model, stack, sizes) if model.rematerialize == "elementwise" else 0
        kept += (entry + Kept(products)).times(stack.layers)
        largest = max(largest, full)
    kept += largest
    return rows * (kept.numbers * bytes_per_number + kept.masks)


def _ends(model: ModelSpec, length: int) -> Kept:
    """Returns what embeddings, final norms and head keep."""
    D, head = model.width, model.head
    numbers = (2 if model.has_final_norm else 1) * length * D
    if isinstance(head, TokenHead):
        numbers += 2 * length * model.vocabulary + (3 * length * D if head.transform else 0)
    elif isinstance(head, Tagger):
        numbers += 2 * length * head.classes
    elif isinstance(head, Classifier):
        numbers += 2 * head.classes
    elif isinstance(head, Embedder):
        numbers += head.embedding_width or 0
    dropped = bool(model.dropout.embedding)
    norm = length * D if model.embedding_norm else 0
    return Kept(numbers + norm, dropped * length * D)


def _layer(model: ModelSpec, stack: StackView, sizes: Sizes) -> Kept:
    """Returns what one layer keeps for one sequence if nothing is computed again."""
    D, F, T = model.width, model.ffn_width, sizes.tokens
    sublayers = 3 if stack.reads_memory else 2
    inputs = sublayers * (1 + len(model.norm_slots)) * T * D
    if model.sublayers != "sequential":
        # Both read one stream, so that its norms have one input.
        inputs -= T * D * (2 if model.sublayers == "parallel_one_norm" else 1)
    hidden = T * F * (3 if model.gated else 2)
    masks = sublayers * T * D if model.dropout.residual else 0
    masks += T * F if model.dropout.ffn else 0
    kept = Kept(inputs + hidden, masks) + _self_attention(model, sizes)
    if stack.reads_memory:
        kept += _cross_attention(model, sizes)
    return kept


def _self_attention(model: ModelSpec, sizes: Sizes) -> Kept:
    T, N, K, H, Hv = sizes.tokens, model.heads, model.K, model.H, model.Hv
    attention = model.attention
    heads = T * (N * H + K * (H + Hv) + N * Hv)
    if isinstance(attention, LinearAttention):
        # Features beside queries and keys, and the pairs inside a chunk.
        return Kept(heads + T * (N + K) * H + T * N * min(CHUNK, T))
    if isinstance(attention, LatentAttention):
        Hr = attention.rotary_width or 0
        heads = T * (2 * attention.latent_width + 2 * N * (H + Hr) + 2 * N * Hv)
    elif isinstance(attention, DotProduct) and attention.query_key_norm != "none":
        heads += T * (N + K) * H
    return Kept(heads) + _weights(model, sizes, keys=T)


def _cross_attention(model: ModelSpec, sizes: Sizes) -> Kept:
    N, K, H = model.heads, model.K, model.H
    heads = sizes.tokens * 2 * N * H + sizes.memory * 2 * K * H
    return Kept(heads) + _weights(model, sizes, keys=sizes.memory)


def _weights(model: ModelSpec, sizes: Sizes, *, keys: int) -> Kept:
    scores = model.heads * sizes.tokens * keys
    if model.dropout.attention:
        return Kept(2 * scores, scores)
    return Kept(0 if sizes.rows * scores > BLOCKWISE_BEYOND else scores)


def _products(model: ModelSpec, stack: StackView, sizes: Sizes) -> int:
    """Counts the results of a layer's matrix products for one sequence."""
    T, N, K, H, Hv = sizes.tokens, model.heads, model.K, model.H, model.Hv
    hidden = T * model.ffn_width * (2 if model.gated else 1)
    sublayers = 3 if stack.reads_memory else 2
    attention = T * (N * H + K * (H + Hv) + N * Hv)
    if isinstance(model.attention, LatentAttention):
        latent, Hr = model.attention.latent_width, model.attention.rotary_width or 0
        attention = T * (N * (H + Hr) + latent + Hr + N * (H + 2 * Hv))
    scores = T * N * (min(CHUNK, T) if isinstance(model.attention, LinearAttention) else T)
    scores = 0 if math.prod((sizes.rows, N, T, T)) > BLOCKWISE_BEYOND else scores
    if stack.reads_memory:
        attention += T * 2 * N * H + sizes.memory * 2 * K * H
        scores += T * N * sizes.memory
    return sublayers * T * model.width + hidden + attention + scores
