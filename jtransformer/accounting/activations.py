"""What the forward pass leaves in memory for the backward pass: an estimate.

Counted is what derivatives need, in the floating-point type of the part that it is in: each matrix
keeps its input, each norm its standardised input in float32, each activation function its input,
attention its queries, keys, values and weights (in float32, and rounded beside where the read is of
less), dropout a mask of one byte per entry and the weights it dropped, the loss the logits in
float32 and their gradient. Where a part is in bfloat16 its matrices are kept rounded too. For a
pre-norm layer of dense feed-forward this is the count of Korthikanti et al. 2022, sec. 4.1,
https://arxiv.org/abs/2205.05198, which is B·T·D (34 + 5·N·T / D) bytes at two bytes per number with
all dropout, at F = 4D; with norms and softmax in float32 it is B·T·D (38 + 7·N·T / D), and the
rounded matrices. Left out are statistics of norms, gradients on their way, and what a compiler
keeps or forms beside that.

XLA for the CPU (JAX 0.10) gives a scanned layer 0.94 to 1.0 of this with LayerNorm and ReLU, or
where the layer is computed again; 1.1 with GELU, 1.3 with SwiGLU or RMSNorm, whose derivatives are
in part taken step by step and keep what each step needs; a whole update of small models 1.04 to
1.41. In a loop it computes nothing again, whatever `rematerialize` says, and the estimate is too
low; and it widens every bfloat16 to float32, whose memory it then takes.

With `rematerialize` "attention" no layer keeps weights and what dropout makes of them; with
"elementwise" it keeps its input and the results of its matrix products, with "everything" its input
alone. One layer at a time then forms again what it has not kept.

Attention over more than 2^23 scores keeps no weights: it is computed in blocks of queries whose
weights are formed again, unless dropout needs all of them at once. On an accelerator whose kernel
computes attention (`functional.attention_backend`) fewer scores keep none either, and on a CPU, for
128 causal queries or more, 5/8 to 3/4 of the weights: the estimate is too high by the rest.
"""

import math
from typing import NamedTuple

