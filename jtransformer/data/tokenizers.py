"""Tokenizers: text to ids and back, as values that a run can save and name by a hash.

None of them knows a special token: those have ids behind the pieces, so no text contains one.
"""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jtransformer.data.library import (
    LibraryTokenizer,
    read_tokenizer,
    state_sha256,
    train_tokenizer,
)
from jtransformer.data.ragged import Ragged
from jtransformer.spec import Bytes, Characters, Trained, Words
from jtransformer.spec.data import Tokenizer as TokenizerSpec

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
"""What an unknown character or word is decoded as."""


class Tokenizer(Protocol):
    """Turns text into the ids 0 to `pieces` - 1 and back."""

    @property
    def pieces(self) -> int:
        """How many ids stand for text."""
        ...

    @property
    def sha256(self) -> str:
        """The hash of everything that decides about ids."""
        ...

    @property
    def state(self) -> dict[str, Any]:
        """Everything that decides about ids, as JSON."""
        ...

    def encode(self, text: str) -> np.ndarray:
        """Returns the ids of a text, int32."""
        ...

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns the text of ids; those that stand for no text are left out."""
        ...


@dataclasses.dataclass(frozen=True)
class ByteTokenizer:
    """The bytes of UTF-8, 0 to 255; decoding is exact, and incomplete characters are U+FFFD."""

    @property
    def pieces(self) -> int:
        return 256

    @property
    def sha256(self) -> str:
        return state_sha256(self.state)

    @property
    def state(self) -> dict[str, Any]:
        return {"kind": "bytes"}

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.uint8).astype(np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        return bytes(_pieces_of(ids, 256)).decode(errors="replace")


@dataclasses.dataclass(frozen=True)
class CharacterTokenizer:
    """Known characters in order of their code, and one id behind them for all others.

    Attributes:
        characters: The known ones, sorted.
    """

    characters: str

    @property
    def pieces(self) -> int:
        return len(self.characters) + 1

    @property
    def sha256(self) -> str:
        return state_sha256(self.state)

    @property
    def state(self) -> dict[str, Any]:
        return {"kind": "characters", "characters": self.characters}

    def encode(self, text: str) -> np.ndarray:
        codes, known = _codes(text), _codes(self.characters)
        if not len(known):
            return np.zeros(len(codes), np.int32)
        places = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        return np.where(known[places] == codes, places, len(known)).astype(np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        table = self.characters + UNKNOWN
        return "".join(table[i] for i in _pieces_of(ids, self.pieces))


class WordTokenizer:
    """Known words between single spaces, sorted, and one id behind them for all others."""

    def __init__(self, words: Sequence[str]):
        self._words = tuple(words)
        self._ids = {word: i for i, word in enumerate(self._words)}
        self._sha256 = state_sha256(self.state)

    @property
    def pieces(self) -> int:
        return len(self._words) + 1

    @property
    def sha256(self) -> str:
        return self._sha256

    @property
    def state(self) -> dict[str, Any]:
        return {"kind": "words", "words": list(self._words)}

    def encode(self, text: str) -> np.ndarray:
        unknown = len(self._words)
        # The empty text has no word, two spaces in a row have an empty one between them.
        words = text.split(" ") if text else []
        return np.array([self._ids.get(word, unknown) for word in words], np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        table = (*self._words, UNKNOWN)
        return " ".join(table[i] for i in _pieces_of(ids, self.pieces))


def make_tokenizer(spec: TokenizerSpec, texts: Iterable[str]) -> Tokenizer:
    """Makes the tokenizer of a spec.

    Args:
        spec: Which one.
        texts: The training part, both sides of pairs; no other part may have an influence.

    Raises:
        SpecError: If it cannot be read or learned.
    """
    match spec:
        case Bytes():
            return ByteTokenizer()
        case Characters():
            return CharacterTokenizer("".join(sorted(set().union(*texts))))
        case Words():
            return WordTokenizer(
                sorted({word for text in texts if text for word in text.split(" ")})
            )
        case Trained():
            return train_tokenizer(spec, texts)
        case _:
            return read_tokenizer(spec.path)


def encode_all(tokenizer: Tokenizer, texts: Sequence[str]) -> Ragged:
    """Returns the ids of many texts."""
    if isinstance(tokenizer, LibraryTokenizer):
        return Ragged.of(tokenizer.encode_many(texts))
    return Ragged.of(tokenizer.encode(text) for text in texts)


def save_tokenizer(tokenizer: Tokenizer, path: str | Path) -> None:
    """Writes a tokenizer as JSON, so that ids can be decoded without the corpus."""
    content = {"sha256": tokenizer.sha256, "state": tokenizer.state}
    Path(path).write_text(json.dumps(content), encoding="utf-8")


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Reads what `save_tokenizer` wrote.

    Raises:
        ValueError: If the file holds no tokenizer, or another one than its hash says.
        OSError: If it cannot be read.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        state, expected = content["state"], content["sha256"]
        found = state_sha256(state)
        kind = state["kind"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no tokenizer ({error}); write it again.") from error
    if found != expected:
        raise ValueError(
            f"{path} holds another tokenizer (SHA-256 {found[:12]}…) than it says "
            f"({str(expected)[:12]}…), so it was changed; write it again."
        )
    match kind:
        case "bytes":
            return ByteTokenizer()
        case "characters":
            return CharacterTokenizer(state["characters"])
        case "words":
            return WordTokenizer(state["words"])
        case "library":
            return LibraryTokenizer(state["tokenizer"])
    raise ValueError(
        f"{path} holds a tokenizer of unknown kind {kind!r}; use the version it is of."
    )


def _pieces_of(ids: Sequence[int] | np.ndarray, pieces: int) -> list[int]:
    array = np.asarray(ids, np.int64).reshape(-1)
    return array[(array >= 0) & (array < pieces)].tolist()


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), "<u4")
