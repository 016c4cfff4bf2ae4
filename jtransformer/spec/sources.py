"""Where text or examples come from."""

import dataclasses
from typing import ClassVar, Literal

from jtransformer.spec.errors import SpecError
from jtransformer.spec.fields import Checked, check, number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kjv(Checked):
    """The King James Bible: 4.2 MB of English that a package ships."""

    kind: ClassVar[str] = "kjv"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFile(Checked):
    """Any file, read as one text. Its content, not its name, is part of a run's identity."""

    kind: ClassVar[str] = "text_file"
    path: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JsonLines(Checked):
    """A file of one JSON object a line, each of them a document.

    Attributes:
        path: The file.
        field: Name of the field that holds the text, or of the target where there is a source.
        source_field: Name of the field that holds the source of a pair; empty for plain text.
    """

    kind: ClassVar[str] = "json_lines"
    path: str = ""
    field: str = "text"
    source_field: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parquet(Checked):
    """A parquet file, each row of it a document; needs the extra `data`.

    Attributes:
        path: The file.
        field: Column that holds the text, or the target where there is a source.
        source_field: Column that holds the source of a pair; empty for plain text.
    """

    kind: ClassVar[str] = "parquet"
    path: str = ""
    field: str = "text"
    source_field: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HuggingFace(Checked):
    """A Hugging Face data set; needs the extra `data`.

    Attributes:
        name: A folder that `Dataset.save_to_disk` wrote, or a name on the hub.
        configuration: Name of its configuration; empty for the only one.
        split: Which of its splits is read; jtransformer makes parts of its own.
        field: Column that holds the text, or the target where there is a source.
        source_field: Column that holds the source of a pair; empty for plain text.
    """

    kind: ClassVar[str] = "hugging_face"
    name: str = ""
    configuration: str = ""
    split: str = "train"
    field: str = "text"
    source_field: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CmuDict(Checked):
    """English words and their phonemes (CMUdict), a pair for each pronunciation; extra `data`."""

    kind: ClassVar[str] = "cmudict"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextPairs(Checked):
    """A file of one pair a line: source, a tab, target."""

    kind: ClassVar[str] = "text_pairs"
    path: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Synthetic(Checked):
    """Examples of a task whose best possible answer is known, made from a seed.

    Attributes:
        task: What is asked. "copy", "reverse", "sort": the source again, backwards, in order.
            "recall": values of keys that were shown before, several queries (Arora et al. 2023).
            "induction": what followed the same token earlier (Olsson et al. 2022). "parity": of
            bits so far. "addition": of two numbers modulo `symbols` (Power et al. 2022).
        symbols: Different symbols; the modulus of "addition".
        smallest: Fewest symbols of a source; numbers of pairs for "recall".
        largest: Most symbols of a source.
        examples: Examples of all parts together; no two are equal.
        task_seed: Decides the examples, apart from the run's own seed.
    """

    kind: ClassVar[str] = "synthetic"
    task: Literal["copy", "reverse", "sort", "recall", "induction", "parity", "addition"] = "copy"
    symbols: int = number(16, minimum=2, maximum=10_000)
    smallest: int = number(4, minimum=1)
    largest: int = number(12, minimum=1)
    examples: int = number(20_000, minimum=10)
    task_seed: int = number(0, minimum=0, maximum=2**31 - 1)

    def __post_init__(self):
        check(self)
        if self.smallest > self.largest:
            raise SpecError(
                "smallest", f"must not exceed largest, got {self.smallest} and {self.largest}."
            )


Source = Kjv | TextFile | JsonLines | Parquet | HuggingFace | CmuDict | TextPairs | Synthetic
PAIRED = (CmuDict, TextPairs, Synthetic)
"""Sources that always have a source and a target."""
