"""The examples of a source, and what becomes of its lines that are none."""

from collections.abc import Iterable

from jtransformer.data.cmudict import read_cmudict
from jtransformer.data.documents import read_hugging_face, read_lines, read_parquet
from jtransformer.data.sources import Example, Fault
from jtransformer.data.synthetic import read_synthetic
from jtransformer.spec import (
    CmuDict,
    DataSpec,
    HuggingFace,
    JsonLines,
    Parquet,
    SpecError,
    Synthetic,
    TextFile,
    TextPairs,
)


def read_examples(data: DataSpec) -> tuple[list[Example], int]:
    """Reads every example of a source.

    Returns:
        The examples in order, and how many lines or rows were skipped because they are none.

    Raises:
        SpecError: If the source cannot be read, or a line is no example and is not to be skipped.
    """
    examples, malformed = [], 0
    for found in _entries(data):
        if isinstance(found, Fault):
            refuse(found, data)
            malformed += 1
        else:
            examples.append(found)
    return examples, malformed


def refuse(fault: Fault, data: DataSpec) -> None:
    """Refuses a line that cannot be read, unless such lines are to be skipped.

    Raises:
        SpecError: If they are not.
    """
    if data.malformed == "skip":
        return
    setting, value = _setting(data)
    unit = "row" if isinstance(data.source, Parquet | HuggingFace) else "line"
    raise SpecError(
        f"data.source.{setting}",
        f"= {value!r}: {unit} {fault.number} {fault.reason}; correct it, or use "
        f"data.malformed='skip' to leave out and count every such {unit}.",
    )


def _setting(data: DataSpec) -> tuple[str, str]:
    """Returns the setting that names a source, and its value."""
    match data.source:
        case TextFile() | JsonLines() | Parquet() | TextPairs():
            return f"{data.source.kind}.path", data.source.path
        case HuggingFace():
            return "hugging_face.name", data.source.name
        case _:
            return "kind", data.source.kind


def _entries(data: DataSpec) -> Iterable[Example | Fault]:
    match data.source:
        case JsonLines() | TextPairs():
            return read_lines(data.source)
        case Parquet():
            return read_parquet(data.source)
        case HuggingFace():
            return read_hugging_face(data.source)
        case CmuDict():
            return read_cmudict()
        case Synthetic():
            return read_synthetic(data.source)
        case _:
            raise ValueError(f"source.kind {data.source.kind!r} is one text and has no examples.")
