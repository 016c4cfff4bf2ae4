"""The batches of a run; batch t is a pure function of (data spec, objective, seed, t).

There is no iterator whose state could be lost, and no arm can see other data than its neighbour:
order, packing, masks, spans and prefixes are drawn from the seed and the number of a row alone,
never from the model. Evaluation draws them from a key of its own, the same for every seed, so
that losses of different runs are about the same questions.
"""

import functools
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jtransformer.data import objectives
from jtransformer.data.batch import Batch
from jtransformer.data.corpus import Corpus, Part, PartName, Stream
from jtransformer.data.draws import EVALUATION, Purpose, uniforms
from jtransformer.data.objectives import Marks
from jtransformer.data.rows import NO_ROW, Placed, Rows, fewest_rows, rows_of
from jtransformer.data.shares import WHOLE, Share
from jtransformer.spec import (
    CausalLM,
    Learned,
    MaskedLM,
    PrefixLM,
    RunSpec,
    Seq2Seq,
    SpanCorruption,
    SpecError,
)
from jtransformer.spec.spans import span_lengths

Draw = Callable[[int], np.ndarray]
"""Returns so many uniform numbers for every row of a batch, "B width"."""


def check_batch(corpus: Corpus, spec: RunSpec) -> None:
    """Refuses a corpus that a run cannot be trained on.

    Raises:
        SpecError: If the model lacks ids or positions for it, it cannot fill one batch with
            different rows, or the package that orders rows is not installed.
    """
    if importlib.util.find_spec("grain") is None:
        raise SpecError(
            "", "Training needs the package grain; pip install 'jtransformer[experiments]'."
        )
    needed = corpus.specials.size
    if spec.model.vocabulary < needed:
        raise SpecError(
            "model.vocabulary",
            f"must be at least {needed} for {corpus.specials.pieces} pieces of text and "
            f"{len(corpus.specials.ids)} special tokens, got {spec.model.vocabulary}; "
            f"use {needed}.",
        )
    _check_positions(spec)
    count, wanted = fewest_rows(corpus.train, spec), spec.training.batch_size
    if count < wanted and spec.data.rows == "packed":
        count = rows_of(corpus.train, corpus.specials, spec, seed=spec.seed).count
    if count < wanted:
        unit = "tokens" if isinstance(corpus.train, Stream) else "examples"
        raise SpecError(
            "training.batch_size",
            f"= {wanted} sequences of {spec.data.length} tokens are more than the training part "
            f"holds ({count} sequences in {len(corpus.train)} {unit}); use a smaller batch, a "
            "shorter length or more data.",
        )


def _check_positions(spec: RunSpec) -> None:
    position = spec.model.position
    if not isinstance(position, Learned) or not isinstance(spec.objective, SpanCorruption):
        return
    target, source = spec.row_lengths
    longest = max(source or 0, target)
    if position.max_length < longest:
        raise SpecError(
            "model.position.learned.max_length",
            f"must reach the longest corrupted row, got max_length={position.max_length} for "
            f"{source} tokens of source and {target} of target; use at least {longest}.",
        )


class TrainingBatches:
    """The training batches of one run, by index.

    Every epoch visits each row once, in an order of its own: a window of a text, an example, or
    examples that were packed. A batch may reach into the next epoch.

    Attributes:
        rows_per_epoch: Rows that an epoch visits.
        examples_per_epoch: Examples that they hold; windows, where one text is cut.
    """

    def __init__(self, corpus: Corpus, spec: RunSpec, share: Share = WHOLE):
        """Lays out the rows.

        Args:
            corpus: What is read.
            spec: The run.
            share: Which rows of every batch are wanted; no other is read.
        """
        # grain sets up telemetry when it is imported, so only whoever trains imports it.
        import grain

        rows = rows_of(corpus.train, corpus.specials, spec, seed=spec.seed)
        self.rows_per_epoch = rows.count
        self.examples_per_epoch = rows.count if rows.members is None else len(rows.members.flat)
        self._ask = _Asker(corpus, spec, rows, is_full=rows.members is None)
        self._batch_size, self._seed = spec.training.batch_size, spec.seed
        self._own = share.rows(spec.training.batch_size)
        order = grain.MapDataset.range(rows.count).shuffle(seed=spec.seed)
        self._order: Any = order.repeat()

    def __getitem__(self, t: int) -> Batch:
        """Returns batch t, counted from 0."""
        first, size = t * self._batch_size, self._batch_size
        chosen = [n if n == NO_ROW else self._order[first + n] for n in self._own.tolist()]
        draw = _questions(self._seed, (first, size), self._own)
        return self._ask(np.asarray(chosen, np.int64), draw)


def evaluation_batches(
    corpus: Corpus, part: PartName, spec: RunSpec, share: Share = WHOLE
) -> Iterator[Batch]:
    """Cuts a part of a corpus into batches that score all of it once.

    That is every token but the first of a text, every example otherwise. All batches have one
    shape; what a last one lacks is padding of weight 0. Neither the seed nor the number of rows
    of a batch changes what is asked.

    Args:
        corpus: What is read.
        part: Which part of it.
        spec: The run.
        share: Which rows of every batch are returned; no other is read.
    """
    rows = rows_of(_part(corpus, part), corpus.specials, spec)
    ask = _Asker(corpus, spec, rows, is_full=False)
    size = min(spec.training.evaluation_batch_size, rows.count)
    own = share.rows(size)
    for first in range(0, rows.count, size):
        is_there = (own != NO_ROW) & (first + own < rows.count)
        draw = _questions(EVALUATION, (first, size), own)
        yield ask(np.where(is_there, first + own, NO_ROW), draw)


