"""By how much two right implementations may differ at a place.

Rounding errors are taken as independent, so that their squares add up (Higham and Mary 2019, sec.
2, https://doi.org/10.1137/18M1226312). With u the unit roundoff of a type, the relative error of a
place is

    SAFETY * max(1, s / SHARP) * sqrt(u_stored^2 m + u_computed^2 k + u_added^2 n / 6)

* m: matrices passed. Rounding each entry of a matrix once makes a product wrong by u of its size,
  whatever it adds up. Counted only where the two sides are known to be stored in different types;
  which these are is read from the numbers themselves (`jtransformer.diff.traces.stored_type`).
* k: other roundings passed: of each product, norm, activation and sum, in the type that is computed
  in. The coarser one of the two sides counts.
* n: products passed that were added up. A sum of n terms of one size, formed one after the other,
  is wrong by u sqrt(n / 6) of its size. Types of 16 bits are added up in float32.
* s: the largest score that a query reads, from the first weights on. A score of size s that is
  wrong by u of it makes a weight wrong by u s of its own. Scores themselves are products of two
  values with the errors of one stream, which count twice.

m, k and n grow with the depth of the place, so that the error grows with its square root. SAFETY
turns the typical error into a bound of the largest one among many thousands; tests hold it against
measured errors from below and from above. What is measured at an entry is the difference, relative
to the size of the entry plus the root mean square of all entries.
"""

import math
from typing import NamedTuple

import numpy as np

from jtransformer.diff.places import ATTENTION, FFN, is_before, place_of
from jtransformer.diff.traces import ROUNDOFF, Trace, coarsest

SAFETY = 8.0
SHARP = 2.0
"""Scores up to this size are allowed for by SAFETY."""


FARTHEST = 1e4
"""A score beyond it is no score: it was masked."""


class Widths(NamedTuple):
    """Over how many products the sums of a model go.

    Attributes:
        stream: Width of the stream [D].
        head: Width of a head [H].
        joined: Width of all heads [N H].
        hidden: Hidden width of the feed-forward network [F].
        keys: Keys that a query reads [S].
    """

    stream: int
    head: int
    joined: int
    hidden: int
    keys: int


class Passed(NamedTuple):
    """What lies between the parameters and a place: m, k and n of the module's docstring."""

    matrices: int = 0
    roundings: int = 0
    products: int = 0

    def __add__(self, other: tuple) -> "Passed":
        return Passed(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: int) -> "Passed":
        return Passed(*(factor * value for value in self))


def _attention(widths: Widths) -> dict[str, Passed]:
    """Returns what each place of a sublayer of attention adds to the one before it."""
    nothing = Passed()
    return {
        "input": Passed(1, 4, 0),
        # Queries, keys and values come from one input, side by side.
        "query": Passed(1, 1, widths.stream),
        "key": nothing,
        "value": nothing,
        "query_normed": Passed(1, 4, 0),
        "key_normed": nothing,
        "query_turned": Passed(0, 4, 0),
        "key_turned": nothing,
        "scores": Passed(1, 2, widths.head),
        "weights": Passed(0, 4, widths.keys),
        "mixed": Passed(1, 1, widths.keys),
        "output": Passed(1, 1, widths.joined),
        "stream": Passed(0, 2, 0),
    }


def _ffn(widths: Widths) -> dict[str, Passed]:
    nothing = Passed()
    return {
        "input": Passed(1, 4, 0),
        "gate": Passed(1, 1, widths.stream),
        "up": nothing,
        "hidden": nothing,
        "activation": Passed(0, 4, 0),
        "output": Passed(1, 2, widths.hidden),
        "stream": Passed(0, 2, 0),
    }


def passed(name: str, widths: Widths, layers: dict[str, int]) -> Passed:
    """Returns what lies between the parameters and a place.

    Args:
        name: The place. One that is not known counts as the end.
        widths: Of the model.
        layers: How many layers each stack has.
    """
    place = place_of(name)
    steps = _steps(widths, cross=place.stack == "decoder")
    whole = sum(steps.values(), start=Passed())
    before = Passed(1, 2, 0)
    if place.stack == "decoder" or (not place.stack and "decoder" in layers):
        # It reads an encoder, whose errors it has too.
        alone = sum(_steps(widths, cross=False).values(), start=Passed())
        before += alone.times(layers.get("encoder", 0)) + (1, 4, 0)
    if place.local == "embedded":
        return Passed(1, 2, 0)
    if place.layer is None or place.local not in steps:
        depth = max(layers.values(), default=1)
        end = Passed(1, 4, 0) if place.local == "final_norm" else Passed(2, 6, widths.stream)
        return before + whole.times(depth) + end
    names = [*steps]
    inside = (steps[local] for local in names[: names.index(place.local) + 1])
    return before + whole.times(place.layer) + sum(inside, start=Passed())


