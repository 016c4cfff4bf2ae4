"""What a model is: the choices whose effect is asked about.

Letters of the shape alphabet in brackets. Defaults are the plainest behaviour.
"""

import dataclasses
from typing import ClassVar, Literal

from jtransformer.spec.errors import SpecError
from jtransformer.spec.fields import check, number

NormPlacement = Literal["pre", "post", "sandwich", "branch"]
Ffn = Literal[
    "relu",
    "relu_squared",
    "gelu",
    "gelu_tanh",
    "silu",
    "glu",
    "bilinear",
    "reglu",
    "geglu",
    "swiglu",
]
NORM_SLOTS = {
    "pre": ("norm_in",),
    "post": ("norm_out",),
    "sandwich": ("norm_in", "norm_branch"),
    "branch": ("norm_branch",),
}
GATED_FFNS = ("glu", "bilinear", "reglu", "geglu", "swiglu")
"""Feed-forward networks with a gate: three matrices instead of two."""
MOST_HEADS_OFFERED = 1024
"""An error message offers no divisor of the width beyond this."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerNorm:
    """Layer normalisation with scale and bias (Ba et al. 2016)."""

    kind: ClassVar[str] = "layer_norm"
    epsilon: float = number(1e-5, above=0, below=1e-2)

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RMSNorm:
    """Root-mean-square normalisation with scale (Zhang and Sennrich 2019)."""

    kind: ClassVar[str] = "rms_norm"
    epsilon: float = number(1e-6, above=0, below=1e-2)

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoPosition:
    """Order is known from the causal mask alone."""

    kind: ClassVar[str] = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sinusoidal:
    """Fixed sines and cosines, added to the embeddings (Vaswani et al. 2017)."""

    kind: ClassVar[str] = "sinusoidal"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learned:
    """One learned vector per position, added to the embeddings; none beyond `max_length`."""

    kind: ClassVar[str] = "learned"
    max_length: int = number(1024, minimum=1)

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A decoder-only Transformer.

    Attributes:
        vocabulary: Number of token ids [V].
        width: Width of the residual stream [D].
        layers: Attention + feed-forward pairs [L].
        heads: Query heads [N]; each is width / heads wide [H].
        norm_placement: Which of the three norms of a sublayer are present.
        norm: The norm used everywhere.
        ffn: Feed-forward network, by activation or gate.
        ffn_width: Hidden width of the feed-forward network [F].
        attention_bias: Biases in the query, key, value and output projections.
        ffn_bias: Biases in every matrix of the feed-forward network.
        position: How the model knows the order of tokens.
        scale_embedding: Token embeddings times sqrt(width), as in the 2017 model.
        tied_head: The output matrix is the embedding table.
        initialization: "fan_in": normal with standard deviation fan_in^-0.5, embeddings
            width^-0.5. "gpt2": normal with 0.02, times (2 layers)^-0.5 for the matrices that write
            to the residual stream (Radford et al. 2019).
    """

    vocabulary: int = number(256, minimum=2)
    width: int = number(64, minimum=2)
    layers: int = number(2, minimum=1)
    heads: int = number(4, minimum=1)
    norm_placement: NormPlacement = "pre"
    norm: LayerNorm | RMSNorm = LayerNorm()
    ffn: Ffn = "gelu"
    ffn_width: int = number(256, minimum=1)
    attention_bias: bool = False
    ffn_bias: bool = False
    position: NoPosition | Sinusoidal | Learned = Sinusoidal()
    scale_embedding: bool = False
    tied_head: bool = True
    initialization: Literal["fan_in", "gpt2"] = "fan_in"

    def __post_init__(self):
        check(self)
        if self.width % self.heads:
            divisors = [n for n in range(1, MOST_HEADS_OFFERED + 1) if self.width % n == 0]
            raise SpecError(
                "heads",
                f"must divide the width, got heads={self.heads}, width={self.width}; "
                f"use one of {', '.join(map(str, divisors))}.",
            )

    @property
    def head_width(self) -> int:
        """Width of one head [H]."""
        return self.width // self.heads

    @property
    def gated(self) -> bool:
        """Whether the feed-forward network has a gate."""
        return self.ffn in GATED_FFNS

    @property
    def norm_slots(self) -> tuple[str, ...]:
        """The norms of the residual formula that each sublayer has."""
        return NORM_SLOTS[self.norm_placement]

    @property
    def has_final_norm(self) -> bool:
        """Whether the stack ends with a norm; in post placement each sublayer already does."""
        return self.norm_placement != "post"
