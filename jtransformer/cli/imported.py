"""What a run directory holds of the Hugging Face directory that it was imported from."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from jtransformer import records
from jtransformer.spec import RunSpec, SpecError, TokenizerFile

FOLDER = "hugging_face"
"""Below a run: config.json and the files of the tokenizer, as they came."""


class Imported(NamedTuple):
    """Ids that steer the generation of an imported run.

    Attributes:
        start: What a decoder that reads an encoder begins with.
        eos: What ends a text; None is nothing.
    """

    start: tuple[int, ...]
    eos: int | None


def folder_of(files: records.RunFiles) -> Path | None:
    """Returns where the files of an imported run lie; None for a run that was trained here."""
    folder = files.directory / FOLDER
    return folder if folder.is_dir() else None


def read_imported(files: records.RunFiles) -> Imported | None:
    """Reads what steers generation; None for a run that was trained here.

    Raises:
        SpecError: If a file cannot be read.
    """
    folder = folder_of(files)
    if folder is None:
        return None
    from jtransformer.interop import steering

    return Imported(*steering(folder))


def at_hand(spec: RunSpec, workdir: Path) -> RunSpec:
    """Returns an imported run whose tokenizer is the file in its directory, wherever that is now.

    Raises:
        SpecError: If the run was imported without a tokenizer.
    """
    if folder_of(records.RunFiles(workdir)) is None:
        return spec
    if not isinstance(spec.data.tokenizer, TokenizerFile):
        raise no_tokenizer(workdir)
    path = str((workdir / FOLDER / "tokenizer.json").absolute())
    data = dataclasses.replace(spec.data, tokenizer=TokenizerFile(path=path))
    return dataclasses.replace(spec, data=data)


def no_tokenizer(workdir: Path) -> SpecError:
    """Returns the error of a run that knows no text."""
    return SpecError(
        "--workdir",
        f"= {str(workdir)!r} was imported without a tokenizer; put tokenizer.json beside the "
        "weights and import it again.",
    )


def carry(paths: tuple[Path, ...], folder: Path) -> list[str]:
    """Copies files into a folder; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        shutil.copyfile(path, folder / path.name)
    return [path.name for path in paths]


def directory_of(argv: list[str], usage: str) -> tuple[Path, list[str]]:
    """Takes the first word of a command line, a directory.

    Raises:
        SpecError: If it is missing.
    """
    if not argv or argv[0].startswith("-"):
        raise SpecError("", f"The first word must be a directory; usage: {usage}.")
    return Path(argv[0]).expanduser(), argv[1:]


def described(model: Any) -> str:
    """Says the size of a model in words."""
    return f"{model.layers} layers of width {model.width}, vocabulary {model.vocabulary}"
