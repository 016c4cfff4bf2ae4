"""How good generated texts are, beside what is right.

Edit distance is that of Levenshtein (1966): the fewest insertions, deletions and substitutions.
A phoneme error rate is the sum of distances over the sum of reference lengths, and a word error
rate the share of words that are not exactly right; where a word may be said in several ways the
nearest one counts (Yao and Zweig 2015, https://arxiv.org/abs/1506.00196). BLEU (Papineni et al.
2002, https://aclanthology.org/P02-1040) and chrF (Popović 2015,
https://aclanthology.org/W15-3049) are computed by sacrebleu (Post 2018,
https://aclanthology.org/W18-6319), whose signature says everything that changes a figure.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jtransformer.spec import SpecError


class ErrorRates(NamedTuple):
    """Errors over a set of words.

    Attributes:
        phoneme: Edits per phoneme of the nearest references; above 1 where too much was said.
        word: Share of the words that are no reference.
        edits: Sum of the distances to the nearest references.
        phonemes: Sum of the lengths of those references.
        words: How many words were scored.
    """

    phoneme: float
    word: float
    edits: int
    phonemes: int
    words: int


class Score(NamedTuple):
    """A figure of sacrebleu.

    Attributes:
        value: 0 to 100; more is better.
        signature: The settings and the version that it was computed with.
    """

    value: float
    signature: str


def edit_distance(found: Sequence[Any], right: Sequence[Any]) -> int:
    """Returns the fewest single changes that turn one sequence into another."""
    above = list(range(len(right) + 1))
    for i, item in enumerate(found, start=1):
        row = [i]
        for j, other in enumerate(right, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (item != other)))
        above = row
    return above[-1]


def error_rates(
    found: Sequence[Sequence[Any]], references: Sequence[Sequence[Sequence[Any]]]
) -> ErrorRates:
    """Scores sequences against the nearest of their references.

    Args:
        found: For every word, the phonemes that were generated.
        references: For every word, its right pronunciations. Where two are equally near, the
            longer one counts.

    Raises:
        ValueError: If nothing is scored, or a word has no reference.
    """
    _check(found, references)
    edits, phonemes, wrong = 0, 0, 0
    for sequence, rights in zip(found, references, strict=True):
        nearest = min((edit_distance(sequence, right), -len(right)) for right in rights)
        edits, phonemes = edits + nearest[0], phonemes - nearest[1]
        wrong += nearest[0] > 0
    if not phonemes:
        raise ValueError("references must hold at least one phoneme, got empty ones; mend them.")
    return ErrorRates(edits / phonemes, wrong / len(found), edits, phonemes, len(found))


def exact_match(found: Sequence[Any], references: Sequence[Sequence[Any]]) -> float:
    """Returns the share of answers that equal one of their references.

    Raises:
        ValueError: If nothing is scored, or an answer has no reference.
    """
    _check(found, references)
    pairs = zip(found, references, strict=True)
    return sum(any(answer == right for right in rights) for answer, rights in pairs) / len(found)


def bleu(found: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Returns corpus BLEU with sacrebleu's defaults.

    Args:
        found: Generated texts, not tokenized.
        references: For every text, its right versions, whose number may differ.

    Raises:
        ValueError: If nothing is scored, or a text has no reference.
        SpecError: If sacrebleu is not installed.
    """
    return _sacrebleu("BLEU", found, references)


def chrf(found: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Returns corpus chrF with sacrebleu's defaults: chrF2, characters alone.

    Args:
        found: Generated texts, not tokenized.
        references: For every text, its right versions, whose number may differ.

    Raises:
        ValueError: If nothing is scored, or a text has no reference.
        SpecError: If sacrebleu is not installed.
    """
    return _sacrebleu("CHRF", found, references)


def _sacrebleu(name: str, found: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    try:
        import sacrebleu.metrics
    except ImportError as error:
        raise SpecError(
            "", "BLEU and chrF need the package sacrebleu; pip install 'jtransformer[data]'."
        ) from error
    _check(found, references)
    metrics: Any = sacrebleu.metrics
    metric = metrics.BLEU() if name == "BLEU" else metrics.CHRF()
    # sacrebleu wants the first reference of every text, then the second ones, and None for none.
    width = max(map(len, references))
    streams = [[r[i] if i < len(r) else None for r in references] for i in range(width)]
    score = metric.corpus_score(list(found), streams)
    return Score(float(score.score), str(metric.get_signature()))


def _check(found: Sequence[Any], references: Sequence[Sequence[Any]]) -> None:
    if len(found) != len(references):
        raise ValueError(
            f"found and references must have the same number of entries, got {len(found)} and "
            f"{len(references)}; give the references of each answer."
        )
    if not found:
        raise ValueError("found must have an entry, got none; score at least one answer.")
    for i, rights in enumerate(references):
        if isinstance(rights, str) or not len(rights):
            raise ValueError(
                f"references must be a list of right answers for each entry, got {rights!r} for "
                f"entry {i}; give a list with at least one."
            )
