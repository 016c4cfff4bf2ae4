"""How many tokens the rows of a run have."""

from typing import NamedTuple

from jtransformer.spec import RunSpec, SpanCorruption, span_lengths


class RowLengths(NamedTuple):
    """Tokens of a row.

    Attributes:
        length: Of the target, or of the one sequence there is [T].
        source_length: Of the source [S]; None where there is none.
    """

    length: int
    source_length: int | None


def row_lengths(run: RunSpec) -> RowLengths:
    """Returns what the model is given in each row of a batch.

    Raises:
        SpecError: If span corruption would drop all of a row.
    """
    data, objective = run.data, run.objective
    if not isinstance(objective, SpanCorruption):
        return RowLengths(data.length, data.source_length)
    found = span_lengths(data.length, objective.density, objective.mean_length)
    return RowLengths(found.target_length, found.source_length)
