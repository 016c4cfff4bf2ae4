"""Special tokens: ids behind the pieces of a tokenizer, so that no text can contain one.

Which of them exist follows from the rows and the objective alone:

| rows | objective | ids, in this order |
| --- | --- | --- |
| stream of one text | causal, prefix | none: the vocabulary of bytes stays 256 |
| stream of documents | causal, prefix | eos, which stands behind every document |
| stream | masked | the same, and mask |
| padded, packed | causal, prefix, seq2seq | pad, bos, eos |
| padded, packed | masked | pad, bos, eos, mask |
| any | span corruption | pad, bos, eos, a sentinel for each span and a last one |
"""

import dataclasses

from jtransformer.spec import DataSpec, Kjv, MaskedLM, SpanCorruption, TextFile
from jtransformer.spec.objectives import Objective
from jtransformer.spec.spans import span_lengths


@dataclasses.dataclass(frozen=True, kw_only=True)
class Specials:
    """The ids that stand for no text; None where a run has no use for one.

    What is padding and what is scored is never told from ids: rows carry `valid` and `weights`.

    Attributes:
        pieces: Ids below this one are text.
        pad: Fills what an example leaves of a row.
        bos: Stands before a text, or between the source and the target of one row.
        eos: Stands behind a text.
        mask: Stands in place of a hidden token.
        sentinels: Stand in place of dropped spans, in order.
    """

    pieces: int
    pad: int | None = None
    bos: int | None = None
    eos: int | None = None
    mask: int | None = None
    sentinels: tuple[int, ...] = ()

    def __post_init__(self):
        ids = self.ids
        if ids != tuple(range(self.pieces, self.pieces + len(ids))):
            raise ValueError(
                "special tokens must be the ids behind the pieces, each of its own, got "
                f"pieces={self.pieces} and ids {ids}; number them on from {self.pieces}."
            )

    @property
    def ids(self) -> tuple[int, ...]:
        """Every special id that exists, in order."""
        single = (self.pad, self.bos, self.eos, self.mask)
        return (*(i for i in single if i is not None), *self.sentinels)

    @property
    def size(self) -> int:
        """The vocabulary that pieces and special tokens need."""
        return self.pieces + len(self.ids)


def specials(pieces: int, data: DataSpec, objective: Objective) -> Specials:
    """Numbers the special tokens that rows of this form need.

    Args:
        pieces: Ids of the tokenizer.
        data: Its source and rows decide about padding, beginnings and ends.
        objective: Decides about masks and sentinels.

    Raises:
        SpecError: If span corruption would drop all of a row.
    """
    corrupts = isinstance(objective, SpanCorruption)
    names: list[str] = []
    if data.rows != "stream" or corrupts:
        names += ["pad", "bos", "eos"]
    elif not isinstance(data.source, Kjv | TextFile):
        names += ["eos"]
    if isinstance(objective, MaskedLM):
        names += ["mask"]
    numbers = {name: pieces + i for i, name in enumerate(names)}
    spans = 0
    if corrupts:
        lengths = span_lengths(data.length, objective.density, objective.mean_length)
        spans = lengths.spans + 1
    first = pieces + len(names)
    return Specials(pieces=pieces, **numbers, sentinels=tuple(range(first, first + spans)))
