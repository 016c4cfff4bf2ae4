"""Which dropout is where: its rate and its key."""

from typing import Any, Literal, NamedTuple

from jaxtyping import Array, Float

from jtransformer.modules.initial import dropout_key
from jtransformer.spec import ModelSpec

Place = Literal["embedding", "attention", "ffn", "residual"]


class DropoutRates(NamedTuple):
    """The numbers of `jtransformer.spec.Dropout`, given when a program runs."""

    embedding: Float[Array, ""]
    attention: Float[Array, ""]
    ffn: Float[Array, ""]
    residual: Float[Array, ""]


class Dropping(NamedTuple):
    """What a call drops.

    Attributes:
        key: The key of all its dropout; or one for each row, and then a row loses the same
            whatever rows are beside it.
        rates: Rates in the place of those of the spec; None is those.
    """

    key: Array
    rates: DropoutRates | None = None


class Drop(NamedTuple):
    """The arguments of one dropout."""

    rate: Any
    key: Array | None


NO_DROP = Drop(0.0, None)


def drop_at(
    spec: ModelSpec,
    dropping: Dropping | None,
    place: Place,
    names: tuple[str, ...],
    layer: Array | None = None,
) -> Drop:
    """Returns rate and key of one dropout.

    Args:
        spec: The model; where its rate is 0, nothing is dropped whatever rates are given.
        dropping: What the call drops; None is nothing.
        place: Which of the rates.
        names: Where it is, without the index of the layer.
        layer: Index of the layer, which may be known only when the program runs.
    """
    rate: float = getattr(spec.dropout, place)
    if dropping is None or rate == 0:
        return NO_DROP
    key = dropout_key(dropping.key, rate, names, layer)
    return Drop(rate if dropping.rates is None else getattr(dropping.rates, place), key)
