"""How many tokens rows have, and how many spans and sentinels a corrupted text.

Source: Raffel et al. 2019, sec. 3.1.4 and 3.3.4, https://arxiv.org/abs/1910.10683. As in the
paper, the number of dropped tokens and that of spans follow from the length of a text, and only
the places are drawn, so that every row of one length has one shape.
"""

from typing import NamedTuple

from jtransformer.spec.data import DataSpec
from jtransformer.spec.errors import SpecError
from jtransformer.spec.objectives import Objective, SpanCorruption


class RowLengths(NamedTuple):
    """Tokens of a row.

    Attributes:
        length: Of the target, or of the one sequence there is [T].
        source_length: Of the source [S]; None where there is none.
    """

    length: int
    source_length: int | None


class SpanCounts(NamedTuple):
    """What is dropped from a text of a given length.

    Attributes:
        dropped: Tokens that are dropped.
        spans: Runs of neighbours that they form.
    """

    dropped: int
    spans: int


class SpanLengths(NamedTuple):
    """The widest row of a corrupted text.

    Attributes:
        source_length: Tokens of the encoder's input: what is kept, and a sentinel for each span.
        target_length: Tokens of the target: what is dropped, a sentinel before each span, the
            last sentinel and EOS.
        spans: Spans that are dropped; one sentinel more is needed.
    """

    source_length: int
    target_length: int
    spans: int


def span_counts(length: int, density: float, mean_length: float) -> SpanCounts:
    """Returns how much is dropped from a text of `length` tokens.

    At least one token is dropped and one is kept before every span, so a text of fewer than two
    tokens stays whole.
    """
    dropped = max(0, min(max(1, round(length * density)), length - 1))
    spans = min(max(1, round(dropped / mean_length)), dropped, length - dropped)
    return SpanCounts(dropped, spans)


def span_lengths(length: int, density: float, mean_length: float) -> SpanLengths:
    """Returns the static lengths that hold every corrupted text of at most `length` tokens.

    Args:
        length: Tokens of a row before it is corrupted, `data.length`.
        density: Share of the tokens that is dropped.
        mean_length: Mean tokens of a dropped span.

    Raises:
        SpecError: If nothing would be left that is not dropped.
    """
    if max(1, round(length * density)) >= length:
        raise SpecError(
            "objective.span_corruption.density",
            f"= {density} drops all of data.length={length} tokens, so no sentinel would stand "
            "between kept ones; use a smaller density or a longer row.",
        )
    dropped, spans = span_counts(length, density, mean_length)
    return SpanLengths(length - dropped + spans, dropped + spans + 2, spans)


def row_lengths(data: DataSpec, objective: Objective) -> RowLengths:
    """Returns what a model is given in each row of a batch.

    Args:
        data: How rows are cut.
        objective: Of a corrupted text a row is not the text.

    Raises:
        SpecError: If span corruption would drop all of a row.
    """
    if not isinstance(objective, SpanCorruption):
        return RowLengths(data.length, data.source_length)
    found = span_lengths(data.length, objective.density, objective.mean_length)
    return RowLengths(found.target_length, found.source_length)