def _steps(widths: Widths, *, cross: bool) -> dict[str, Passed]:
    kinds = ("attention", "cross_attention") if cross else ("attention",)
    steps = {f"{kind}/{name}": _attention(widths)[name] for kind in kinds for name in ATTENTION}
    steps |= {f"ffn/{name}": _ffn(widths)[name] for name in FFN}
    return steps | {"stream": Passed()}


class Tolerance(NamedTuple):
    """The tolerance of a pair of traces, by place.

    Attributes:
        stored: Unit roundoff of the coarser stored type; 0 where both are stored in one.
        computed: Unit roundoff of the coarser type that is computed in.
        added: Unit roundoff of the type in which products are added up.
        widths: Of the model.
        layers: How many layers each stack has.
        score: The largest score; 0 where none is known.
    """

    stored: float
    computed: float
    added: float
    widths: Widths
    layers: dict[str, int]
    score: float = 0.0

    @property
    def _sharp(self) -> float:
        return max(1.0, self.score / SHARP)

    def at(self, name: str) -> float:
        """Returns the largest relative difference that rounding explains at a place."""
        m, k, n = passed(name, self.widths, self.layers)
        square = self.stored**2 * m + self.computed**2 * k + self.added**2 * n / 6
        sharp = 1.0 if is_before(name, self._first_weights(name)) else self._sharp
        twice = 2.0 if name.endswith("/scores") else 1.0
        return SAFETY * sharp * twice * math.sqrt(square)

    def _first_weights(self, name: str) -> str:
        stack = place_of(name).stack
        return f"{stack}/layer_0/attention/weights" if stack else "layer_0/attention/weights"

    def backward(self, name: str) -> float:
        """Returns the same for a gradient, which has gone to the loss and back.

        On the way back it meets the errors of the values on the way there, and its own.
        """
        m, k, n = passed("loss", self.widths, self.layers)
        whole = Passed(m, k, n).times(3)
        square = self.stored**2 * whole[0] + self.computed**2 * whole[1]
        return 2 * SAFETY * self._sharp * math.sqrt(square + self.added**2 * whole[2] / 6)


def tolerance(a: Trace, b: Trace) -> Tolerance:
    """Returns by how much two traces may differ.

    Args:
        a: One side; the widths are read from the shapes of its values.
        b: The other side.
    """
    differ = bool(a.stored and b.stored) and a.stored != b.stored
    computed = coarsest([a.computed, b.computed])
    # Sums of 16-bit numbers are kept in float32 by XLA, PyTorch and the devices' own units.
    added = min(ROUNDOFF[computed], ROUNDOFF["float32"])
    return Tolerance(
        stored=ROUNDOFF[coarsest([a.stored, b.stored])] if differ else 0.0,
        computed=ROUNDOFF[computed],
        added=max(added, ROUNDOFF["float64"]),
        widths=_widths(a.values),
        layers=_layers(a.values),
        score=min(filter(None, map(_largest_score, (a.values, b.values))), default=0.0),
    )


def _largest_score(values: dict) -> float:
    """Returns the largest score that a query reads."""
    largest = 0.0
    for name, scores in values.items():
        weights = values.get(name.removesuffix("scores") + "weights")
        if name.endswith("/scores") and weights is not None and weights.shape == scores.shape:
            read = np.abs(scores[(weights != 0) & np.isfinite(scores)].astype(np.float64))
            largest = max(largest, float(read[read < FARTHEST].max(initial=0.0)))
    return largest


def _layers(values: dict) -> dict[str, int]:
    layers: dict[str, int] = {}
    for name in values:
        place = place_of(name)
        if place.layer is not None:
            layers[place.stack] = max(layers.get(place.stack, 0), place.layer + 1)
    return layers or {"": 1}


def _widths(values: dict) -> Widths:
    """Reads widths from the shapes of values; where one is missing, the largest axis is taken."""
    found: dict[str, int] = {}
    largest = 1
    for name, value in values.items():
        local = place_of(name).local.rpartition("/")[2]
        if value.ndim == 0:
            continue
        largest = max(largest, value.shape[-1] if local != "logits" else 1)
        if local in ("embedded", "stream", "input", "output", "final_norm"):
            found["stream"] = value.shape[-1]
        elif local == "query" and value.ndim == 4:
            found |= {"head": value.shape[-1], "joined": value.shape[-1] * value.shape[-2]}
        elif local in ("activation", "hidden", "gate"):
            found["hidden"] = value.shape[-1]
        elif local == "weights":
            found["keys"] = value.shape[-1]
    stream = found.get("stream", largest)
    return Widths(
        stream=stream,
        head=found.get("head", stream),
        joined=found.get("joined", stream),
        hidden=found.get("hidden", 4 * stream),
        keys=found.get("keys", largest),
    )
