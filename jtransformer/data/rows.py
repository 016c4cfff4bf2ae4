"""Examples laid out in rows: windows of a stream, an example a row, or several kept apart.

Rows are chosen by number, and a number stands for the same row in every epoch. Packing puts each
example into the first row that still has room, among the newest few (Krell et al. 2021 compare
such rules, sec. 3, https://arxiv.org/abs/2107.02027). It is done once, in an order of the run's
seed, and every epoch orders the packed rows anew: any row of any epoch is at hand without what
came before it, and as no example sees another one of its row, whom it shares it with does not
matter to its loss.
"""

import collections
import dataclasses
from typing import NamedTuple

import numpy as np

from jtransformer.data.corpus import Examples, Part, Stream
from jtransformer.data.draws import Purpose, permutation
from jtransformer.data.layout import tokens_of_row
from jtransformer.data.ragged import Ragged
from jtransformer.data.specials import Specials
from jtransformer.spec import MaskedLM, RunSpec, Seq2Seq, SpanCorruption
from jtransformer.spec.objectives import Objective

OPEN_ROWS = 64
"""Rows that packing keeps open; more fill rows a little better and take longer."""

NO_ROW = -1
"""The number of a row that holds nothing, which fills up a last batch."""


class Sequences(NamedTuple):
    """What is laid out, one example after another.

    Attributes:
        ids: Pieces and special tokens, " N".
        scored: Which of them may be asked for, bool " N"; None for all.
        offsets: Where each example begins, and where the last one ends; None for one text.
        labels_only: Tokens at the end of each that are labels and need no place of their own.
    """

    ids: np.ndarray
    scored: np.ndarray | None = None
    offsets: np.ndarray | None = None
    labels_only: int = 0


class Placed(NamedTuple):
    """Where the tokens of some rows come from.

    Attributes:
        places: Indices into `Sequences.ids`, "B T"; one beyond the end in padding.
        valid: Whether a token is real, "B T".
        positions: Places within an example, int32 "B T".
        segments: Number of the example within its row, from 1, and 0 in padding, int32 "B T".
    """

    places: np.ndarray
    valid: np.ndarray
    positions: np.ndarray
    segments: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """All rows of one part of a corpus.

    Attributes:
        count: How many there are.
        length: Tokens of a row [T].
        text: What is laid out; of the decoder, where there is a source.
        members: The examples of each row; None where windows are cut from one text.
        source: What the encoder is given, with `source_length` tokens [S]; None without.
        source_length: Tokens of a source.
        prefixes: Tokens before the target, separator included, of each pair in one row.
    """

    count: int
    length: int
    text: Sequences
    members: Ragged | None = None
    source: Sequences | None = None
    source_length: int = 0
    prefixes: np.ndarray | None = None

    def place(self, rows: np.ndarray) -> Placed:
        """Lays out the numbered rows."""
        if self.members is None:
            return _windows(rows, self.length, len(self.text.ids))
        return _place(self.members, rows, self.text, self.length)

    def place_source(self, rows: np.ndarray) -> Placed:
        """Lays out the sources of the numbered rows."""
        assert self.members is not None and self.source is not None
        return _place(self.members, rows, self.source, self.source_length)


