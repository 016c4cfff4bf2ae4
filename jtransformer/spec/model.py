"""What a model is: the choices whose effect is asked about.

Letters of the shape alphabet in brackets. Defaults are the plainest behaviour.
"""

import dataclasses
from typing import Literal

from jtransformer.spec.attention import Attention, DotProduct, LatentAttention
from jtransformer.spec.fields import Checked, check, number
from jtransformer.spec.heads import Head, TokenHead
from jtransformer.spec.model_rules import check_model
from jtransformer.spec.norms import ENDS_WITH_NORM, NORM_SLOTS, LayerNorm, Norm, NormPlacement
from jtransformer.spec.positions import Position, Sinusoidal
from jtransformer.spec.precision import Precision
from jtransformer.spec.residual import BranchScale, Dropout, FixedScale, Sublayers
from jtransformer.spec.stacks import MOST_LAYERS, Decoder, Encoder, EncoderDecoder, Stack

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
    "geglu_tanh",
    "swiglu",
]
Rematerialize = Literal["nothing", "attention", "elementwise", "everything"]
GATED_FFNS = ("glu", "bilinear", "reglu", "geglu", "geglu_tanh", "swiglu")
"""Feed-forward networks with a gate: three matrices instead of two."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSpec(Checked):
    """A Transformer.

    Attributes:
        vocabulary: Number of token ids [V].
        width: Width of the residual stream [D].
        layers: Attention + feed-forward pairs [L]; of the decoder, where there is an encoder.
        heads: Query heads [N].
        key_value_heads: Key and value heads [K]; None is as many as query heads.
        head_width: Width of a query or key head [H]; None is width / heads.
        stack: Decoder, encoder or both.
        attention: Kind of self-attention.
        qkv_bias: Biases in the query, key and value projections.
        attention_out_bias: A bias in the output projection of attention.
        ffn: Feed-forward network, by activation or gate.
        ffn_width: Hidden width of the feed-forward network [F].
        ffn_bias: Biases in every matrix of the feed-forward network.
        norm_placement: Which of the three norms of a sublayer are present. "deepnorm" also
            scales the stream and the initial values (Wang et al. 2022).
        norm: The norm used everywhere.
        final_norm: Whether a stack ends with a norm; None is what the placement has.
        sublayers: One after the other, or both from one input.
        stream_scale: Factor of the stream in every sum; 0 is no residual path.
        branch_scale: Factor of every branch.
        position: How the model knows the order of tokens.
        scale_embedding: Token embeddings times sqrt(width), as in the 2017 model.
        embedding_norm: A norm after the embeddings, as in BERT.
        first_norm: The first attention of a stack has its norm before it; False leaves that out,
            since the norm of the embeddings stands there already, as in ModernBERT.
        head: What is computed from the last states.
        dropout: Probabilities of dropout, in training alone.
        initialization: Standard deviations of the normal initial values. "fan_in": fan_in^-0.5,
            embeddings width^-0.5. "xavier": (2 / (fan_in + fan_out))^0.5, embeddings width^-0.5
            (Glorot and Bengio 2010). "bert": 0.02. "gpt2": 0.02, times (2 layers)^-0.5 for the
            matrices that write to the residual stream (Radford et al. 2019); 3 layers where each
            has cross-attention too. "t5": fan_in^-0.5, queries times a further H^-0.5,
            embeddings 1 (Raffel et al. 2019).
        scan_layers: Layers are one program that is run L times: compiled once, slower on a CPU.
            Parameters are stacked; numbers are those of the loop, up to rounding.
        rematerialize: What the backward pass computes again instead of keeping: "nothing", scores
            and weights of attention with what they read ("attention", Korthikanti et al. 2022),
            all but the results of matrix products ("elementwise"), or "everything" in a layer.
        precision: In which floating-point type the parts are computed; parameters are float32.
    """

    vocabulary: int = number(256, minimum=2)
    width: int = number(64, minimum=2)
    layers: int = number(2, minimum=1, maximum=MOST_LAYERS)
    heads: int = number(4, minimum=1)
    key_value_heads: int | None = number(None, minimum=1)
    head_width: int | None = number(None, minimum=1)
    stack: Stack = Decoder()
    attention: Attention = DotProduct()
    qkv_bias: bool = False
    attention_out_bias: bool = False
    ffn: Ffn = "gelu"
    ffn_width: int = number(256, minimum=1)
    ffn_bias: bool = False
    norm_placement: NormPlacement = "pre"
    norm: Norm = LayerNorm()
    final_norm: bool | None = None
    sublayers: Sublayers = "sequential"
    stream_scale: float = number(1.0)
    branch_scale: BranchScale = FixedScale()
    position: Position = Sinusoidal()
    scale_embedding: bool = False
    embedding_norm: bool = False
    first_norm: bool = True
    head: Head = TokenHead()
    dropout: Dropout = Dropout()
    initialization: Literal["fan_in", "xavier", "bert", "gpt2", "t5"] = "fan_in"
    scan_layers: bool = False
    rematerialize: Rematerialize = "nothing"
    precision: Precision = Precision()

    def __post_init__(self):
        check(self)
        check_model(self)

    @property
    def H(self) -> int:
        """Width of one query or key head."""
        return self.head_width or self.width // self.heads

    @property
    def K(self) -> int:
        """Number of key and value heads."""
        return self.key_value_heads or self.heads

    @property
    def Hv(self) -> int:
        """Width of one value head."""
        if isinstance(self.attention, LatentAttention) and self.attention.value_width:
            return self.attention.value_width
        return self.H

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
        """Whether each stack ends with a norm."""
        if self.final_norm is not None:
            return self.final_norm
        return self.norm_placement in ENDS_WITH_NORM

    @property
    def causal(self) -> bool:
        """Whether the stack that the head reads is causal (behind a prefix, if it has one)."""
        return not isinstance(self.stack, Encoder)

    @property
    def has_encoder(self) -> bool:
        """Whether an encoder reads a source of its own."""
        return isinstance(self.stack, EncoderDecoder)

    @property
    def source_vocabulary(self) -> int | None:
        """Number of token ids of the source; None where there is no source."""
        if not isinstance(self.stack, EncoderDecoder):
            return None
        return self.stack.source_vocabulary or self.vocabulary
