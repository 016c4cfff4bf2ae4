"""What decides the next token, as values: sampling and beam search.

Sources: length penalties, Wu et al. 2016, sec. 7, https://arxiv.org/abs/1609.08144; for the
options of sampling see `jtransformer.functional.sample`.
"""

import dataclasses
from typing import Literal

from jtransformer.spec import SpecError
from jtransformer.spec.fields import Checked, check, number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling(Checked):
    """Every token is drawn from what the model says of it, cut down by the options in turn.

    Attributes:
        temperature: Divides the logits; 0 takes the most probable token, the first of equals.
        top_k: Keeps so many of the most probable tokens; None keeps all.
        top_p: Keeps the smallest set of most probable tokens that has this probability.
        min_p: Keeps tokens at least this many times as probable as the most probable one.
    """

    temperature: float = number(1.0, minimum=0)
    top_k: int | None = number(None, minimum=1)
    top_p: float | None = number(None, minimum=0, maximum=1)
    min_p: float | None = number(None, minimum=0, maximum=1)

    def __post_init__(self):
        check(self)
        if self.temperature:
            return
        for name in ("top_k", "top_p", "min_p"):
            value = getattr(self, name)
            if value is not None:
                raise SpecError(
                    name,
                    f"= {value!r} would do nothing at temperature 0, which takes the most "
                    "probable token; leave it out or raise the temperature.",
                )


GREEDY = Sampling(temperature=0.0)
"""The most probable token at every step."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearch(Checked):
    """The most probable continuations that a search of bounded width finds.

    Attributes:
        width: Continuations of a row that are followed side by side [W].
        best: How many of the best are returned, at most `width`.
        alpha: Strength of the length penalty; 0 compares sums of log-probabilities.
        form: Which penalty: "power" divides the sum by length^alpha (alpha 1 is the mean),
            "gnmt" by ((5 + length) / 6)^alpha.
    """

    width: int = number(4, minimum=1)
    best: int = number(1, minimum=1)
    alpha: float = number(0.0)
    form: Literal["power", "gnmt"] = "power"

    def __post_init__(self):
        check(self)
        if self.best > self.width:
            raise SpecError(
                "best",
                f"must not exceed width, got best={self.best}, width={self.width}; "
                "search with a greater width.",
            )
        if self.alpha == 0 and self.form != "power":
            raise SpecError(
                "form", f"= {self.form!r} would do nothing with alpha 0; set alpha or leave it out."
            )
