"""Which launcher is meant, and its settings from the words of a command line."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jtransformer.spec import SpecError
from jtransformer.sweep.launchers.local import Local
from jtransformer.sweep.launchers.protocol import Launcher
from jtransformer.sweep.launchers.ray_cluster import Ray
from jtransformer.sweep.launchers.slurm_queue import Slurm

LAUNCHERS = {"local": Local, "ray": Ray, "slurm": Slurm}


def launcher(name: str, words: Sequence[str], workdir: Path) -> Launcher:
    """Returns a launcher for a work directory; nothing is started or imported yet.

    Args:
        name: "local", "ray" or "slurm".
        words: Its settings, each NAME=VALUE.
        workdir: The work directory, absolute.

    Raises:
        SpecError: For an unknown launcher or setting, or a value of another type.
    """
    if name not in LAUNCHERS:
        raise SpecError("--launcher", f"must be one of {', '.join(LAUNCHERS)}, got {name!r}.")
    cls = LAUNCHERS[name]
    fields = {
        field.name: field.type for field in dataclasses.fields(cls) if field.name != "workdir"
    }
    given: dict[str, Any] = {}
    for word in words:
        option, equals, text = word.partition("=")
        if option not in fields:
            allowed = f"use one of {', '.join(fields)}" if fields else "it has none"
            raise SpecError(f"--option {word}", f"is no setting of {name}; {allowed}.")
        if not equals:
            raise SpecError(f"--option {word}", f"has no value; write {option}=VALUE.")
        given[option] = _read(word, text, fields[option])
    return cls(workdir=workdir, **given)


def _read(word: str, text: str, kind: Any) -> Any:
    """Reads a value; numbers are above 0, for what is absent is left out."""
    if kind in (int, int | None, float, float | None):
        number = int if kind in (int, int | None) else float
        try:
            value = number(text)
        except ValueError:
            value = 0
        if not 0 < value < float("inf"):
            noun = "a whole number" if number is int else "a number"
            raise SpecError(f"--option {word}", f"must be {noun} above 0, got {text!r}.")
        return value
    if not text:
        raise SpecError(f"--option {word}", "must not be empty; leave it out.")
    return text
