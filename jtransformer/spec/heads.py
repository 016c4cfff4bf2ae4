"""What is computed from the last states."""

import dataclasses
from typing import ClassVar, Literal

from jtransformer.spec.errors import SpecError
from jtransformer.spec.fields import Checked, check, number

Pooling = Literal["first", "last", "mean", "max"]
"""Which state stands for a sequence; padding is never pooled."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenHead(Checked):
    """Scores of every token id at every position.

    Attributes:
        tied: The matrix is the embedding table.
        bias: A bias for every token id.
        scale_down: The states times width^-0.5 before the matrix, as T5 does where it ties.
        soft_cap: Bound of the scores, by a tanh; None is no bound.
        transform: A dense layer, exact GELU and a norm before the matrix, as in BERT.
        transform_bias: A bias in that dense layer.
    """

    kind: ClassVar[str] = "tokens"
    tied: bool = True
    bias: bool = False
    scale_down: bool = False
    soft_cap: float | None = number(None, above=0)
    transform: bool = False
    transform_bias: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classifier(Checked):
    """Scores of classes for a whole sequence."""

    kind: ClassVar[str] = "classes"
    classes: int = number(2, minimum=2)
    pooling: Pooling = "mean"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tagger(Checked):
    """Scores of classes at every position."""

    kind: ClassVar[str] = "tags"
    classes: int = number(2, minimum=2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedder(Checked):
    """One vector for a whole sequence, as retrieval compares them.

    Attributes:
        pooling: Which state stands for the sequence.
        embedding_width: Width of the vector, by a matrix without bias; None leaves the state.
        unit_length: The vector is scaled to length 1.
    """

    kind: ClassVar[str] = "embedding"
    pooling: Pooling = "mean"
    embedding_width: int | None = number(None, minimum=1)
    unit_length: bool = True

    def __post_init__(self):
        check(self)
        if self.embedding_width == 1 and self.unit_length:
            raise SpecError("embedding_width", "= 1 with unit_length leaves only a sign; use more.")


Head = TokenHead | Classifier | Tagger | Embedder