from jtransformer.accounting.costs import CHUNK, kernel_entries, layer_entries
from jtransformer.accounting.flops import check_lengths
from jtransformer.accounting.stacks import StackView, stacks_of
from jtransformer.spec import (
    FLOAT_BYTES,
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
FLOAT32 = FLOAT_BYTES["float32"]


class Sizes(NamedTuple):
    """How large a batch is: rows, tokens of a sequence of this stack, tokens of the memory."""

    rows: int
    tokens: int
    memory: int


class Widths(NamedTuple):
    """Bytes of a number in each part of a model."""

    stream: int
    attention: int
    ffn: int
    head: int


def activation_bytes(
    model: ModelSpec,
    *,
    length: int,
    source_length: int | None = None,
    rows: int = 1,
    chunk: int | None = None,
) -> int:
    """Estimates the bytes that one training step keeps between forward and backward pass.

    Args:
        model: The model.
        length: Tokens of a row [T], of the target where there is a source.
        source_length: Tokens of the source [S]; None is `length`.
        rows: Rows whose gradient is computed at a time [B]: of a microbatch, where there are some.
        chunk: Positions whose logits exist at a time; None is all.

    Raises:
        SpecError: If a size is below 1, or a source length is given to a model without a source.
    """
    S = check_lengths(model, length, source_length)
    for name, size in (("rows", rows), ("chunk", chunk)):
        if size is not None and size < 1:
            raise SpecError(name, f"must be at least 1, got {size}.")
    width = widths(model)
    kept = _ends(model, rows * length, rows, chunk)
    largest = 0
    for stack in stacks_of(model):
        tokens = length if stack.causal or not model.has_encoder else S
        sizes = Sizes(rows, tokens, S)
        weights = rows * _all_weights(model, stack, sizes)
        full = rows * _layer(model, stack, sizes) + weights + _rounded(model, stack)
        entry = rows * tokens * model.width * width.stream
        if model.rematerialize == "nothing":
            own, again = full, 0
        elif model.rematerialize == "attention":
            own, again = full - weights, weights
        elif model.rematerialize == "elementwise":
            own, again = entry + rows * _products(model, stack, sizes), full
        else:
            own, again = entry, full
        kept += stack.layers * own
        if not model.first_norm and model.rematerialize in ("nothing", "attention"):
            kept -= rows * tokens * model.width * FLOAT32
        largest = max(largest, again)
    return kept + largest


def widths(model: ModelSpec) -> Widths:
    """Returns how wide the numbers of each part are."""
    return Widths(*(FLOAT_BYTES[getattr(model.precision, part)] for part in Widths._fields))


def _ends(model: ModelSpec, positions: int, rows: int, chunk: int | None) -> int:
    """Returns what embeddings, final norms and head keep."""
    D, head, width = model.width, model.head, widths(model)
    # The input of the final norm, and that of the head.
    kept = positions * D * ((FLOAT32 if model.has_final_norm else 0) + width.head)
    if isinstance(head, TokenHead):
        at_once = positions if chunk is None else min(chunk, positions)
        kept += at_once * model.vocabulary * (FLOAT32 + width.head)
        kept += at_once * D * (FLOAT32 + 2 * width.head) if head.transform else 0
        if chunk is not None:
            # Dealt out to the chunks, which are read one after the other.
            kept += positions * D * width.stream
        if width.head < FLOAT32:
            matrices = kernel_entries(model, "head/") + kernel_entries(model, "head_transform/")
            matrices += model.vocabulary * D if head.tied else 0
            kept += width.head * matrices
    elif isinstance(head, Tagger):
        kept += positions * head.classes * (FLOAT32 + width.head)
    elif isinstance(head, Classifier):
        kept += rows * head.classes * (FLOAT32 + width.head)
    elif isinstance(head, Embedder):
        kept += rows * (head.embedding_width or 0) * width.head
    kept += positions * D * FLOAT32 if model.embedding_norm else 0
    return kept + (positions * D if model.dropout.embedding else 0)


def _layer(model: ModelSpec, stack: StackView, sizes: Sizes) -> int:
    """Returns what one layer keeps for one sequence if nothing is computed again, but weights."""
    D, F, T, width = model.width, model.ffn_width, sizes.tokens, widths(model)
    attentions = 2 if stack.reads_memory else 1
    norms = (attentions + 1) * len(model.norm_slots) * T * D * FLOAT32
    inputs = T * D * (attentions * width.attention + width.ffn)
    if model.sublayers != "sequential":
        # Both read one stream, so that its norms have one input.
        norms -= T * D * FLOAT32
    if model.sublayers == "parallel_one_norm":
        inputs -= T * D * min(width.attention, width.ffn)
    hidden = T * F * (3 if model.gated else 2) * width.ffn
    masks = (attentions + 1) * T * D if model.dropout.residual else 0
    masks += T * F if model.dropout.ffn else 0
    kept = norms + inputs + hidden + masks + _self_attention(model, sizes)
    if stack.reads_memory:
        kept += _cross_attention(model, sizes)
    return kept


def _rounded(model: ModelSpec, stack: StackView) -> int:
    """Returns what the rounded matrices of one layer take, where they are not used as they are."""
    width = widths(model)
    parts = {"attention": width.attention, "cross_attention": width.attention, "ffn": width.ffn}
    return sum(
        size * layer_entries(model, stack, part) // stack.layers
        for part, size in parts.items()
        if size < FLOAT32
    )


def _self_attention(model: ModelSpec, sizes: Sizes) -> int:
    """Returns what self-attention keeps for one sequence, but its weights."""
    T, N, K, H, Hv = sizes.tokens, model.heads, model.K, model.H, model.Hv
    attention, size = model.attention, widths(model).attention
    kept = T * (N * H + K * (H + Hv) + N * Hv) * size
    if isinstance(attention, LatentAttention):
        C, Hr = attention.latent_width, attention.rotary_width or 0
        # The latent before its norm, and behind it.
        return T * (C * FLOAT32 + (C + 2 * N * (H + Hr) + 2 * N * Hv) * size)
    if isinstance(attention, DotProduct) and attention.query_key_norm != "none":
        kept += T * (N + K) * H * FLOAT32
    return kept


def _cross_attention(model: ModelSpec, sizes: Sizes) -> int:
    N, K, H, width = model.heads, model.K, model.H, widths(model)
    kept = (sizes.tokens * 2 * N * H + sizes.memory * 2 * K * H) * width.attention
    if width.attention != width.stream:
        kept += sizes.memory * model.width * width.attention
    return kept


def _all_weights(model: ModelSpec, stack: StackView, sizes: Sizes) -> int:
    """Returns what the attention of one layer forms out of queries, keys and values."""
    T, N, K, H = sizes.tokens, model.heads, model.K, model.H
    if isinstance(model.attention, LinearAttention):
        # Features, and values in their type if that is wider; and the pairs inside a chunk.
        formed = T * (N + K) * H + T * N * min(CHUNK, T)
        formed += T * K * H if widths(model).attention < FLOAT32 else 0
        kept = formed * FLOAT32
    else:
        kept = _weights(model, sizes, keys=T)
    return kept + (_weights(model, sizes, keys=sizes.memory) if stack.reads_memory else 0)


def _weights(model: ModelSpec, sizes: Sizes, *, keys: int) -> int:
    scores, size = model.heads * sizes.tokens * keys, widths(model).attention
    if model.dropout.attention:
        return scores * (FLOAT32 + 1 + size)
    if sizes.rows * scores > BLOCKWISE_BEYOND:
        return 0
    return scores * (FLOAT32 if size == FLOAT32 else FLOAT32 + size)


def _products(model: ModelSpec, stack: StackView, sizes: Sizes) -> int:
    """Returns what the results of a layer's matrix products take for one sequence."""
    T, N, K, H, Hv = sizes.tokens, model.heads, model.K, model.H, model.Hv
    D, width = model.width, widths(model)
    ffn = T * (model.ffn_width * (2 if model.gated else 1) + D)
    attention = T * (N * H + K * (H + Hv) + N * Hv + D)
    if isinstance(model.attention, LatentAttention):
        latent, Hr = model.attention.latent_width, model.attention.rotary_width or 0
        attention = T * (N * (H + Hr) + latent + Hr + N * (H + 2 * Hv) + D)
    scores = T * N * (min(CHUNK, T) if isinstance(model.attention, LinearAttention) else T)
    scores = 0 if math.prod((sizes.rows, N, T, T)) > BLOCKWISE_BEYOND else scores
    if stack.reads_memory:
        attention += T * (2 * N * H + D) + sizes.memory * 2 * K * H
        scores += T * N * sizes.memory
    return ffn * width.ffn + attention * width.attention + scores * FLOAT32
