"""Answers of a trained run to the sources of a part of its data, and how right they are.

Source of the intervals: Wilson 1927, https://doi.org/10.1080/01621459.1927.10502953.
"""

import math
from typing import Any, NamedTuple

from jtransformer.cli.run_directory import TrainedRun
from jtransformer.spec import CmuDict, Learned, Seq2Seq, Synthetic

ROWS = 64
"""Sources that are answered at a time."""
Z95 = 1.959964
"""Standard deviations on either side that hold 95 % of a normal distribution."""


class Answers(NamedTuple):
    """Texts, without special tokens.

    Attributes:
        sources: What was asked.
        found: What the run answered.
        references: Every right answer.
    """

    sources: list[str]
    found: list[str]
    references: list[list[str]]


class Proportion(NamedTuple):
    """A share of independent examples with its 95 % interval."""

    value: float
    low: float
    high: float


def answer(trained: TrainedRun, corpus: Any, part: str, most: int | None, how: Any) -> Answers:
    """Answers every different source of a part, up to `most` of them.

    Args:
        trained: A run on pairs.
        corpus: What it was trained on.
        part: "train", "validation" or "test".
        most: Most sources; None is all. They are in an order that does not depend on the text.
        how: A `BeamSearch`, or None for the most probable token at every step.
    """
    examples = getattr(corpus, part)
    chosen = examples.different()[:most]
    lengths = [len(examples.source(int(i))) for i in chosen]
    found: list[str] = [""] * len(chosen)
    for places in _batches(trained, lengths):
        # The last rows are repeated, so that one program serves every batch.
        padded = [*places, *[places[-1]] * (ROWS - len(places))]
        sources = [examples.source(int(chosen[place])) for place in padded]
        limit = _limit(trained, min(lengths[place] for place in places), lengths)
        tokens, added = _continued(trained, corpus, sources, limit, how)
        for row, place in enumerate(places):
            found[place] = corpus.tokenizer.decode(tokens[row, : added[row]])
    decode = corpus.tokenizer.decode
    return Answers(
        sources=[corpus.source_tokenizer.decode(examples.source(int(i))) for i in chosen],
        found=found,
        references=[[decode(right) for right in examples.references(int(i))] for i in chosen],
    )


def _batches(trained: TrainedRun, lengths: list[int]) -> list[list[int]]:
    """Deals sources to batches, by their length where a longer one leaves less to answer with."""
    groups: dict[int, list[int]] = {}
    for place, length in enumerate(lengths):
        groups.setdefault(length if _share_a_table(trained) else 0, []).append(place)
    return [
        group[first : first + ROWS]
        for group in groups.values()
        for first in range(0, len(group), ROWS)
    ]


def _share_a_table(trained: TrainedRun) -> bool:
    """Whether source and answer take their positions from one table of learned ones."""
    learned = isinstance(trained.spec.model.position, Learned)
    return learned and not isinstance(trained.spec.objective, Seq2Seq)


def _limit(trained: TrainedRun, shortest: int, lengths: list[int]) -> int:
    """Returns the most tokens that an answer had in a row of training, its end included."""
    length = trained.spec.data.length
    if isinstance(trained.spec.objective, Seq2Seq):
        return length
    # A row holds the source, what stands between, and the answer but for its end.
    return length - (shortest if _share_a_table(trained) else min(lengths))


def scores(trained: TrainedRun, answers: Answers) -> dict[str, Any]:
    """Scores answers as their kind of data is scored.

    Returns:
        By name: the share of answers that are a reference, and for words and phonemes the edits
        per word, else BLEU and chrF with their signatures.
    """
    from jtransformer import data

    exact = data.exact_match(answers.found, answers.references)
    result: dict[str, Any] = {
        "examples": len(answers.found),
        "exact_match": proportion(round(exact * len(answers.found)), len(answers.found))._asdict(),
    }
    if isinstance(trained.spec.data.source, Synthetic | CmuDict):
        rates = data.error_rates(
            [text.split() for text in answers.found],
            [[text.split() for text in rights] for rights in answers.references],
        )
        token, whole = (
            ("phoneme_error_rate", "word_error_rate")
            if isinstance(trained.spec.data.source, CmuDict)
            else ("token_error_rate", "sequence_error_rate")
        )
        return result | {token: rates.phoneme, whole: rates.word}
    for name, score in (("bleu", data.bleu), ("chrf", data.chrf)):
        value = score(answers.found, answers.references)
        result[name] = {"value": value.value, "signature": value.signature}
    return result


def proportion(hits: int, trials: int) -> Proportion:
    """Returns hits / trials with the interval of Wilson, which holds at 0 and at 1 too."""
    p, z2 = hits / trials, Z95**2 / trials
    middle = (p + z2 / 2) / (1 + z2)
    half = math.sqrt(z2 * p * (1 - p) + z2 * z2 / 4) / (1 + z2)
    # Rounding would leave the bound a hair beside 0 or 1 where it is exactly that.
    low = 0.0 if hits == 0 else middle - half
    high = 1.0 if hits == trials else middle + half
    return Proportion(p, low, high)


def _continued(
    trained: TrainedRun, corpus: Any, sources: list[Any], limit: int, how: Any
) -> tuple[Any, Any]:
    """Continues one batch; returns tokens and how many of them stand before the end."""
    import numpy as np

    from jtransformer import generation

    spec, special = trained.spec, corpus.specials
    ends = special.eos if isinstance(spec.objective, Seq2Seq) else special.bos
    # As wide as rows of training are, so that every batch has one shape; cut as they are, too.
    width = spec.data.source_length or spec.data.length
    rows = [[*map(int, source), ends][:width] for source in sources]
    given, valid = np.zeros((len(rows), width), np.int32), np.zeros((len(rows), width), bool)
    for place, row in enumerate(rows):
        given[place, : len(row)], valid[place, : len(row)] = row, True
    if isinstance(spec.objective, Seq2Seq):
        call: dict[str, Any] = dict(
            prompt=np.full((len(rows), 1), special.bos, np.int32), source=given, source_valid=valid
        )
    else:
        call = dict(prompt=given, valid=valid)
    call |= dict(model=spec.model, variables=trained.variables, limit=limit, eos=special.eos)
    if how is None:
        out = generation.generate(**call)
        tokens, lengths, finished = out.tokens, out.lengths, out.finished
    else:
        beams = generation.beam_search(**call, search=how)
        tokens, lengths, finished = beams.tokens[:, 0], beams.lengths[:, 0], beams.finished[:, 0]
    return np.asarray(tokens), np.asarray(lengths) - np.asarray(finished)
