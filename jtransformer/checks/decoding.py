"""Decoding: a cache, and prefixes read one by one, give the logits of one full pass."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from jtransformer.checks.law import Law
from jtransformer.checks.report import Finding, NotApplicable
from jtransformer.checks.subject import Decoding, Subject, on_host
from jtransformer.checks.tolerance import distance

GROUP = "decoding"
UNIT = "of the logits' size"


def cached(subject: Subject) -> Finding:
    """Reads prompts in chunks, cut at every place, and one token at a time."""
    assert subject.decoding is not None
    tokens = subject.tokens(21)
    full, limit = subject.logits(tokens), subject.rounding.limit()
    figures, where = [0.0], [""]
    for name, decoding in subject.decoding.items():
        read = _ragged if decoding.ragged else _even
        for cut, logits in read(decoding, tokens, max(1, subject.prefix)):
            figures.append(distance(logits, full))
            where.append(f"farthest: {name}, {cut}")
    worst = int(np.argmax(figures))  # The first that is no number, if one is.
    return Finding(figures[worst], UNIT, limit, detail=where[worst])


def _even(
    decoding: Decoding, tokens: np.ndarray, shortest: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Cuts all rows at one place, at each in turn; then reads one token at a time."""
    rows, T = tokens.shape
    first = decoding.first or decoding.step
    cuts = [("one by one", [shortest, *range(shortest + 1, T + 1)])]
    if decoding.most is None:
        cuts += [(f"cut at {cut}", [cut, T]) for cut in range(shortest, T)]
    elif decoding.most > 1:
        cuts.append((f"{decoding.most} at a time", [*range(decoding.most, T, decoding.most), T]))
    for name, ends in cuts:
        cache, found, begin = decoding.start(rows, T), [], 0
        for end in ends:
            step = decoding.step if begin else first
            logits, cache = step(cache, jnp.asarray(tokens[:, begin:end]))
            found.append(on_host(logits))
            begin = end
        yield name, np.concatenate(found, axis=1)


def _ragged(
    decoding: Decoding, tokens: np.ndarray, shortest: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Cuts every row at a place of its own, so that prompts of a batch differ in length."""
    rows, T = tokens.shape
    first, slots = decoding.first or decoding.step, np.arange(T)
    places = T - shortest
    for begin in range(places):
        cuts = shortest + (begin + np.arange(rows)) % places
        found, cache = np.zeros(0), decoding.start(rows, T)
        for step, real in ((first, slots < cuts[:, None]), (decoding.step, slots >= cuts[:, None])):
            logits, cache = step(cache, jnp.asarray(tokens), jnp.asarray(real))
            logits = on_host(logits)
            found = np.where(real[:, :, None], logits, found) if found.size else logits
        yield f"rows cut at {cuts.tolist()}", found
    found, cache = [], decoding.start(rows, T)
    for t in [None, *range(shortest, T)]:
        step = first if t is None else decoding.step
        # The prompt is as wide as before, so that no program is made for it.
        part = tokens if t is None else tokens[:, t : t + 1]
        real = np.broadcast_to(slots < shortest if t is None else [True], part.shape)
        logits, cache = step(cache, jnp.asarray(part), jnp.asarray(real))
        found.append(on_host(logits)[:, : shortest if t is None else 1])
    yield "one by one", np.concatenate(found, axis=1)


def teacher_forcing(subject: Subject) -> Finding | NotApplicable:
    """Compares one pass over a text with a pass over each of its prefixes."""
    if not subject.causal:
        return NotApplicable("what sees both ways reads a text at once")
    tokens, T = subject.tokens(22), subject.length
    full, figures = subject.logits(tokens), [0.0]
    for t in range(max(1, subject.prefix), T):
        last = _after(subject, tokens, t)
        figures.append(distance(last, full[:, t - 1]))
    worst = int(np.argmax(figures))
    detail = f"farthest: after {worst + max(1, subject.prefix) - 1} tokens" if worst else ""
    return Finding(figures[worst], UNIT, subject.rounding.limit(), detail=detail)


def _after(subject: Subject, tokens: np.ndarray, t: int) -> Any:
    """Returns the logits behind the first t tokens, which are all that is given."""
    if subject.with_valid is None:
        return subject.logits(tokens[:, :t])[:, -1]
    real = np.broadcast_to(np.arange(subject.length) < t, tokens.shape)
    return on_host(subject.with_valid(jnp.asarray(tokens), jnp.asarray(real)))[:, t - 1]


LAWS = (
    Law(GROUP, "cached decoding", ("decoding",), cached),
    Law(GROUP, "teacher forcing", (), teacher_forcing),
)