def _questions(seed: int, rows: tuple[int, int], own: np.ndarray) -> Draw:
    """Returns what draws the numbers of some rows of a batch, the first row and their number."""
    draw = functools.partial(uniforms, seed, Purpose.QUESTIONS, rows)
    return lambda width: draw(width)[own]


def _part(corpus: Corpus, name: PartName) -> Part:
    match name:
        case "train":
            return corpus.train
        case "validation":
            return corpus.validation
        case "test":
            return corpus.test


class _Asker:
    """Makes batches of numbered rows."""

    def __init__(self, corpus: Corpus, spec: RunSpec, rows: Rows, *, is_full: bool):
        self._rows, self._specials, self._objective = rows, corpus.specials, spec.objective
        # Rows that hold as much as there is room for need no word on what is real.
        self._is_full = is_full
        self._is_packed = spec.data.rows == "packed"

    def __call__(self, rows: np.ndarray, draw: Draw) -> Batch:
        """Makes a batch.

        Args:
            rows: Their numbers, " B".
            draw: Returns uniform numbers for them.
        """
        batch = self._asked(rows, draw)
        is_none = rows == NO_ROW
        if is_none.any():
            batch.weights[is_none] = 0
        return batch

    def _asked(self, rows: np.ndarray, draw: Draw) -> Batch:
        placed = self._rows.place(rows)
        match self._objective:
            case CausalLM():
                return self._shifted(placed)
            case PrefixLM():
                return self._prefixed(rows, placed, draw)
            case Seq2Seq():
                return self._with_source(rows, placed)
            case MaskedLM():
                return self._masked(placed, draw)
            case SpanCorruption():
                return self._spans(placed, draw)

    def _shifted(self, placed: Placed) -> Batch:
        text = self._rows.text
        shifted = objectives.shift(text.ids, text.scored, placed.places)
        if self._rows.members is None:
            # What follows a text's end is not scored, and no token of the text can see it.
            return Batch(*shifted)
        pad = np.int32(self._specials.pad or 0)
        return Batch(
            tokens=np.where(placed.valid, shifted.tokens, pad),
            labels=np.where(shifted.weights > 0, shifted.labels, pad),
            weights=shifted.weights,
            **self._told(placed),
        )

    def _told(self, placed: Placed) -> dict[str, np.ndarray]:
        told = {} if self._is_full else {"valid": placed.valid}
        if self._is_packed:
            told |= {"positions": placed.positions, "segments": placed.segments}
        return told

    def _prefixed(self, rows: np.ndarray, placed: Placed, draw: Draw) -> Batch:
        batch = self._shifted(placed)
        assert isinstance(self._objective, PrefixLM)
        if self._rows.prefixes is None or self._rows.members is None:
            pairs = batch.weights.sum(axis=1)
            lengths = objectives.prefix_lengths(pairs, self._objective, draw(1)[:, 0])
        else:
            example = self._rows.members.flat[np.maximum(rows, 0)]
            lengths = self._rows.prefixes[example].astype(np.int32)
        weights = objectives.after_prefix(batch.weights, lengths)
        return batch._replace(weights=weights, prefix_length=lengths)

    def _with_source(self, rows: np.ndarray, placed: Placed) -> Batch:
        source = self._rows.source
        assert source is not None
        there = self._rows.place_source(rows)
        tokens = source.ids[np.minimum(there.places, len(source.ids) - 1)]
        told = {"source_" + name: value for name, value in self._told(there).items()}
        pad = np.int32(self._specials.pad or 0)
        return self._shifted(placed)._replace(source=np.where(there.valid, tokens, pad), **told)

    def _text(self, placed: Placed) -> np.ndarray:
        ids = self._rows.text.ids
        tokens = ids[np.minimum(placed.places, len(ids) - 1)].astype(np.int32)
        return np.where(placed.valid, tokens, np.int32(self._specials.pad or 0))

    def _masked(self, placed: Placed, draw: Draw) -> Batch:
        assert isinstance(self._objective, MaskedLM) and self._specials.mask is not None
        tokens = self._text(placed)
        B, T = tokens.shape
        pieces = self._specials.pieces
        eligible = placed.valid & (tokens < pieces)
        draws = draw(3 * T).reshape(B, 3, T)
        hidden = objectives.mask_tokens(
            tokens, eligible, self._objective, (self._specials.mask, pieces), draws
        )
        return Batch(*hidden, **self._told(placed))

    def _spans(self, placed: Placed, draw: Draw) -> Batch:
        objective, specials = self._objective, self._specials
        assert isinstance(objective, SpanCorruption)
        assert specials.pad is not None and specials.bos is not None and specials.eos is not None
        text, lengths = self._text(placed), placed.valid.sum(axis=1)
        B, T = text.shape
        draws = draw(2 * T).reshape(B, 2, T)
        dropped = objectives.draw_spans(lengths, T, objective, draws)
        marks = Marks(specials.pad, specials.bos, specials.eos, np.asarray(specials.sentinels))
        widths = span_lengths(T, objective.density, objective.mean_length)
        corrupted = objectives.corrupt(text, lengths, dropped, marks, widths)
        batch = objectives.ask_for_spans(corrupted)
        return batch._replace(valid=None, source_valid=None) if self._is_full else batch
