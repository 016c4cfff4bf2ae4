"""Number of parameters, by component."""

import dataclasses

from jtransformer.spec import LayerNorm, Learned, ModelSpec


@dataclasses.dataclass(frozen=True)
class Parameters:
    """Exact counts; a tied head counts once, under `embedding`."""

    embedding: int
    position: int
    attention: int
    ffn: int
    norms: int
    head: int

    @property
    def total(self) -> int:
        return sum(dataclasses.asdict(self).values())


def parameters(model: ModelSpec) -> Parameters:
    """Counts the parameters of a model.

    Biased, two-layer, LayerNorm layers hold 4D² + 2DF + F + 9D; the test compares every
    spec with the leaves of its initialised tree.
    """
    D, F, L = model.width, model.ffn_width, model.layers
    attention = 4 * D * D + (4 * D if model.attention_bias else 0)
    inputs = 2 if model.gated else 1
    ffn = (inputs + 1) * D * F + (inputs * F + D if model.ffn_bias else 0)
    norm = 2 * D if isinstance(model.norm, LayerNorm) else D
    norms = 2 * L * len(model.norm_slots) + model.has_final_norm
    return Parameters(
        embedding=model.vocabulary * D,
        position=model.position.max_length * D if isinstance(model.position, Learned) else 0,
        attention=L * attention,
        ffn=L * ffn,
        norms=norms * norm,
        head=0 if model.tied_head else model.vocabulary * D,
    )
