"""How a model knows the order of tokens."""

import dataclasses
from typing import ClassVar, Literal

from jtransformer.spec.errors import SpecError
from jtransformer.spec.fields import Checked, check, number


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoPosition(Checked):
    """Order is known from the causal mask alone."""

    kind: ClassVar[str] = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sinusoidal(Checked):
    """Fixed sines and cosines, added to the embeddings (Vaswani et al. 2017).

    Attributes:
        layout: The paper's features, a sine beside each cosine ("interleaved") or all sines, then
            all cosines ("split": Marian); or tensor2tensor's, which have frequencies of their own
            ("concatenated").
    """

    kind: ClassVar[str] = "sinusoidal"
    layout: Literal["interleaved", "split", "concatenated"] = "interleaved"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learned(Checked):
    """One learned vector per position, added to the embeddings; none beyond `max_length`.

    Attributes:
        max_length: Positions that the table holds.
        first: Position of the first token; the table has as many rows more (RoBERTa: 2).
    """

    kind: ClassVar[str] = "learned"
    max_length: int = number(1024, minimum=1)
    first: int = number(0, minimum=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoScaling(Checked):
    """Positions as in training."""

    kind: ClassVar[str] = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearScaling(Checked):
    """Positions divided by a factor (Chen et al. 2023)."""

    kind: ClassVar[str] = "linear"
    factor: float = number(2.0, minimum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NTKScaling(Checked):
    """A larger base: the fastest plane keeps its speed (bloc97 2023)."""

    kind: ClassVar[str] = "ntk"
    factor: float = number(2.0, minimum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Llama3Scaling(Checked):
    """Slow planes divided, fast ones kept, a ramp between them (Llama 3.1)."""

    kind: ClassVar[str] = "llama3"
    factor: float = number(8.0, minimum=1)
    original_length: int = number(8192, minimum=1)
    low_frequency_factor: float = number(1.0, above=0)
    high_frequency_factor: float = number(4.0, above=0)

    def __post_init__(self):
        check(self)
        if not self.low_frequency_factor < self.high_frequency_factor:
            raise SpecError(
                "low_frequency_factor",
                "must be below high_frequency_factor, got "
                f"{self.low_frequency_factor} and {self.high_frequency_factor}.",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class YarnScaling(Checked):
    """Planes divided by how often they turn, and hotter attention (Peng et al. 2023)."""

    kind: ClassVar[str] = "yarn"
    factor: float = number(2.0, minimum=1)
    original_length: int = number(2048, minimum=1)


Scaling = NoScaling | LinearScaling | NTKScaling | Llama3Scaling | YarnScaling


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rope(Checked):
    """Queries and keys turned by their positions (Su et al. 2021).

    Attributes:
        theta: Base of the frequency ladder.
        window_theta: Base in the layers that have the window of attention, whose ladder is not
            stretched, as in ModernBERT and Gemma 3; None is the ladder of the other layers.
        pairing: Which two channels form a plane.
        rotary_fraction: Share of each head's channels that turns; the rest stays as it is.
        scaling: How the ladder is stretched beyond the length of training.
    """

    kind: ClassVar[str] = "rope"
    theta: float = number(10_000.0, above=1)
    window_theta: float | None = number(None, above=1)
    pairing: Literal["half", "interleaved"] = "half"
    rotary_fraction: float = number(1.0, above=0, maximum=1)
    scaling: Scaling = NoScaling()


@dataclasses.dataclass(frozen=True, kw_only=True)
class T5Bias(Checked):
    """One learned number per head and bucket of distances (Raffel et al. 2019).

    One table per stack, shared by its layers; none in cross-attention.
    """

    kind: ClassVar[str] = "t5_bias"
    buckets: int = number(32, minimum=2)
    max_distance: int = number(128, minimum=2)

    def __post_init__(self):
        check(self)
        if self.buckets % 2:
            raise SpecError("buckets", f"must be even, got {self.buckets}.")
        if self.max_distance <= self.buckets // 2:
            raise SpecError(
                "max_distance",
                f"must exceed buckets / 2, got max_distance={self.max_distance}, "
                f"buckets={self.buckets}.",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alibi(Checked):
    """Scores lowered in proportion to distance, a slope for each head (Press et al. 2021)."""

    kind: ClassVar[str] = "alibi"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelativeBias(Checked):
    """One learned number per head and distance, shared by the layers of a stack.

    Attributes:
        max_distance: Distances beyond it have the number of this one.
    """

    kind: ClassVar[str] = "relative_bias"
    max_distance: int = number(16, minimum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shaw(Checked):
    """One learned vector per distance, added to the keys (Shaw et al. 2018).

    Attributes:
        max_distance: Distances beyond it have the vector of this one.
        values: Whether the values have such vectors too.
    """

    kind: ClassVar[str] = "shaw"
    max_distance: int = number(16, minimum=1)
    values: bool = False


Position = NoPosition | Sinusoidal | Learned | Rope | T5Bias | RelativeBias | Alibi | Shaw
