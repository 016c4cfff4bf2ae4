"""What is asked of texts and pairs: pure functions from ids to the arrays of a batch.

The shift of teacher forcing, by which a position is asked for the token after it, is made by
`shift` and nowhere else. Whatever is random is a function of numbers drawn elsewhere, uniform in
[0, 1) and as many for every row, so that one row's content does not depend on its neighbours.

Sources:
* Prefixes: Raffel et al. 2019, sec. 3.2.1, https://arxiv.org/abs/1910.10683. Here the tokens of
  the prefix are never scored.
* Masking: Devlin et al. 2018, sec. 3.1, https://arxiv.org/abs/1810.04805. Here the number of
  targets of a row is exact, not an expectation.
* Spans: Raffel et al. 2019, sec. 3.1.4: the lengths of kept and dropped runs are drawn apart,
  all ways to cut alike likely, and a kept run comes first. EOS ends the target alone.
"""

from typing import NamedTuple

import numpy as np

from jtransformer.data.batch import Batch
from jtransformer.spec import MaskedLM, PrefixLM, SpanCorruption
from jtransformer.spec.spans import SpanLengths, span_counts


class Shifted(NamedTuple):
    """Inputs, the token after each, and which of those are scored; "B T" each."""

    tokens: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def shift(ids: np.ndarray, scored: np.ndarray | None, index: np.ndarray) -> Shifted:
    """Asks every position for the token after it.

    Args:
        ids: Tokens one after another, " N".
        scored: Which tokens may be asked for, " N"; None for all. The first token of an example
            must not be, which keeps one example from being asked for the next.
        index: Where the inputs lie in `ids`, "B T"; a place beyond the end is padding.
    """
    last = len(ids) - 1
    after = np.minimum(index + 1, last)
    weights = index < last
    if scored is not None:
        weights &= scored[after]
    return Shifted(
        tokens=ids[np.minimum(index, last)].astype(np.int32),
        labels=ids[after].astype(np.int32),
        weights=weights.astype(np.float32),
    )


def prefix_lengths(pairs: np.ndarray, objective: PrefixLM, draws: np.ndarray) -> np.ndarray:
    """Draws how many tokens of each row are its prefix.

    Args:
        pairs: Inputs of each row that have a label, " B".
        objective: Its shares bound the prefix, to the nearest token and at least one.
        draws: Uniform numbers, " B".

    Returns:
        Lengths, int32 " B", all alike likely; never so long that nothing is left to score.
    """
    low = np.maximum(1, np.rint(objective.smallest_prefix * pairs))
    high = np.maximum(low, np.rint(objective.largest_prefix * pairs))
    return (low + np.floor(draws * (high - low + 1))).astype(np.int32)


def after_prefix(weights: np.ndarray, prefix_length: np.ndarray) -> np.ndarray:
    """Scores only what lies outside the prefix: position t is asked for token t + 1."""
    asked_for = np.arange(1, weights.shape[1] + 1)
    return weights * (asked_for >= prefix_length[:, None]).astype(np.float32)


def mask_tokens(
    tokens: np.ndarray,
    eligible: np.ndarray,
    objective: MaskedLM,
    ids: tuple[int, int],
    draws: np.ndarray,
) -> Shifted:
    """Hides a share of every row; nothing is shifted, a position is asked for its own token.

    The number of targets is the rate times the eligible positions, to the nearest and at least
    one; which, all sets alike likely. What each target shows is drawn for it alone.

    Args:
        tokens: The rows, "B T".
        eligible: Real tokens that are not special, "B T"; a row without any has no target.
        objective: Rate and shares.
        ids: The mask token, and the number of pieces, ids below which are text.
        draws: Uniform numbers, "B 3 T".
    """
    mask, pieces = ids
    available = eligible.sum(axis=1)
    wanted = np.minimum(np.maximum(1, np.rint(objective.rate * available)), available)
    is_target = _smallest(draws[:, 0], eligible, wanted)
    kind = draws[:, 1]
    other = np.floor(draws[:, 2] * pieces).astype(np.int32)
    shown = np.where(kind < objective.masked + objective.random, other, tokens)
    shown = np.where(kind < objective.masked, np.int32(mask), shown)
    return Shifted(
        tokens=np.where(is_target, shown, tokens),
        labels=tokens,
        weights=is_target.astype(np.float32),
    )


