"""Known differences between implementations, each as a change of our model."""

from collections.abc import Callable

from jtransformer.diff.hypotheses import attention, ends, layers, positions
from jtransformer.diff.hypotheses.backward import of_gradients
from jtransformer.diff.hypotheses.kinds import Found, Hypothesis
from jtransformer.diff.ours import Ours

EVERYWHERE: tuple[Callable[[Ours], Found], ...] = (
    ends.embedding_scale,
    positions.sinusoid_layout,
    positions.offset,
    positions.rope_pairing,
    positions.rotation,
    layers.norm_placement,
    layers.norm_epsilon,
    layers.norm_kind,
    layers.parallel_norms,
    attention.query_key_norm,
    attention.scale,
    attention.head_order,
    attention.mask,
    layers.activation,
    ends.head,
    ends.label_shift,
    ends.dtype,
)
"""Of the model as a whole."""
OF_MATRICES: tuple[Callable[..., Found], ...] = (
    attention.qkv_packing,
    attention.head_reshape,
    layers.transposed,
    layers.gate_and_up,
)
"""Of how matrices are read, in all layers or in one."""


def of_model(ours: Ours) -> Found:
    """Yields every hypothesis that a model allows, the same in all layers."""
    for propose in (*EVERYWHERE, *OF_MATRICES):
        yield from propose(ours)


def of_layer(ours: Ours, layer: int) -> Found:
    """Yields the hypotheses about the matrices of one layer alone."""
    for propose in OF_MATRICES:
        yield from propose(ours, layer)


__all__ = ["EVERYWHERE", "OF_MATRICES", "Hypothesis", "of_gradients", "of_layer", "of_model"]
