"""The places of a model at which two implementations are compared, in the order of computation.

A place has the name of an intermediate of `jtransformer.modules.intermediates`, such as `embedded`
or `decoder/layer_0/attention/scores`, or is `logits` or `loss`. The order is that in which a fault
is looked for: what comes first cannot be wrong because of what comes later.
"""

import fnmatch
from collections.abc import Iterable
from typing import NamedTuple

ATTENTION = (
    "input",
    "query",
    "key",
    "value",
    "query_normed",
    "key_normed",
    "query_turned",
    "key_turned",
    "scores",
    "weights",
    "mixed",
    "output",
    "stream",
)
FFN = ("input", "gate", "up", "hidden", "activation", "output", "stream")
LOCALS = (
    *(f"attention/{name}" for name in ATTENTION),
    *(f"cross_attention/{name}" for name in ATTENTION),
    *(f"ffn/{name}" for name in FFN),
    "stream",
)
"""Places inside one layer."""
STACKS = {"encoder": 0, "": 1, "decoder": 1}
ENDS = ("final_norm", "logits", "loss")
LAYER = "layer_"


class Place(NamedTuple):
    """A name, taken apart.

    Attributes:
        stack: "encoder", "decoder", or empty where there is one stack.
        layer: Its layer; None outside of the layers.
        local: What is left of the name.
    """

    stack: str
    layer: int | None
    local: str


def place_of(name: str) -> Place:
    """Takes a name apart; one that is not known is all local."""
    stack, rest = "", name
    head, slash, tail = name.partition("/")
    if slash and head in STACKS:
        stack, rest = head, tail
    head, slash, tail = rest.partition("/")
    if slash and head.startswith(LAYER) and head.removeprefix(LAYER).isdecimal():
        return Place(stack, int(head.removeprefix(LAYER)), tail)
    return Place(stack, None, rest)


def rank(name: str) -> tuple[int, ...] | None:
    """Returns a key that sorts names in the order of computation; None for an unknown name."""
    place = place_of(name)
    stack = STACKS[place.stack]
    if place.layer is not None:
        return (stack, 1, place.layer, LOCALS.index(place.local)) if place.local in LOCALS else None
    if place.local == "embedded":
        return (stack, 0)
    if place.local in ENDS:
        return (stack, 2, ENDS.index(place.local))
    return None


def ordered(names: Iterable[str]) -> list[str]:
    """Sorts names in the order of computation; an unknown one stays behind what precedes it."""
    keyed, last = [], ()
    for index, name in enumerate(names):
        last = rank(name) or last
        keyed.append((last, index if rank(name) is None else -1, name))
    return [name for *_, name in sorted(keyed)]


def is_before(first: str, second: str) -> bool:
    """Whether a place comes before another; False where one of them is unknown."""
    one, other = rank(first), rank(second)
    return one is not None and other is not None and one < other


def matches(name: str, pattern: str) -> bool:
    """Whether what a name says inside its layer or stack is matched by a pattern of `fnmatch`."""
    return fnmatch.fnmatchcase(place_of(name).local, pattern)