def draw_spans(
    lengths: np.ndarray, width: int, objective: SpanCorruption, draws: np.ndarray
) -> np.ndarray:
    """Draws which tokens are dropped.

    Args:
        lengths: Tokens of each text, " B".
        width: The longest one there can be, T.
        objective: Density and mean length, from which the counts follow.
        draws: Uniform numbers, "B 2 T".

    Returns:
        True where a token is dropped, "B T". Every dropped run has a kept one before it.
    """
    of_length = {
        n: span_counts(int(n), objective.density, objective.mean_length) for n in set(lengths)
    }
    dropped, spans = np.array([of_length[n] for n in lengths], np.int64).reshape(-1, 2).T
    kept_runs = _cut(lengths - dropped, spans, draws[:, 0])
    dropped_runs = _cut(dropped, spans, draws[:, 1])
    ends = np.cumsum(kept_runs + dropped_runs, axis=1)
    steps = np.zeros((len(lengths), width + 1), np.int64)
    rows = np.arange(len(lengths))[:, None]
    np.add.at(steps, (rows, ends - dropped_runs), 1)
    np.add.at(steps, (rows, ends), -1)
    return np.cumsum(steps, axis=1)[:, :-1] > 0


class Corrupted(NamedTuple):
    """Texts with spans dropped, and what was dropped.

    Attributes:
        source: What is kept, a sentinel in place of each span, "B S".
        source_lengths: Real tokens of each source, " B".
        target: BOS, then each span after its sentinel, a last sentinel and EOS, "B T".
        target_lengths: Real tokens of each target, BOS included, " B".
    """

    source: np.ndarray
    source_lengths: np.ndarray
    target: np.ndarray
    target_lengths: np.ndarray


class Marks(NamedTuple):
    """The special tokens of corrupted texts; the i-th span of a text has the i-th sentinel."""

    pad: int
    bos: int
    eos: int
    sentinels: np.ndarray


def corrupt(
    texts: np.ndarray, lengths: np.ndarray, dropped: np.ndarray, marks: Marks, widths: SpanLengths
) -> Corrupted:
    """Replaces every dropped span by a sentinel; source and target together hold the whole text.

    Args:
        texts: Ids, "B T".
        lengths: Tokens of each text, " B".
        dropped: Which tokens are dropped, "B T"; neighbours are one span.
        marks: Special tokens.
        widths: The widest source, and the widest target without its BOS.
    """
    B = len(texts)
    inside = np.arange(texts.shape[1]) < lengths[:, None]
    dropped = dropped & inside
    begins = dropped.copy()
    begins[:, 1:] &= ~dropped[:, :-1]
    spans_so_far, dropped_so_far = np.cumsum(begins, axis=1), np.cumsum(dropped, axis=1)
    sentinels = marks.sentinels[np.maximum(spans_so_far - 1, 0)]

    source = np.full((B, widths.source_length), marks.pad, np.int32)
    stays = (inside & ~dropped) | begins
    rows, columns = np.nonzero(stays)
    source[rows, np.cumsum(stays, axis=1)[stays] - 1] = np.where(begins, sentinels, texts)[stays]

    target = np.full((B, widths.target_length + 1), marks.pad, np.int32)
    target[:, 0] = marks.bos
    place = spans_so_far + dropped_so_far
    rows, columns = np.nonzero(dropped)
    target[rows, place[dropped]] = texts[dropped]
    rows, columns = np.nonzero(begins)
    target[rows, place[rows, columns] - 1] = sentinels[begins]
    spans, length = begins.sum(axis=1), begins.sum(axis=1) + dropped.sum(axis=1)
    target[np.arange(B), length + 1] = marks.sentinels[spans]
    target[np.arange(B), length + 2] = marks.eos
    return Corrupted(source, stays.sum(axis=1), target, length + 3)


def ask_for_spans(corrupted: Corrupted) -> Batch:
    """Makes a batch of corrupted texts: the whole target is asked for, EOS included."""
    B, width = corrupted.target.shape
    T, S = width - 1, corrupted.source.shape[1]
    real = np.arange(width) < corrupted.target_lengths[:, None]
    asked = real.copy()
    asked[:, 0] = False
    index = np.arange(B)[:, None] * width + np.arange(T)
    shifted = shift(corrupted.target.ravel(), asked.ravel(), index)
    return Batch(
        *shifted,
        valid=real[:, :T],
        source=corrupted.source,
        source_valid=np.arange(S) < corrupted.source_lengths[:, None],
    )


def _smallest(draws: np.ndarray, eligible: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Picks the eligible places of each row with its `wanted` smallest numbers."""
    order = np.argsort(np.where(eligible, draws, 2.0), axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(draws.shape[1])[None], axis=1)
    return (rank < wanted[:, None]) & eligible


def _cut(items: np.ndarray, parts: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Cuts each row's items into runs of at least one, all ways alike likely.

    Returns:
        Lengths of the runs, "B K" with K the most parts of a row; 0 beyond a row's own.
    """
    B, width = draws.shape
    place = np.arange(width)
    cuts = _smallest(draws, (place > 0) & (place < items[:, None]), parts - 1)
    most = max(1, int(parts.max(initial=0)))
    run = np.cumsum(cuts, axis=1) + np.arange(B)[:, None] * most
    return np.bincount(run[place < items[:, None]], minlength=B * most).reshape(B, most)
