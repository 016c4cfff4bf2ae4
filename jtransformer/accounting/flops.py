"""Floating-point operations of the matrix products, per token.

A product of [m, k] and [k, n] counts 2mkn. Norms, activations, softmax, biases, lookups and
rotations are left out (under 2 % of a step at usual widths; XLA's own count has them). Training
counts the backward pass as twice the forward (Kaplan et al. 2020, sec. 2.1,
https://arxiv.org/abs/2001.08361). What rematerialisation or blockwise attention compute a second
time is not counted: these are the operations that the model needs, as in the model FLOPs of
Chowdhery et al. 2022, appendix B, https://arxiv.org/abs/2204.02311.

Every figure is per token of `length`, which is the target where there is a source. What happens
once per source token is counted S / T times, and what happens once per sequence (a pooler, a
classifier) 1 / T times. Figures are exact; one that is no whole number is a float.
"""

import dataclasses

from jtransformer.accounting.costs import (
    kernel_entries,
    layer_entries,
    memory_scores,
    self_scores,
    step_scores,
)
from jtransformer.accounting.stacks import stacks_of
from jtransformer.spec import Classifier, Embedder, Encoder, ModelSpec, SpecError, TokenHead
from jtransformer.spec.fields import LARGEST

TRAINING_PER_FORWARD = 3


@dataclasses.dataclass(frozen=True)
class Flops:
    """Operations per token.

    Attributes:
        projections: Matrices of self-attention, in the stack that the head reads.
        scores: Its scores and weighted sums of values, as computed: all T keys, hidden or not.
        visible_scores: The same, if visible keys alone were computed: (T + 1) / 2 on average in a
            causal layer, fewer with a window, all without causality. The keys that a prefix
            shows in addition are not counted.
        cross_attention: Matrices of cross-attention, those of the memory's keys and values too.
        cross_scores: Its scores and sums: all S keys.
        ffn: Feed-forward matrices.
        encoder: All layers of the encoder, its scores as computed.
        encoder_scores: The part of `encoder` that is scores and sums.
        head: Logits, and what stands before them.
        decoding: One more token behind a cache, itself the last of `length` tokens, with the
            encoder and the memory's keys and values already there; 0 for an encoder alone. Scores
            count the keys that it sees.
    """

    projections: float
    scores: float
    visible_scores: float
    cross_attention: float
    cross_scores: float
    ffn: float
    encoder: float
    encoder_scores: float
    head: float
    decoding: float

    @property
    def forward(self) -> float:
        """What the dense computation does: hidden scores are computed and masked."""
        return self.forward_without_scores + self.scores + self.cross_scores + self.encoder_scores

    @property
    def forward_visible(self) -> float:
        """The same, if hidden scores of the stack that the head reads were left out."""
        return self.forward - self.scores + self.visible_scores

    @property
    def forward_without_scores(self) -> float:
        """Products with parameters alone: 2 per entry of a matrix."""
        own = self.projections + self.cross_attention + self.ffn + self.head
        return own + self.encoder - self.encoder_scores

    @property
    def training(self) -> float:
        """Forward and backward, scores as computed."""
        return TRAINING_PER_FORWARD * self.forward

    @property
    def training_without_scores(self) -> float:
        return TRAINING_PER_FORWARD * self.forward_without_scores


def flops(model: ModelSpec, *, length: int, source_length: int | None = None) -> Flops:
    """Counts the operations that one token costs in a sequence of `length` tokens [T].

    Args:
        model: The model.
        length: Tokens of the sequence, of the target where there is a source.
        source_length: Tokens of the source [S]; None is `length`.

    Raises:
        SpecError: If a length is below 1, or a source length is given to a model without one.
    """
    S = check_lengths(model, length, source_length)
    *encoders, main = stacks_of(model)
    scores = self_scores(model, main, length=length)
    encoder_scores = sum(self_scores(model, stack, length=S).computed for stack in encoders)
    encoder_matrices = sum(
        2 * S * layer_entries(model, stack, part)
        for stack in encoders
        for part in ("attention", "ffn")
    )
    read = 2 * sum(layer_entries(model, main, f"cross_attention/{x}") for x in ("query", "out"))
    stored = 2 * sum(layer_entries(model, main, f"cross_attention/{x}") for x in ("key", "value"))
    cross_scores = memory_scores(model, main, keys=S)
    projections, ffn = (2 * layer_entries(model, main, part) for part in ("attention", "ffn"))
    head_token, head_sequence = _head(model)
    decoding = projections + step_scores(model, main, length=length) + read + cross_scores
    return Flops(
        projections=projections,
        scores=_share(scores.computed, length),
        visible_scores=_share(scores.visible, length),
        cross_attention=read + _share(S * stored, length),
        cross_scores=cross_scores,
        ffn=ffn,
        encoder=_share(encoder_matrices + encoder_scores, length),
        encoder_scores=_share(encoder_scores, length),
        head=_share(head_token * length + head_sequence, length),
        decoding=0 if isinstance(model.stack, Encoder) else decoding + ffn + head_token,
    )


def check_lengths(model: ModelSpec, length: int, source_length: int | None) -> int:
    """Returns the length of the source, 0 where there is none.

    Raises:
        SpecError: If a length is below 1 or beyond what a field may hold, or a source length is
            given to a model without one.
    """
    for name, value in (("length", length), ("source_length", source_length)):
        if value is not None and value < 1:
            raise SpecError(name, f"must be at least 1, got {value}.")
        if value is not None and value > LARGEST:
            raise SpecError(name, f"must not exceed {LARGEST}.")
    if source_length is not None and not model.has_encoder:
        raise SpecError(
            "source_length",
            f"= {source_length} would do nothing with stack.kind {model.stack.kind!r}, which "
            "reads no source; leave it out.",
        )
    if not model.has_encoder:
        return 0
    return length if source_length is None else source_length


def _head(model: ModelSpec) -> tuple[int, int]:
    """Returns what the head costs for every token, and what once for a sequence."""
    pooler, matrix = (2 * kernel_entries(model, name) for name in ("pooler/", "head/"))
    if isinstance(model.head, Classifier | Embedder):
        return 0, pooler + matrix
    if isinstance(model.head, TokenHead):
        if model.head.tied:
            matrix += 2 * model.vocabulary * model.width
        matrix += 2 * kernel_entries(model, "head_transform/")
    return matrix, pooler


def _share(total: int, length: int) -> float:
    """Divides by the tokens; whole numbers stay integers, of any size."""
    return total // length if total % length == 0 else total / length
