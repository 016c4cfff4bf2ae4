"""Isolation: what a token must not feel at all, to the bit."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jtransformer.checks.law import Law
from jtransformer.checks.reach import compared, moved_by
from jtransformer.checks.report import Finding, NotApplicable
from jtransformer.checks.subject import Call, Subject, on_host, other_tokens
from jtransformer.checks.tolerance import distance

GROUP = "isolation"
UNIT = "logits of real tokens that moved"


def paddings(rows: int, length: int) -> dict[str, np.ndarray]:
    """Returns which tokens are real: padding behind them, before them, and between them."""
    place, half = np.arange(length), (length + 1) // 2
    kinds = {
        "behind": place < half,
        "before": place >= length - half,
        "between": (place < half // 2) | (place >= length - half // 2 - 1),
    }
    return {name: np.broadcast_to(real, (rows, length)) for name, real in kinds.items()}


def padding(subject: Subject) -> Finding:
    """Changes what stands in padding."""
    call = subject.with_valid
    assert call is not None
    tokens = subject.tokens(11)
    return _hidden(call, tokens, subject.vocabulary, subject.prefix)


def source_padding(subject: Subject) -> Finding | NotApplicable:
    """Changes what stands in the padding of the source."""
    source = subject.source
    assert source is not None
    if source.with_valid is None:
        return NotApplicable("source.with_valid was not given")
    shape = (subject.rows, source.length)
    tokens = subject.generator(12).integers(source.vocabulary, size=shape).astype(np.int32)
    worst = Finding(0.0, UNIT, 0.0)
    for name, real in paddings(*shape).items():
        changed = np.where(real, tokens, other_tokens(tokens, ..., source.vocabulary))
        before, after = (
            on_host(source.with_valid(jnp.asarray(x), jnp.asarray(real))) for x in (tokens, changed)
        )
        count = float((after != before).sum())
        if count > worst.figure:
            worst = Finding(count, UNIT, 0.0, detail=f"padding {name} the real tokens")
    return worst


def _hidden(call: Call, tokens: np.ndarray, vocabulary: int, prefix: int) -> Finding:
    worst = Finding(0.0, UNIT, 0.0)
    for name, real in paddings(*tokens.shape).items():
        if prefix and name != "behind":
            continue  # A prefix is counted from the start of a row.
        changed = np.where(real, tokens, other_tokens(tokens, ..., vocabulary))
        before, after = (
            on_host(call(jnp.asarray(x), jnp.asarray(real))) for x in (tokens, changed)
        )
        count = float((after != before)[real].sum())
        if count > worst.figure:
            worst = Finding(count, UNIT, 0.0, detail=f"padding {name} the real tokens")
    return worst


def padding_is_nothing(subject: Subject) -> Finding:
    """Compares padded rows with rows that end where their tokens do."""
    assert subject.with_valid is not None
    tokens, T = subject.tokens(13), subject.length
    half = max((T + 1) // 2, subject.prefix)
    real = np.broadcast_to(np.arange(T) < half, tokens.shape)
    padded = on_host(subject.with_valid(jnp.asarray(tokens), jnp.asarray(real)))[:, :half]
    figure = distance(padded, subject.logits(tokens[:, :half]))
    return Finding(figure, "of the logits' size", subject.rounding.limit())


def documents(subject: Subject) -> Finding:
    """Changes tokens of rows that hold two documents."""
    call, T = subject.with_segments, subject.length
    assert call is not None
    segments = np.where(np.arange(T) < (T + 1) // 2, 1, 2).astype(np.int32)
    expected = subject.reach & (segments[:, None] == segments[None])
    given = jnp.asarray(np.broadcast_to(segments, (subject.rows, T)))

    def packed(tokens: Any) -> Any:
        return call(tokens, given)

    moved = moved_by(packed, subject.tokens(14), subject.vocabulary, expected)
    return compared(moved, expected)


def rows_apart(subject: Subject) -> Finding:
    """Changes all other rows of the batch."""
    tokens = subject.tokens(15)
    changed = other_tokens(tokens, slice(1, None), subject.vocabulary)
    before, after = subject.logits(tokens)[0], subject.logits(changed)[0]
    worst = float(np.abs(after - before).max())
    return Finding(worst, "largest change of a row's logits by other rows", 0.0)


def row_alone(subject: Subject) -> Finding:
    """Compares a row of a batch with the row alone."""
    tokens = subject.tokens(15)
    figure = distance(subject.logits(tokens[:1]), subject.logits(tokens)[:1])
    return Finding(figure, "of the logits' size", subject.rounding.limit())


LAWS = (
    Law(GROUP, "padding is invisible", ("with_valid",), padding),
    Law(GROUP, "padding adds nothing", ("with_valid",), padding_is_nothing),
    Law(GROUP, "padding of the source is invisible", ("source",), source_padding),
    Law(GROUP, "documents of a row", ("with_segments",), documents),
    Law(GROUP, "other rows of the batch", (), rows_apart),
    Law(GROUP, "a row alone", (), row_alone),
)
