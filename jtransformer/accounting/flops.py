"""Floating-point operations of the matrix products, per token.

A product of [m, k] and [k, n] counts 2mkn. Norms, activations, softmax and biases are left out
(under 2 % of a step at usual widths). Training counts the backward pass as twice the forward.
"""

import dataclasses

from jtransformer.spec import ModelSpec

TRAINING_PER_FORWARD = 3


@dataclasses.dataclass(frozen=True)
class Flops:
    """Operations per token.

    Attributes:
        projections: Query, key, value and output projections.
        scores: Attention scores and the weighted sum of values, as computed: all T keys.
        causal_scores: The same, if only visible keys were computed: (T + 1) / 2 on average.
        ffn: Feed-forward matrices.
        head: Logits.
    """

    projections: int
    scores: int
    causal_scores: int
    ffn: int
    head: int

    @property
    def forward(self) -> int:
        """What the dense computation does: hidden scores are computed and masked."""
        return self.projections + self.scores + self.ffn + self.head

    @property
    def training(self) -> int:
        return TRAINING_PER_FORWARD * self.forward


def flops(model: ModelSpec, *, length: int) -> Flops:
    """Counts the operations that one token costs in a sequence of `length` tokens [T]."""
    D, F, L = model.width, model.ffn_width, model.layers
    return Flops(
        projections=L * 8 * D * D,
        scores=L * 4 * D * length,
        causal_scores=L * 2 * D * (length + 1),
        ffn=L * 2 * D * F * (3 if model.gated else 2),
        head=2 * D * model.vocabulary,
    )
