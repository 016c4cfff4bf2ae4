"""Tasks whose best possible answer is known.

The answer follows from the source, and so does its length: the best accuracy is 1 and the best
loss 0 nats for every token of an answer and its end. What a model reaches without the skill that
is asked for stands in each task's docstring, for `s` symbols.

Symbols are the numbers 0 to s - 1, written in decimal with single spaces between them, so the
natural tokenizer is "words", which gives each symbol one id; bytes and the others work too.

Examples are numbered: a task says how many different sources of a size there are and which one
has a given number. So none is drawn twice, and a task that has too few says how many.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from jtransformer.data.sources import Example
from jtransformer.spec import SpecError, Synthetic


class Pair(NamedTuple):
    """A source and its answer, in symbols or other words."""

    source: Sequence[object]
    target: Sequence[object]


class Task(Protocol):
    """Numbered examples of one size."""

    def count(self, n: int, s: int) -> int:
        """Returns how many different sources of size n there are for s symbols."""
        ...

    def example(self, index: int, n: int, s: int) -> Pair:
        """Returns the example of a number below `count(n, s)`."""
        ...


def read_synthetic(source: Synthetic) -> list[Example]:
    """Makes the examples of a task, each size as often as any other while it has enough.

    Raises:
        SpecError: If there are fewer different ones than asked for, or a setting does not fit.
    """
    task, s = TASKS[source.task], source.symbols
    _check(source)
    counts = {n: task.count(n, s) for n in range(source.smallest, source.largest + 1)}
    exist = sum(counts.values())
    if source.examples > exist:
        raise SpecError(
            "data.source.synthetic.examples",
            f"= {source.examples}, but there are only {exist} different examples of task "
            f"{source.task!r} with symbols={s}, smallest={source.smallest}, "
            f"largest={source.largest}; use at most {exist}.",
        )
    pairs: list[tuple[str, str]] = []
    for n, share in _shares(counts, source.examples).items():
        for index in _draw(counts[n], share, f"{source.task_seed} {source.task} {s} {n}"):
            pair = task.example(index, n, s)
            pairs.append((" ".join(map(str, pair.source)), " ".join(map(str, pair.target))))
    # Sizes are mixed, so that the first examples are like the last.
    pairs.sort(key=lambda pair: _number(f"{source.task_seed} order {pair[0]}"))
    return [Example(i, *pair) for i, pair in enumerate(pairs, start=1)]


def _check(source: Synthetic) -> None:
    task, s, n = source.task, source.symbols, source.largest
    path = "data.source.synthetic"
    if task == "parity" and s != 2:
        raise SpecError(f"{path}.symbols", f"= {s}, but task 'parity' is about bits; use 2.")
    if task == "addition" and (source.smallest, n) != (2, 2):
        raise SpecError(
            f"{path}.smallest",
            f"= {source.smallest} and largest = {n}, but task 'addition' has two numbers; use 2 "
            "for both.",
        )
    if task == "induction" and source.smallest < 3:
        raise SpecError(
            f"{path}.smallest",
            f"= {source.smallest}, but task 'induction' needs a token, what followed it, and the "
            "token again; use at least 3.",
        )
    if task == "recall" and n > s // 2:
        raise SpecError(
            f"{path}.largest",
            f"= {n} pairs need as many keys, but half of symbols={s} are keys ({s // 2}); use "
            f"symbols={2 * n} or fewer pairs.",
        )


def _shares(counts: dict[int, int], examples: int) -> dict[int, int]:
    """Deals examples to sizes evenly; what a size does not have goes to the others."""
    shares, left = {}, examples
    for place, n in enumerate(sorted(counts, key=lambda n: counts[n])):
        shares[n] = min(counts[n], left // (len(counts) - place))
        left -= shares[n]
    return dict(sorted(shares.items()))


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def _draw(population: int, k: int, seed: str) -> list[int]:
    """Draws k different numbers below `population`; the same on every machine and version."""
    if 2 * k > population:
        everything = sorted(range(population), key=lambda i: _number(f"{seed} order {i}"))
        return everything[:k]
    chosen: dict[int, None] = {}
    attempt = 0
    while len(chosen) < k:
        # Wide enough that the remainder favours no number, however many there are.
        words = [
            _number(f"{seed} {attempt} {i}") for i in range(population.bit_length() // 256 + 2)
        ]
        chosen[sum(word << 256 * i for i, word in enumerate(words)) % population] = None
        attempt += 1
    return list(chosen)


def _digits(index: int, n: int, s: int) -> list[int]:
    """Returns the n digits of a number to the base s, the last one first."""
    digits: list[int] = []
    for _ in range(n):
        index, digit = divmod(index, s)
        digits.append(digit)
    return digits


def _arrangement(index: int, n: int, items: int) -> list[int]:
    """Returns the arrangement of that number of n out of `items` things."""
    rest, chosen = list(range(items)), []
    for _ in range(n):
        index, place = divmod(index, len(rest))
        chosen.append(rest.pop(place))
    return chosen


class _Sequences:
    """Any n symbols are a source."""

    def count(self, n: int, s: int) -> int:
        return s**n


class Copy(_Sequences):
    """The source again. A model that cannot look back guesses: ln s nats a symbol."""

    def example(self, index: int, n: int, s: int) -> Pair:
        symbols = _digits(index, n, s)
        return Pair(symbols, symbols)


class Reverse(_Sequences):
    """The source backwards. A model that cannot look back guesses: ln s nats a symbol."""

    def example(self, index: int, n: int, s: int) -> Pair:
        symbols = _digits(index, n, s)
        return Pair(symbols, symbols[::-1])


class Sort(_Sequences):
    """The source in order of its numbers; what lies between neighbours can be guessed."""

    def example(self, index: int, n: int, s: int) -> Pair:
        symbols = _digits(index, n, s)
        return Pair(symbols, sorted(symbols))


class Parity(_Sequences):
    """The parity of the bits so far, at every bit. A guess is right half of the time: ln 2."""

    def example(self, index: int, n: int, s: int) -> Pair:
        bits = _digits(index, n, s)
        parities = [sum(bits[: i + 1]) % 2 for i in range(n)]
        return Pair(bits, parities)


class Addition(_Sequences):
    """The sum of two numbers modulo s (Power et al. 2022, https://arxiv.org/abs/2201.02177).

    A guess is right once in s times: ln s. There are only s² examples, and the question is
    whether those that were not seen are answered.
    """

    def example(self, index: int, n: int, s: int) -> Pair:
        a, b = divmod(index, s)
        return Pair([a, b], [(a + b) % s])


class Recall:
    """The values of keys (Arora et al. 2023, https://arxiv.org/abs/2312.04927).

    The source is n pairs of a key and its value, a question mark, and the n keys in another
    order; the answer is each of these keys again, with its value behind it. So a key stands right
    before its value both times, as in the paper, and what is asked for follows from the source.
    Keys are the lower half of the symbols, values the rest. A model that knows which values were
    shown, and not where, is right about once in n times.
    """

    def count(self, n: int, s: int) -> int:
        return math.perm(s // 2, n) * (s - s // 2) ** n * math.factorial(n)

    def example(self, index: int, n: int, s: int) -> Pair:
        half = s // 2
        index, order = divmod(index, math.factorial(n))
        index, number = divmod(index, (s - half) ** n)
        keys = _arrangement(index, n, half)
        values = [half + digit for digit in _digits(number, n, s - half)]
        shown = [symbol for pair in zip(keys, values, strict=True) for symbol in pair]
        asked = _arrangement(order, n, n)
        answers = [symbol for i in asked for symbol in (keys[i], values[i])]
        return Pair([*shown, "?", *(keys[i] for i in asked)], answers)


class Induction:
    """What followed the last symbol earlier (Olsson et al. 2022, https://arxiv.org/abs/2209.11895).

    The source is n symbols of which the last occurs once before, not right before itself; the
    answer is the symbol that came after. A guess among the others is right once in s - 1 times.
    """

    def count(self, n: int, s: int) -> int:
        return s * (n - 2) * (s - 1) ** (n - 2)

    def example(self, index: int, n: int, s: int) -> Pair:
        index, symbol = divmod(index, s)
        index, place = divmod(index, n - 2)
        others = _digits(index, n - 2, s - 1)
        # Every symbol but the one that is asked for.
        shown = [other + (other >= symbol) for other in others]
        shown.insert(place, symbol)
        return Pair([*shown, symbol], [shown[place + 1]])


TASKS: dict[str, Task] = {
    "copy": Copy(),
    "reverse": Reverse(),
    "sort": Sort(),
    "recall": Recall(),
    "induction": Induction(),
    "parity": Parity(),
    "addition": Addition(),
}