def fewest_rows(part: Part, spec: RunSpec) -> int:
    """Returns how many rows a part has at least, without laying them out; exact if not packed."""
    data = spec.data
    if isinstance(part, Stream):
        return _asked_for(part, spec.objective) // data.length
    if data.rows == "padded":
        return len(part)
    sizes, more = _sizes(part, spec)
    tokens = -(-int(sizes.sum()) // data.length)
    return max(tokens, -(-int(more.sum()) // (data.source_length or 1)))


def rows_of(part: Part, specials: Specials, spec: RunSpec, *, seed: int | None = None) -> Rows:
    """Turns a part of a corpus into rows.

    Args:
        part: A text, or examples.
        specials: The special tokens of the corpus.
        spec: Form and length of the rows, and the objective they are for.
        seed: Decides which examples are packed together in training; None is evaluation, where
            examples keep their order and a text's last window may be short.
    """
    data, objective = spec.data, spec.objective
    if isinstance(part, Stream):
        asked = _asked_for(part, objective)
        count = -(-asked // data.length) if seed is None else asked // data.length
        return Rows(count, data.length, Sequences(part.ids))
    source = None
    if isinstance(objective, Seq2Seq):
        assert part.sources is not None
        source = _join([(part.sources, False), (specials.eos, False)])
    order = np.arange(len(part), dtype=np.int32)
    if data.rows == "padded":
        members = Ragged(order, np.arange(len(part) + 1))
    else:
        if seed is not None:
            order = order[permutation(seed, Purpose.PACKING, len(part))]
        sizes, more = _sizes(part, spec)
        room = (data.length, data.source_length or 0)
        members = _pack(order, sizes[order], more[order], room)
    return Rows(
        count=len(members),
        length=data.length,
        text=_text(part, objective, specials),
        members=members,
        source=source,
        source_length=data.source_length or 0,
        prefixes=None if part.sources is None or source is not None else part.sources.lengths + 1,
    )


def _asked_for(text: Stream, objective: Objective) -> int:
    """Counts the tokens of a text that have what they are asked for: the next, or themselves."""
    return len(text) - (0 if isinstance(objective, MaskedLM | SpanCorruption) else 1)


def _sizes(part: Examples, spec: RunSpec) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens that each example takes of a row, cut, and of a source's row."""
    lengths = part.targets.lengths
    source_lengths = None if part.sources is None else part.sources.lengths
    taken, source = tokens_of_row(lengths, source_lengths, spec.objective)
    if source is None:
        source = np.zeros_like(taken)
    return np.minimum(taken, spec.data.length), np.minimum(source, spec.data.source_length or 0)


def _text(part: Examples, objective: Objective, specials: Specials) -> Sequences:
    """Puts the special tokens around every example and says what may be asked for."""
    match objective:
        case SpanCorruption():
            return _join([(part.targets, True)])
        case MaskedLM():
            return _join([(specials.bos, False), (part.targets, True), (specials.eos, False)])
    whole = [(specials.bos, False), (part.targets, True), (specials.eos, True)]
    if part.sources is not None and not isinstance(objective, Seq2Seq):
        whole = [(part.sources, False), *whole]
    return _join(whole)._replace(labels_only=1)


def _join(pieces: list[tuple[Ragged | int | None, bool]]) -> Sequences:
    """Joins, for every example, its row of each ragged array and a fixed token for each number."""
    ragged = [piece for piece, _ in pieces if isinstance(piece, Ragged)]
    count = len(ragged[0])
    lengths = [piece.lengths if isinstance(piece, Ragged) else 1 for piece, _ in pieces]
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(sum(lengths, np.zeros(count, np.int64)), out=offsets[1:])
    ids, scored = np.zeros(offsets[-1], np.int32), np.zeros(offsets[-1], bool)
    begins = offsets[:-1].copy()
    for (piece, is_scored), length in zip(pieces, lengths, strict=True):
        if isinstance(piece, Ragged):
            index = np.repeat(begins - piece.offsets[:-1], length) + np.arange(len(piece.flat))
            ids[index] = piece.flat
        else:
            assert piece is not None
            index, ids[begins] = begins, piece
        scored[index] = is_scored
        begins = begins + length
    return Sequences(ids, scored, offsets)


def _windows(rows: np.ndarray, length: int, size: int) -> Placed:
    begins = np.where(rows == NO_ROW, size, rows.astype(np.int64) * length)
    index = begins[:, None] + np.arange(length)
    valid = index < size
    positions = np.broadcast_to(np.arange(length, dtype=np.int32), index.shape)
    return Placed(index, valid, positions, valid.astype(np.int32))


def _place(members: Ragged, rows: np.ndarray, sequences: Sequences, length: int) -> Placed:
    """Lays out examples one behind the other; the last of a row may end within its label."""
    assert sequences.offsets is not None
    B, known = len(rows), np.maximum(rows, 0)
    counts = np.where(rows == NO_ROW, 0, members.offsets[known + 1] - members.offsets[known])
    row = np.repeat(np.arange(B), counts)
    number = _counting(counts)
    example = members.flat[np.repeat(members.offsets[known], counts) + number]
    begin, end = sequences.offsets[example], sequences.offsets[example + 1]
    taken = np.minimum(end - begin - sequences.labels_only, length)
    before = np.cumsum(taken) - taken
    column = before - before[np.arange(len(row)) - number]
    is_last = number + 1 == counts[row]
    cells = np.where(is_last, np.minimum(end - begin, length - column), taken)

    within = _counting(cells)
    place = np.repeat(row, cells), np.repeat(column, cells) + within
    index = np.full((B, length), len(sequences.ids))
    positions, segments = np.zeros((2, B, length), np.int32)
    index[place] = np.repeat(begin, cells) + within
    positions[place] = within
    segments[place] = np.repeat(number + 1, cells)
    return Placed(index, segments > 0, positions, segments)


def _counting(counts: np.ndarray) -> np.ndarray:
    """Returns 0, 1, … up to each count in turn."""
    ends = np.cumsum(counts)
    return np.arange(counts.sum()) - np.repeat(ends - counts, counts)


def _pack(
    examples: np.ndarray, sizes: np.ndarray, more: np.ndarray, capacity: tuple[int, int]
) -> Ragged:
    """Puts each example into the first open row that has room for it and for its source."""
    rows: list[list[int]] = []
    # Number of the row, room for targets, room for sources.
    opened: collections.deque[list[int]] = collections.deque(maxlen=OPEN_ROWS)
    for example, size, extra in zip(examples.tolist(), sizes.tolist(), more.tolist(), strict=True):
        for row in opened:
            if size <= row[1] and extra <= row[2]:
                break
        else:
            row = [len(rows), *capacity]
            rows.append([])
            opened.append(row)
        rows[row[0]].append(example)
        row[1] -= size
        row[2] -= extra
    return Ragged.of([np.asarray(row) for row in rows])
