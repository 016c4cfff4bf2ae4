"""Number of parameters, by component."""

import dataclasses
import math

from jtransformer.accounting.leaves import leaves
from jtransformer.spec import ModelSpec


@dataclasses.dataclass(frozen=True)
class Parameters:
    """Exact counts; what is shared counts once, under the first name that fits.

    Attributes:
        embedding: Tables that ids are looked up in; a tied head is one of them.
        position: Tables of positions and of distances, those inside of attention too.
        attention: Self-attention, with the norms of queries, keys and latents.
        cross_attention: Likewise, for what reads an encoder's output.
        ffn: Feed-forward networks.
        norms: All other norms but that of the head.
        branch_scales: Learned factors of branches.
        head: What follows the stacks: pooler, transform, matrix and bias.
    """

    embedding: int
    position: int
    attention: int
    cross_attention: int
    ffn: int
    norms: int
    branch_scales: int
    head: int

    @property
    def total(self) -> int:
        return sum(dataclasses.asdict(self).values())

    @property
    def non_embedding(self) -> int:
        """What lies between the embeddings and the head (Kaplan et al. 2020, sec. 2.1)."""
        return self.total - self.embedding - self.position - self.head


def parameters(model: ModelSpec) -> Parameters:
    """Counts the parameters of a model.

    With as many key heads as query heads and N·H = D, biased two-layer networks and LayerNorm, a
    layer holds 4D² + 2DF + F + 9D, and one with cross-attention 8D² + 2DF + F + 15D; with RMSNorm,
    a gate and no biases 4D² + 3DF + 2D.
    """
    counts = dict.fromkeys((field.name for field in dataclasses.fields(Parameters)), 0)
    for leaf in leaves(model):
        counts[leaf.component] += leaf.copies * math.prod(leaf.shape)
    return Parameters(**counts)
