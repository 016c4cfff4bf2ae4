"""How many tokens an example takes of a row; `data.length` and `data.source_length` bound it.

| objective | what is laid out | the bound |
| --- | --- | --- |
| causal, prefix, of documents | BOS d EOS, read without its last token | d + 1 <= length |
| causal, prefix, of pairs | source BOS target EOS, read without its last | s + t + 1 <= length |
| seq2seq, its source | source EOS | s + 1 <= source_length |
| seq2seq, its target | BOS target EOS, read without its last | t + 1 <= length |
| masked | BOS d EOS | d + 2 <= length |
| span corruption | d, before it is corrupted | d <= length |
"""

import numpy as np

from jtransformer.spec import DataSpec, MaskedLM, Seq2Seq, SpanCorruption
from jtransformer.spec.objectives import Objective


def tokens_of_row(
    targets: np.ndarray, sources: np.ndarray | None, objective: Objective
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the tokens of a row that each example takes, and those of its source's row.

    Args:
        targets: Pieces of every target, or of every document.
        sources: Pieces of every source; None where there are no pairs.
        objective: What the rows are for; only "seq2seq" has a row for the source.
    """
    match objective:
        case Seq2Seq():
            return targets + 1, None if sources is None else sources + 1
        case MaskedLM():
            return targets + 2, None
        case SpanCorruption():
            return targets, None
        case _:
            return targets + 1 + (0 if sources is None else sources), None


def fits(
    targets: np.ndarray, sources: np.ndarray | None, data: DataSpec, objective: Objective
) -> np.ndarray:
    """Says for every example whether it fits into a row, bool.

    Args:
        targets: Pieces of every target, or of every document.
        sources: Pieces of every source; None where there are no pairs.
        data: Gives the lengths of the rows.
        objective: What the rows are for.
    """
    target, source = tokens_of_row(targets, sources, objective)
    fitting = target <= data.length
    if source is not None and data.source_length is not None:
        fitting &= source <= data.source_length
    return fitting


def asks(
    sources: np.ndarray | None, count: int, data: DataSpec, objective: Objective
) -> np.ndarray:
    """Says for every example whether something is asked of it once its end is cut off, bool.

    Args:
        sources: Pieces of every source; None where there are no pairs.
        count: How many examples there are.
        data: Gives the length of a row.
        objective: What the rows are for.
    """
    match objective:
        case Seq2Seq() | SpanCorruption():
            return np.full(count, True)
        case MaskedLM():
            # The first token of a row is BOS.
            return np.full(count, data.length > 1)
        case _:
            return np.full(count, True) if sources is None else sources < data.length
