"""Kinds of self-attention; cross-attention is always of the first kind."""

import dataclasses
import re
from typing import ClassVar, Literal

from jtransformer.spec.errors import SpecError
from jtransformer.spec.fields import Checked, check, number

FULL, WINDOW = "full", "window"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DotProduct(Checked):
    """Softmax of scaled dot products (Vaswani et al. 2017).

    Attributes:
        scale: Factor of the scores; None is (head width)^-0.5.
        soft_cap: Bound of the scores, by a tanh; None is no bound.
        query_key_norm: RMS norm of queries and keys before positions: over each head (Qwen3), or
            over the whole projected width (OLMo-2).
        window: Positions that a query sees, its own among them; None is all.
        window_pattern: Which layers have the window: a word for each, "window" or "full",
            joined by commas and repeated over the layers.
        heads_off: Heads that read zeros, as "layer.head" counted from 0 and joined by commas,
            such as "0.1,3.2" (Michel et al. 2019); empty is none.
    """

    kind: ClassVar[str] = "dot_product"
    scale: float | None = number(None, above=0)
    soft_cap: float | None = number(None, above=0)
    query_key_norm: Literal["none", "head", "width"] = "none"
    window: int | None = number(None, minimum=1)
    window_pattern: str = WINDOW
    heads_off: str = ""

    def __post_init__(self):
        check(self)
        self._check_pattern()
        for word in self.heads_off.split(",") if self.heads_off else ():
            if not re.fullmatch(r"[0-9]{1,9}\.[0-9]{1,9}", word):
                raise SpecError(
                    "heads_off",
                    f"= {self.heads_off!r} holds {word!r}; write layer.head, such as '0.1,3.2'.",
                )

    def _check_pattern(self) -> None:
        words = self.window_pattern.split(",")
        wrong = [word for word in words if word not in (FULL, WINDOW)]
        if wrong:
            raise SpecError(
                "window_pattern",
                f"= {self.window_pattern!r} holds {wrong[0]!r}; join the words "
                f"{WINDOW} and {FULL} by commas, without spaces.",
            )
        if WINDOW not in words:
            raise SpecError(
                "window_pattern",
                f"= {self.window_pattern!r} gives no layer the window; name one, or leave "
                "window and window_pattern at their defaults.",
            )
        if self.window is None and self.window_pattern != WINDOW:
            raise SpecError(
                "window_pattern",
                f"= {self.window_pattern!r} would do nothing without a window; set window.",
            )

    def heads_off_of(self, layer: int) -> tuple[int, ...]:
        """Returns the heads of a layer that are switched off."""
        pairs = (word.split(".") for word in self.heads_off.split(",") if word)
        return tuple(int(head) for index, head in pairs if int(index) == layer)

    def window_of(self, layer: int) -> int | None:
        """Returns the window of a layer, counted from 0."""
        words = self.window_pattern.split(",")
        return self.window if words[layer % len(words)] == WINDOW else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearAttention(Checked):
    """Products of features elu(x) + 1 in the place of a softmax (Katharopoulos et al. 2020)."""

    kind: ClassVar[str] = "linear"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentAttention(Checked):
    """Keys and values from one low-rank latent per token (DeepSeek-AI 2024, V2).

    The latent passes through an RMS norm.

    Attributes:
        latent_width: Width of the latent.
        rotary_width: Channels that each query has more, and that one key shared by all heads
            has, which rotary positions turn; the others are not turned. None without them.
        value_width: Width of a value head; None is the head width.
    """

    kind: ClassVar[str] = "latent"
    latent_width: int = number(32, minimum=1)
    rotary_width: int | None = number(None, minimum=2)
    value_width: int | None = number(None, minimum=1)


Attention = DotProduct | LinearAttention | LatentAttention
