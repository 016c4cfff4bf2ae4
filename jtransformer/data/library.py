"""Pieces of the `tokenizers` library, learned from a text or read from a tokenizer.json.

Both algorithms work on bytes that are written as 256 printable characters (Radford et al. 2019,
sec. 2.2, https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf),
all of which are pieces: every text has ids, and decoding gives it back exactly. Byte-pair
encoding is that of Sennrich et al. 2016, sec. 3.2 (https://arxiv.org/abs/1508.07909), unigram
that of Kudo 2018, sec. 3.2 (https://arxiv.org/abs/1804.10959).

Bytes that a unigram model did not learn are given scores by the library that climb from the lowest
one by 0.0001, in an order that differs from one training to the next; all scores differ in their
last digits. Here those bytes share the lowest score, scores are rounded and pieces are sorted, so
that the same text gives the same tokenizer.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jtransformer.data.sources import FILE_ERRORS, existing, unreadable
from jtransformer.spec import SpecError, Trained

SCORE_DIGITS = 6
"""Decimals of a unigram score; sums of one text agree to about 1e-12."""
RARE = 0.0001 * 256
"""Nats above the lowest score that unlearned bytes can have."""


class LibraryTokenizer:
    """A tokenizer of the `tokenizers` library, without its special tokens, padding and cutting."""

    def __init__(self, settings: dict[str, Any]):
        """Makes it from the content of a tokenizer.json.

        Raises:
            ValueError: If that is no tokenizer.
            SpecError: If the package is missing.
        """
        Tokenizer = _library().Tokenizer
        # Whatever these would do, a row is filled and cut in one place, and ids are no lottery.
        settings = settings | {"padding": None, "truncation": None}
        if isinstance(settings.get("model"), dict) and "dropout" in settings["model"]:
            settings["model"] = settings["model"] | {"dropout": None}
        try:
            self._tokenizer: Any = Tokenizer.from_str(json.dumps(settings))
        except Exception as error:  # The library raises nothing narrower.
            raise ValueError(" ".join(str(error).split())) from error
        # A text that spells a special token is text.
        self._tokenizer.encode_special_tokens = True
        self._settings = settings
        self._pieces = max(self._tokenizer.get_vocab().values(), default=-1) + 1
        if not self._pieces:
            raise ValueError("it has no pieces")
        self._sha256 = state_sha256(self.state)

    @property
    def pieces(self) -> int:
        return self._pieces

    @property
    def sha256(self) -> str:
        return self._sha256

    @property
    def state(self) -> dict[str, Any]:
        return {"kind": "library", "tokenizer": self._settings}

    def encode(self, text: str) -> np.ndarray:
        return self.encode_many([text])[0]

    def encode_marked(self, text: str) -> np.ndarray:
        """Returns the ids of a text and of the special tokens that its file puts around one.

        What was trained elsewhere has seen texts so; rows made here have their own.
        """
        return np.array(self._tokenizer.encode(text, add_special_tokens=True).ids, np.int32)

    def encode_many(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Returns the ids of each text, int32.

        Raises:
            SpecError: If a text has no ids, as that of a file without an unknown token may.
        """
        try:
            found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        except Exception as error:  # The library raises nothing narrower.
            reason = " ".join(str(error).split())
            raise SpecError(
                "data.tokenizer.file.path", f"cannot encode a text ({reason}); give another file."
            ) from error
        return [np.array(encoding.ids, np.int32) for encoding in found]

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        array = np.asarray(ids, np.int64).reshape(-1)
        known = array[(array >= 0) & (array < self._pieces)].tolist()
        return self._tokenizer.decode(known, skip_special_tokens=True)


def state_sha256(state: dict[str, Any]) -> str:
    """Returns the hash of a tokenizer's state."""
    canonical = json.dumps(state, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise SpecError(
            "data.tokenizer.kind", "needs the package tokenizers; pip install 'jtransformer[data]'."
        ) from error
    return tokenizers


def train_tokenizer(spec: Trained, texts: Iterable[str]) -> LibraryTokenizer:
    """Learns pieces from texts.

    Raises:
        SpecError: If the package is missing, or the texts have fewer pieces than are asked for.
    """
    library = _library()
    models, trainers, pre_tokenizers = library.models, library.trainers, library.pre_tokenizers
    is_bpe = spec.algorithm == "bpe"
    tokenizer = library.Tokenizer(models.BPE() if is_bpe else models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    make = trainers.BpeTrainer if is_bpe else trainers.UnigramTrainer
    trainer = make(
        vocab_size=spec.pieces,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # By lines, so that a long text is counted by all processors; pieces do not cross line ends.
    lines = (line for text in texts for line in text.splitlines(keepends=True))
    tokenizer.train_from_iterator(lines, trainer)
    found = tokenizer.get_vocab_size()
    if found != spec.pieces:
        raise SpecError(
            "data.tokenizer.trained.pieces",
            f"= {spec.pieces}, but the training part has {found} pieces for "
            f"{spec.algorithm!r}; use at most {found} or more text.",
        )
    settings = json.loads(tokenizer.to_str())
    if not is_bpe:
        settings["model"]["vocab"] = _in_one_order(settings["model"]["vocab"])
    return LibraryTokenizer(settings)


def _in_one_order(vocabulary: list[list[Any]]) -> list[list[Any]]:
    lowest = min(score for _, score in vocabulary)
    scores = {
        piece: round(lowest if len(piece) == 1 and score < lowest + RARE else score, SCORE_DIGITS)
        for piece, score in vocabulary
    }
    return [[piece, scores[piece]] for piece in sorted(scores, key=lambda p: (-scores[p], p))]


def read_tokenizer(path: str) -> LibraryTokenizer:
    """Reads a tokenizer.json.

    Raises:
        SpecError: If the package is missing, or the file cannot be read or is no tokenizer.
    """
    setting = "data.tokenizer.file.path"
    try:
        content = existing(path).read_bytes()
    except FILE_ERRORS as error:
        raise unreadable(setting, path, error) from error
    try:
        settings = json.loads(content)
        if not isinstance(settings, dict):
            raise ValueError("it is no JSON object")
        return LibraryTokenizer(settings)
    except SpecError:
        raise
    except (ValueError, RecursionError) as error:
        raise SpecError(
            setting, f"= {path!r} is no tokenizer.json ({error}); give one of `tokenizers`."
        ) from error
