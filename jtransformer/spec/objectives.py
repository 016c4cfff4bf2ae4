"""What a model is asked."""

import dataclasses
from typing import ClassVar

from jtransformer.spec.errors import SpecError
from jtransformer.spec.fields import Checked, check, number


@dataclasses.dataclass(frozen=True, kw_only=True)
class CausalLM(Checked):
    """The next token at every position (of the target alone, where examples are pairs)."""

    kind: ClassVar[str] = "causal_lm"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrefixLM(Checked):
    """The continuation of a prefix that sees itself in both directions (Raffel et al. 2019).

    The prefix of a pair is its source. That of a text is drawn uniformly for every row.

    Attributes:
        smallest_prefix: Least share of a row of text.
        largest_prefix: Greatest share of a row of text.
    """

    kind: ClassVar[str] = "prefix_lm"
    smallest_prefix: float = number(0.25, above=0, below=1)
    largest_prefix: float = number(0.75, above=0, below=1)

    def __post_init__(self):
        check(self)
        if self.smallest_prefix > self.largest_prefix:
            raise SpecError(
                "smallest_prefix",
                "must not exceed largest_prefix, got "
                f"{self.smallest_prefix} and {self.largest_prefix}.",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seq2Seq(Checked):
    """The target of a pair, teacher-forced, from its source (Sutskever et al. 2014)."""

    kind: ClassVar[str] = "seq2seq"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedLM(Checked):
    """Tokens that were hidden (Devlin et al. 2018).

    Attributes:
        rate: Share of the positions without special tokens that are targets; at least one is.
        masked: Share of the targets that show the mask token.
        random: Share of the targets that show a random token; the rest shows its own.
    """

    kind: ClassVar[str] = "masked_lm"
    rate: float = number(0.15, above=0, maximum=1)
    masked: float = number(0.8, minimum=0, maximum=1)
    random: float = number(0.1, minimum=0, maximum=1)

    def __post_init__(self):
        check(self)
        if self.masked + self.random > 1:
            raise SpecError(
                "random", f"+ masked must not exceed 1, got {self.random} + {self.masked}."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanCorruption(Checked):
    """Spans that were replaced by sentinels, in one sequence (Raffel et al. 2019).

    Attributes:
        density: Share of the tokens that is dropped.
        mean_length: Mean length of a dropped span.
    """

    kind: ClassVar[str] = "span_corruption"
    density: float = number(0.15, above=0, below=1)
    mean_length: float = number(3.0, minimum=1)


Objective = CausalLM | PrefixLM | Seq2Seq | MaskedLM | SpanCorruption
"""Every objective."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossSpec(Checked):
    """What is minimised beside the plain negative log-likelihood, which is reported, and how.

    Attributes:
        label_smoothing: Share of the target that is spread over the vocabulary.
        z_loss: Weight of the squared log of the softmax's normaliser.
        chunk: Positions whose logits exist at a time, in training and in evaluation; the backward
            pass computes them once more, and over a mesh each chunk fetches the head and sums its
            gradient: few large ones are better there. None is all at once. Sums are then taken
            in another order, which is all that it changes.
    """

    label_smoothing: float = number(0.0, minimum=0, below=1)
    z_loss: float = number(0.0, minimum=0)
    chunk: int | None = number(None, minimum=1)
