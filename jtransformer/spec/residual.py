"""How a sublayer joins the residual stream, apart from its norms."""

import dataclasses
from typing import ClassVar, Literal

from jtransformer.spec.fields import Checked, number

Sublayers = Literal["sequential", "parallel", "parallel_one_norm"]
"""Attention then feed-forward; or both from one input, with two norms (GPT-NeoX) or one (GPT-J)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedScale(Checked):
    """Every branch times one number; 1 is the plain sum."""

    kind: ClassVar[str] = "fixed"
    value: float = number(1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReZero(Checked):
    """Every branch times a learned number that starts at 0 (Bachlechner et al. 2020)."""

    kind: ClassVar[str] = "rezero"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerScale(Checked):
    """Every branch times a learned number per channel (Touvron et al. 2021).

    Attributes:
        initial: Value at the start.
    """

    kind: ClassVar[str] = "layer_scale"
    initial: float = number(1e-4)


BranchScale = FixedScale | ReZero | LayerScale


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dropout(Checked):
    """Probabilities with which values are zeroed in training; the rest is scaled up.

    Attributes:
        embedding: On the embeddings, positions added.
        attention: On the attention weights.
        ffn: On the hidden units of the feed-forward network.
        residual: On every branch, before it is added to the stream.
    """

    embedding: float = number(0.0, minimum=0, below=1)
    attention: float = number(0.0, minimum=0, below=1)
    ffn: float = number(0.0, minimum=0, below=1)
    residual: float = number(0.0, minimum=0, below=1)
