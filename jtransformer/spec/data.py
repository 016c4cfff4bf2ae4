"""What a model reads: a source, a tokenizer, and how examples become rows."""

import dataclasses
from typing import ClassVar, Literal

from jtransformer.spec.errors import SpecError
from jtransformer.spec.fields import Checked, check, number
from jtransformer.spec.sources import (
    PAIRED,
    HuggingFace,
    JsonLines,
    Kjv,
    Parquet,
    Source,
    Synthetic,
    TextFile,
    TextPairs,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bytes(Checked):
    """The bytes of UTF-8: ids 0 to 255, special tokens behind them."""

    kind: ClassVar[str] = "bytes"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Characters(Checked):
    """Every character of the training part, in order of its code; others are one unknown."""

    kind: ClassVar[str] = "characters"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Words(Checked):
    """Every word between spaces of the training part, in order; others are one unknown."""

    kind: ClassVar[str] = "words"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained(Checked):
    """Pieces learned from the training part by the `tokenizers` library; extra `data`.

    Attributes:
        algorithm: Byte-pair encoding (Sennrich et al. 2016) or unigram (Kudo 2018).
        pieces: Size of the vocabulary, special tokens not counted.
    """

    kind: ClassVar[str] = "trained"
    algorithm: Literal["bpe", "unigram"] = "bpe"
    pieces: int = number(1024, minimum=257)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerFile(Checked):
    """A tokenizer.json of the `tokenizers` library; extra `data`."""

    kind: ClassVar[str] = "file"
    path: str = ""


Tokenizer = Bytes | Characters | Words | Trained | TokenizerFile
Rows = Literal["stream", "padded", "packed"]
"""A text cut into rows that are full; an example a row, padded; or several, kept apart."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSpec(Checked):
    """A text or examples, split into train, validation and test.

    One text is split by position, documents and pairs by a hash of their content (words of
    CMUdict by a hash of the word), so that no part shares an example with another.

    Attributes:
        source: Where the text comes from.
        tokenizer: How text becomes ids; of the target too, where there is a source and a target.
        length: Tokens of a row [T]; of the target, where there is a source.
        source_length: Tokens of a source [S]; it has a meaning with an encoder alone.
        rows: How examples become rows.
        too_long: What happens to an example that is longer than a row.
        malformed: What happens to a line that cannot be read: refused by its number, or skipped
            and counted.
        validation_fraction: Share that selects settings.
        test_fraction: Share that is read once, at the end of a run.
    """

    source: Source = Kjv()
    tokenizer: Tokenizer = Bytes()
    length: int = number(64, minimum=1)
    source_length: int | None = number(None, minimum=1)
    rows: Rows = "stream"
    too_long: Literal["refuse", "skip", "cut"] = "refuse"
    malformed: Literal["refuse", "skip"] = "refuse"
    validation_fraction: float = number(0.02, above=0, below=0.5)
    test_fraction: float = number(0.02, above=0, below=0.5)

    def __post_init__(self):
        check(self)
        source = self.source
        if isinstance(source, TextFile | JsonLines | Parquet | TextPairs) and not source.path:
            raise SpecError(f"source.{source.kind}.path", "is empty; give the file to read.")
        if isinstance(source, JsonLines | Parquet | HuggingFace) and not source.field:
            raise SpecError(f"source.{source.kind}.field", "is empty; give what holds the text.")
        if isinstance(source, HuggingFace) and not source.name:
            raise SpecError("source.hugging_face.name", "is empty; give a folder or a name.")
        if isinstance(self.tokenizer, TokenizerFile) and not self.tokenizer.path:
            raise SpecError("tokenizer.file.path", "is empty; give a tokenizer.json.")
        if self.rows == "stream" and self.has_pairs:
            raise SpecError(
                "rows",
                f"= 'stream' cuts one text, and source.kind {source.kind!r} has pairs; use "
                "'padded' or 'packed'.",
            )
        if self.rows != "stream" and isinstance(source, Kjv | TextFile):
            raise SpecError(
                "rows",
                f"= {self.rows!r} needs examples, and source.kind {source.kind!r} is one text; "
                "use 'stream'.",
            )
        if self.rows == "stream" and self.too_long != "refuse":
            raise SpecError(
                "too_long",
                f"= {self.too_long!r} would do nothing with rows 'stream'; leave it out.",
            )

        whole = isinstance(source, Kjv | Synthetic)
        whole = whole or (isinstance(source, TextFile) and isinstance(self.tokenizer, Bytes))
        if whole and self.malformed != "refuse":
            raise SpecError(
                "malformed",
                f"= {self.malformed!r} would do nothing with source.kind {source.kind!r}, which "
                "has no lines that could be malformed; leave it out.",
            )

    @property
    def has_pairs(self) -> bool:
        """Whether every example has a source and a target."""
        if isinstance(self.source, JsonLines | Parquet | HuggingFace):
            return bool(self.source.source_field)
        return isinstance(self.source, PAIRED)
