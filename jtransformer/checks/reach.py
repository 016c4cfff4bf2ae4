"""Reachability: which input each output depends on, by changing it and by derivatives.

An output must depend on an input exactly where the masks of the layers, one behind the other, let
it. What is forbidden is judged to the bit. This is flow of information, not causal identification.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jtransformer.checks.compiling import quickly
from jtransformer.checks.law import Law
from jtransformer.checks.report import Finding, NotApplicable
from jtransformer.checks.subject import Call, Source, Subject, on_host, other_tokens

GROUP = "reach"
UNIT = "wrong pairs of positions"
MOST = 64
"""Positions that are changed, one by one, at most; of longer rows these are spread over it."""
DRAWS = 3
"""Other tokens that are tried where a change is not felt."""


def moved_by(call: Call, tokens: np.ndarray, vocabulary: int, expected: np.ndarray) -> np.ndarray:
    """Changes tokens one by one and says which outputs move.

    Args:
        call: `tokens -> logits`.
        tokens: Tokens `B S`.
        vocabulary: Number of their ids.
        expected: Which should move, `T S`; where one does not, other changes are tried.

    Returns:
        True at (i, j) where the output at i moved with token j, in any row; `T S`. Columns that
        were not tried are as expected.
    """
    before = on_host(call(jnp.asarray(tokens)))
    moved = np.array(expected)
    for j in tried(tokens.shape[1]):
        moved[:, j] = False
        for draw in range(1, DRAWS + 1):
            changed = other_tokens(tokens, (slice(None), j), vocabulary, by=draw)
            after = on_host(call(jnp.asarray(changed)))
            # What is no number differs from everything, and so counts as moved.
            moved[:, j] |= (after != before).any(axis=(0, 2))
            if (moved[:, j] >= expected[:, j]).all():
                break
    return moved


def tried(length: int) -> list[int]:
    """Returns which positions are changed."""
    if length <= MOST:
        return list(range(length))
    return sorted({int(j) for j in np.linspace(0, length - 1, MOST)})


def compared(moved: np.ndarray, expected: np.ndarray, what: str = "token") -> Finding:
    """Says how many pairs are wrong, and which is the first."""
    leaks, missing = moved & ~expected, expected & ~moved
    detail = f"{int(leaks.sum())} leaks, {int(missing.sum())} not reached"
    for pairs, verb in ((leaks, "depends on"), (missing, "does not depend on")):
        if pairs.any():
            i, j = map(int, np.argwhere(pairs)[0])
            detail += f"; the output at {i} {verb} {what} {j}"
    return Finding(float((moved != expected).sum()), UNIT, 0.0, detail=detail)


def by_perturbation(subject: Subject) -> Finding:
    """Changes every token and compares what moves with the stacked masks.

    A change may be felt and yet be less than the last digit of a logit; where derivatives say so,
    it counts as felt.
    """
    tokens = subject.tokens(1)
    moved = moved_by(subject.logits, tokens, subject.vocabulary, subject.reach)
    faint = subject.reach & ~moved
    call, lookup = subject.with_embeddings, subject.lookup
    if not faint.any() or subject.parameters is None or call is None or lookup is None:
        return compared(moved, subject.reach)
    slopes = sizes_of_slopes(subject, call, lookup(subject.parameters, jnp.asarray(tokens)))
    found = compared(moved | (faint & (slopes > 0)), subject.reach)
    return found._replace(detail=f"{found.detail}; {int(faint.sum())} below the last digit")


def by_gradient(subject: Subject) -> Finding:
    """Derives every output by every input, taken as continuous."""
    assert subject.with_embeddings is not None and subject.lookup is not None
    rows = subject.lookup(subject.parameters, jnp.asarray(subject.tokens(1)))
    slopes = sizes_of_slopes(subject, subject.with_embeddings, rows)
    return compared(slopes > 0, subject.reach)


def source_by_gradient(subject: Subject) -> Finding | NotApplicable:
    """Derives every output by every input of the source, taken as continuous."""
    source = subject.source
    assert source is not None
    if source.with_embeddings is None or subject.width is None:
        return NotApplicable("source.with_embeddings or width was not given")
    shape = (subject.rows, source.length, subject.width)
    rows = jnp.asarray(subject.generator(2).normal(size=shape), jnp.float32)
    slopes = sizes_of_slopes(subject, source.with_embeddings, rows)
    return compared(slopes > 0, np.ones(slopes.shape, bool), "source token")


def sizes_of_slopes(subject: Subject, call: Call, rows: Any) -> np.ndarray:
    """Returns the largest derivative of a random mixture of the logits at i by input j, `T S`."""

    @quickly
    def slopes(parameters: Any, rows: Any, mixture: Any) -> Any:
        logits, back = jax.vjp(lambda rows: call(parameters, rows), rows)

        def from_position(i: Any) -> Any:
            chosen = jnp.arange(logits.shape[1]) == i
            asked = jnp.where(chosen[:, None], mixture.astype(logits.dtype), 0)
            (slope,) = back(asked)
            return jnp.abs(slope).astype(jnp.float32).max(axis=(0, 2))

        return jax.lax.map(from_position, jnp.arange(logits.shape[1]))

    shape = jax.eval_shape(call, subject.parameters, rows).shape
    mixture = jnp.asarray(subject.generator(3).normal(size=shape), jnp.float32)
    found = on_host(slopes(subject.parameters, rows, mixture))
    # What is no number is a dependence on anything.
    return np.where(np.isfinite(found), found, np.inf)


def future_is_hidden(subject: Subject) -> Finding | NotApplicable:
    """Changes a token: no logit before it, and so not those that predict it, may move a bit."""
    if not subject.causal:
        return NotApplicable("the model is not causal: every token may see every other")
    tokens, T = subject.tokens(4), subject.length
    before, first = subject.logits(tokens), max(1, subject.prefix)
    # What a prefix holds is visible from the start, and never predicted.
    changed = [t for t in sorted({first, T // 2, T - 1}) if t >= first]
    changes = [0.0]
    for t in changed:
        after = subject.logits(other_tokens(tokens, (slice(None), t), subject.vocabulary))
        changes.append(float(np.abs(after[:, :t] - before[:, :t]).max()))
    worst = int(np.argmax(changes))  # The first that is no number, if one is.
    where = f"token {changed[worst - 1]} moves logits before it" if worst else ""
    return Finding(changes[worst], "largest change of earlier logits", 0.0, detail=where)


def ends_meet(subject: Subject) -> Finding | NotApplicable:
    """Changes the last token, which must reach the first position of what sees both ways."""
    if subject.causal:
        return NotApplicable("the model is causal: the last token reaches the last position alone")
    if not subject.reach[0, -1]:
        return NotApplicable("the windows of the layers, one behind the other, end before")
    tokens, worst = subject.tokens(5), 0.0
    before = subject.logits(tokens)
    for draw in range(1, DRAWS + 1):
        changed = other_tokens(tokens, (slice(None), -1), subject.vocabulary, by=draw)
        change = np.abs(subject.logits(changed)[:, 0] - before[:, 0]).max()
        worst = max(worst, float(change)) if np.isfinite(change) else float("nan")
    least = float(np.finfo(np.float32).tiny)
    return Finding(worst, "largest change of the first logits", least, at_least=True)


def prefix_rule(length: int, prefix: int) -> np.ndarray:
    """Returns what a position may see behind a prefix whose tokens see one another, `T T`."""
    i, j = np.arange(length)[:, None], np.arange(length)[None]
    return (j <= i) | ((i < prefix) & (j < prefix))


def prefixes(subject: Subject) -> Finding:
    """Changes tokens behind prefixes of several lengths."""
    call, T = subject.with_prefix, subject.length
    rule = subject.prefix_reach or (lambda prefix: prefix_rule(T, prefix))
    assert call is not None
    worst = Finding(0.0, UNIT, 0.0)
    for prefix in sorted({0, 1, T // 2, T}):
        expected = np.asarray(rule(prefix))
        given = jnp.asarray(prefix, jnp.int32)
        moved = moved_by(
            lambda tokens, given=given: call(tokens, given),
            subject.tokens(6),
            subject.vocabulary,
            expected,
        )
        found = compared(moved, expected)
        if not found.figure <= worst.figure:
            worst = found._replace(detail=f"behind a prefix of {prefix}: {found.detail}")
    return worst


def sources(subject: Subject) -> Finding:
    """Changes every token of the source, which must reach every position of the target."""
    source = subject.source
    assert isinstance(source, Source)
    shape = (subject.rows, source.length)
    tokens = subject.generator(7).integers(source.vocabulary, size=shape).astype(np.int32)
    expected = np.ones((subject.length, source.length), bool)
    moved = moved_by(source.apply, tokens, source.vocabulary, expected)
    return compared(moved, expected, "source token")


LAWS = (
    Law(GROUP, "reach by perturbation", (), by_perturbation),
    Law(GROUP, "reach by gradient", ("parameters", "with_embeddings", "lookup"), by_gradient),
    Law(GROUP, "labels stay hidden", (), future_is_hidden),
    Law(GROUP, "last token reaches the first position", (), ends_meet),
    Law(GROUP, "prefix", ("with_prefix",), prefixes),
    Law(GROUP, "source by perturbation", ("source",), sources),
    Law(GROUP, "source by gradient", ("source", "parameters"), source_by_gradient),
)
