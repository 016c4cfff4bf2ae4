"""Documents and pairs, line by line or row by row.

What is wrong with a line is told by its number, counted from 1, and whether that ends the run or
skips the line is the caller's choice. A byte order mark at the head of a file and the carriage
return of a line's end are no text. What makes the whole file useless is refused at once.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from jtransformer.data.sources import (
    FILE_ERRORS,
    Example,
    Fault,
    existing,
    missing_package,
    unreadable,
)
from jtransformer.spec import HuggingFace, JsonLines, Parquet, SpecError, TextPairs

ROWS_AT_A_TIME = 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(source: JsonLines | TextPairs) -> Iterator[Example | Fault]:
    """Reads a file of one example a line.

    Raises:
        SpecError: If it cannot be read.
    """
    read = _pair if isinstance(source, TextPairs) else _object_reader(source)
    try:
        with existing(source.path).open("rb") as file:
            for number, line in enumerate(file, start=1):
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                if number == 1:
                    line = line.removeprefix(BYTE_ORDER_MARK)
                yield _line(number, line, read)
    except FILE_ERRORS as error:
        raise unreadable(f"data.source.{source.kind}.path", source.path, error) from error


def _line(number: int, line: bytes, read: Callable[[int, str], Example | Fault]) -> Example | Fault:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        return Fault(number, f"is not UTF-8 (byte {error.start + 1} of the line)")
    if not text:
        return Fault(number, "is empty")
    if "\0" in text:
        return Fault(number, "holds a NUL byte")
    return read(number, text)


def _pair(number: int, text: str) -> Example | Fault:
    source, *targets = text.split("\t")
    if len(targets) != 1:
        return Fault(number, f"has {len(targets)} tabs instead of one")
    return _example(number, {"source": source, "target": targets[0]}, "target", "source")


def _object_reader(source: JsonLines) -> Callable[[int, str], Example | Fault]:
    def read(number: int, text: str) -> Example | Fault:
        try:
            found = json.loads(text)
        # A line of a million brackets is no ValueError.
        except (ValueError, RecursionError) as error:
            return Fault(number, f"is no JSON ({error})")
        if not isinstance(found, dict):
            return Fault(number, f"is a JSON {type(found).__name__} instead of an object")
        return _example(number, found, source.field, source.source_field)

    return read


def _example(number: int, row: dict[str, Any], field: str, source_field: str) -> Example | Fault:
    """Takes the texts out of a row."""
    found: list[str] = []
    for name in (field, source_field):
        if not name:
            continue
        if name not in row:
            return Fault(number, f"has no field {name!r} (it has {', '.join(map(repr, row))})")
        value = row[name]
        if not isinstance(value, str):
            what = "null" if value is None else type(value).__name__
            return Fault(number, f"has a field {name!r} that is {what} instead of a string")
        if not value:
            return Fault(number, f"has an empty {name!r}")
        try:
            value.encode()
        except UnicodeEncodeError:
            return Fault(number, f"has half a surrogate pair in {name!r}, which is no character")
        found.append(value)
    return Example(number, found[1] if source_field else None, found[0])


def read_parquet(source: Parquet) -> Iterator[Example | Fault]:
    """Reads the rows of a parquet file.

    Raises:
        SpecError: If the package is missing, or the file cannot be read or lacks the columns.
    """
    setting = "data.source.parquet.path"
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise missing_package("data.source.kind", "parquet", "pyarrow", "data") from error
    fields = [name for name in (source.field, source.source_field) if name]
    try:
        with parquet.ParquetFile(existing(source.path)) as file:
            _check_columns("parquet", source, [str(name) for name in file.schema_arrow.names])
            number = 0
            for batch in file.iter_batches(ROWS_AT_A_TIME, columns=fields):
                columns = {name: batch.column(name) for name in fields}
                for i in range(batch.num_rows):
                    number += 1
                    yield _row(number, columns, i, source)
    except SpecError:
        raise
    except FILE_ERRORS as error:
        raise unreadable(setting, source.path, error) from error


def _row(number: int, columns: dict[str, Any], i: int, source: Parquet) -> Example | Fault:
    try:
        row = {name: column[i].as_py() for name, column in columns.items()}
    except UnicodeDecodeError as error:
        return Fault(number, f"is not UTF-8 (byte {error.start + 1} of the text)")
    return _example(number, row, source.field, source.source_field)


def read_hugging_face(source: HuggingFace) -> Iterator[Example | Fault]:
    """Reads the rows of a Hugging Face data set.

    Raises:
        SpecError: If the package is missing, or the data set cannot be read or lacks the columns.
    """
    try:
        import datasets
    except ImportError as error:
        raise missing_package("data.source.kind", "hugging_face", "datasets", "data") from error
    setting = "data.source.hugging_face.name"
    try:
        folder = existing(source.name)
        is_folder = folder.is_dir()
        if is_folder:
            found = _split_of(datasets.load_from_disk(str(folder)), source)
        else:
            found = datasets.load_dataset(
                source.name, source.configuration or None, split=source.split
            )
    except SpecError:
        raise
    except FILE_ERRORS as error:
        reason = " ".join(str(error).split())
        raise SpecError(
            setting,
            f"= {source.name!r} cannot be read ({reason}); give a folder that "
            "Dataset.save_to_disk wrote, or a name on the hub and a network.",
        ) from error
    dataset: Any = found
    _check_columns("hugging_face", source, list(dataset.column_names))
    fields = [name for name in (source.field, source.source_field) if name]
    number = 0
    for rows in dataset.select_columns(fields).iter(batch_size=ROWS_AT_A_TIME):
        for values in zip(*(rows[name] for name in fields), strict=True):
            number += 1
            row = dict(zip(fields, values, strict=True))
            yield _example(number, row, source.field, source.source_field)


def _split_of(found: Any, source: HuggingFace) -> Any:
    if source.configuration:
        raise SpecError(
            "data.source.hugging_face.configuration",
            f"= {source.configuration!r} would do nothing with a folder, which holds one "
            "configuration; leave it out.",
        )
    if isinstance(found, dict):
        names = list(found)
        chosen = found.get(source.split)
    else:
        # A data set that was saved alone may not say which split it was.
        names = [str(found.split or "train")]
        chosen = found if names == [source.split] else None
    if chosen is None:
        raise SpecError(
            "data.source.hugging_face.split",
            f"= {source.split!r} is not in {source.name!r}; use {' or '.join(map(repr, names))}.",
        )
    return chosen


def _check_columns(kind: str, source: Parquet | HuggingFace, columns: list[str]) -> None:
    for setting in ("field", "source_field"):
        name = source.field if setting == "field" else source.source_field
        if name and name not in columns:
            raise SpecError(
                f"data.source.{kind}.{setting}",
                f"= {name!r} is no column; use {' or '.join(map(repr, columns))}.",
            )
