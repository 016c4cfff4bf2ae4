"""What was measured, one JSON value a line, appended as it is measured.

A run that was interrupted goes on where it stopped: a line that was cut in the middle is dropped,
and a round that lacks one of its measurements is made again as a whole, so that what is compared
was measured side by side. Of several lines for one measurement the last counts.
"""

import json
import pathlib
from collections.abc import Iterable
from typing import Any

ABOUT = "about"


class Journal:
    """The measurements of a folder.

    Attributes:
        about: What every measurement was made with.
    """

    def __init__(self, path: pathlib.Path, about: dict[str, Any]):
        """Opens a journal, or begins it.

        Args:
            path: The file; its folder is made.
            about: What a measurement depends on; where it is not what the file has, the file is
                of something else.

        Raises:
            ValueError: If the file was begun with another `about`.
        """
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lines = _read(path)
        begun = [line for line in self._lines if line["kind"] == ABOUT]
        if not begun:
            self.write(ABOUT, **about)
        elif changed := [k for k in about if about[k] != begun[0].get(k)]:
            said = "; ".join(f"{k} was {begun[0].get(k)}, is {about[k]}" for k in changed)
            raise ValueError(
                f"{path} holds measurements of something else: {said}; use a new --out."
            )

    def write(self, kind: str, **fields: Any) -> None:
        """Appends a measurement."""
        line = {"kind": kind, **fields}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._lines.append(line)

    def of(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Returns the measurements of a kind that have these fields, in order."""
        wanted = {"kind": kind, **fields}
        return [line for line in self._lines if wanted.items() <= _plain(line).items()]

    def seconds(self, kind: str, **fields: Any) -> dict[int, float]:
        """Returns the seconds of a measurement by round."""
        return {line["round"]: line["seconds"] for line in self.of(kind, **fields)}

    def rounds_left(self, rounds: int, kind: str, each: Iterable[dict[str, Any]]) -> list[int]:
        """Returns the rounds in which one of several measurements is lacking.

        Args:
            rounds: How many there shall be.
            kind: Of the measurements.
            each: The fields of each.
        """
        done = [self.seconds(kind, **fields).keys() for fields in each]
        return [r for r in range(rounds) if not all(r in have for have in done)]


def _plain(line: dict[str, Any]) -> dict[str, Any]:
    """Leaves out what cannot be compared as an item of a set."""
    return {k: v for k, v in line.items() if not isinstance(v, list | dict)}


def _read(path: pathlib.Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]
