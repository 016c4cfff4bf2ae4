"""What a run directory holds of the Hugging Face directory that it was imported from."""

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jtransformer import records
from jtransformer.spec import RunSpec, SpecError, TokenizerFile

FOLDER = "hugging_face"
"""Below a run: config.json and the files of the tokenizer, as they came."""


def folder_of(files: records.RunFiles) -> Path | None:
    """Returns where the files of an imported run lie; None for a run that was trained here."""
    folder = files.directory / FOLDER
    return folder if folder.is_dir() else None


def read_imported(files: records.RunFiles, spec: RunSpec) -> Any:
    """Reads the `Steering` of generation; None for a run that was trained here.

    Raises:
        SpecError: If a file cannot be read.
    """
    folder = folder_of(files)
    if folder is None:
        return None
    from jtransformer.interop import steering

    return steering(folder, spec.model.vocabulary)


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


@contextlib.contextmanager
def made_whole(directory: Path, last: str) -> Iterator[Path]:
    """Gives a place to write in, whose content becomes that of a directory when all is there.

    What was killed on the way is begun anew.

    Args:
        directory: Where it is to be.
        last: The file that makes it what it is.

    Raises:
        SpecError: If there is something already.
    """
    place = directory / ".partial"
    if directory.is_symlink() and not directory.exists():
        raise SpecError("", f"{directory} is a link that leads nowhere; name a new directory.")
    if directory.exists() and not directory.is_dir():
        raise SpecError("", f"{directory} is a file; name a new directory.")
    if directory.exists() and any(path != place for path in directory.iterdir()):
        raise SpecError("", f"{directory} is not empty; name a new directory.")
    was_there = directory.exists()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        yield place
        for path in sorted(place.iterdir(), key=lambda path: path.name == last):
            path.rename(directory / path.name)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if not was_there and not any(directory.iterdir()):
            directory.rmdir()


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
    layers = f"{model.layers} layers"
    if model.has_encoder:
        layers = f"{model.stack.encoder_layers} + {layers}"
    return f"{layers} of width {model.width}, vocabulary {model.vocabulary}"
