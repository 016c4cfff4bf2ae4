"""What a source becomes: three parts of ids, the tokenizer, its special tokens and a hash."""

import dataclasses
from typing import Literal, NamedTuple

import numpy as np

from jtransformer.data.ragged import Ragged
from jtransformer.data.specials import Specials
from jtransformer.data.tokenizers import Tokenizer

PartName = Literal["train", "validation", "test"]
PARTS: tuple[PartName, ...] = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
    """One text, or documents with EOS behind each.

    Attributes:
        ids: uint8 where the tokenizer is bytes and there is no EOS, and then possibly a mapped
            file; int32 otherwise.
    """

    ids: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Documents, or pairs of a source and a target; rows are pieces without special tokens.

    Attributes:
        targets: Every target, or every document.
        sources: Every source; None where there are no pairs.
    """

    targets: Ragged
    sources: Ragged | None = None
    _groups: np.ndarray = dataclasses.field(init=False, repr=False)
    _members: Ragged = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        numbers: dict[bytes, int] = {}
        if self.sources is None:
            groups = np.arange(len(self.targets))
        else:
            rows = (self.sources[i].tobytes() for i in range(len(self.sources)))
            groups = np.array([numbers.setdefault(row, len(numbers)) for row in rows], np.int64)
        order = np.argsort(groups, kind="stable").astype(np.int32)
        counts = np.bincount(groups) if len(groups) else np.zeros(0, np.int64)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        # A frozen value: both follow from the rows.
        object.__setattr__(self, "_groups", groups)
        object.__setattr__(self, "_members", Ragged(order, offsets))

    def __len__(self) -> int:
        return len(self.targets)

    def target(self, i: int) -> np.ndarray:
        """Returns the target of example i, or its document, int32."""
        return self.targets[i]

    def source(self, i: int) -> np.ndarray:
        """Returns the source of example i, int32.

        Raises:
            ValueError: If the examples are no pairs.
        """
        if self.sources is None:
            raise ValueError("the examples are documents and have no source; use target(i).")
        return self.sources[i]

    def take(self, rows: np.ndarray) -> "Examples":
        """Returns the named examples, in the order in which they are named."""
        sources = None if self.sources is None else self.sources.take(rows)
        return Examples(self.targets.take(rows), sources)

    def references(self, i: int) -> list[np.ndarray]:
        """Returns every right target of example i's source, its own included, each once."""
        found = {self.targets[int(j)].tobytes(): int(j) for j in self._members[self._groups[i]]}
        return [self.targets[j] for j in sorted(found.values())]

    def different(self) -> np.ndarray:
        """Returns one example of every source, in order: what a generated answer is scored on."""
        return np.array([self._members[g][0] for g in range(len(self._members))], np.int64)


Part = Stream | Examples


class Report(NamedTuple):
    """What a source held that did not become an example as it stood.

    Attributes:
        malformed: Lines or rows that could not be read and were skipped.
        too_long: Examples that no row holds and that were skipped.
        cut: Examples that no row holds and whose end is cut off when rows are made.
    """

    malformed: int = 0
    too_long: int = 0
    cut: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """What a run reads.

    Attributes:
        train: What updates are made on.
        validation: What settings are selected on.
        test: What is read once, at the end.
        tokenizer: Text to ids, of documents and targets.
        source_tokenizer: The same for sources; one tokenizer serves both.
        specials: The ids behind the pieces.
        sha256: The hash of content and tokenizer; of the bytes alone where they are the ids.
        report: What was skipped or cut.
    """

    train: Part
    validation: Part
    test: Part
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer
    specials: Specials
    sha256: str
    report: Report = Report()
