"""The tokenizer of a Hugging Face directory, and the ids that steer its generation."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jtransformer.interop.files import CONFIG, is_there, read_object
from jtransformer.spec import SpecError

TOKENIZER, GENERATION = "tokenizer.json", "generation_config.json"
UNFOLLOWED: Mapping[str, Any] = {
    "begin_suppress_tokens": [],
    "sequence_bias": [],
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "min_length": 0,
    "min_new_tokens": 0,
}
"""Fields that take tokens away, each with the value that does nothing. How one of the others is
chosen is the caller's choice."""
OLDER = ("vocab.json", "vocab.txt", "tokenizer.model", "spiece.model", "source.spm")
"""Files of tokenizers that have no tokenizer.json; transformers makes one of them."""


class Steering(NamedTuple):
    """Ids with which generation begins and ends.

    Attributes:
        start: What a decoder that reads an encoder begins with; empty where there is none.
        eos: What ends a text, each of them.
        never: What is in no text.
        unfollowed: Fields that would make `transformers` choose other tokens, and are not followed.
    """

    start: tuple[int, ...]
    eos: tuple[int, ...]
    never: tuple[int, ...]
    unfollowed: dict[str, Any]


def steering(directory: Path, vocabulary: int) -> Steering:
    """Reads what steers generation: of generation_config.json, else of config.json.

    Args:
        directory: Where they are.
        vocabulary: Ids of the model; it cannot end with one beyond them.

    Raises:
        SpecError: If a file cannot be read, or an id is none.
    """
    fields = read_object(directory / CONFIG)
    if is_there(directory / GENERATION):
        fields |= {k: v for k, v in read_object(directory / GENERATION).items() if v is not None}
    start = _ids(fields, "decoder_start_token_id")[:1]
    if start:
        start += _ids(fields, "forced_bos_token_id")[:1]
    ends = tuple(end for end in _ids(fields, "eos_token_id") if end < vocabulary)
    never, words = _never(fields)
    other = {
        name: fields[name]
        for name, neutral in UNFOLLOWED.items()
        if fields.get(name) not in (None, neutral)
    }
    if words:
        other["bad_words_ids"] = words
    return Steering(start, ends, tuple(sorted(one for one in never if one < vocabulary)), other)


def _never(fields: Mapping[str, Any]) -> tuple[set[int], list[Any]]:
    """Returns the tokens that are never chosen, and sequences of several that are not."""
    words = fields.get("bad_words_ids") or []
    if not isinstance(words, list) or not all(isinstance(word, list) for word in words):
        raise SpecError("bad_words_ids", f"= {words!r} must be a list of lists of tokens.")
    alone = [_ids({"bad_words_ids": word}, "bad_words_ids") for word in words if len(word) == 1]
    never = {*_ids(fields, "suppress_tokens"), *(one for word in alone for one in word)}
    return never - {*_ids(fields, "eos_token_id")}, [word for word in words if len(word) > 1]


def _ids(fields: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Returns the ids of a field that holds one, several or none."""
    value = fields.get(name)
    found = [] if value is None else value if isinstance(value, list) else [value]
    if not all(type(one) is int and one >= 0 for one in found):
        raise SpecError(name, f"= {value!r} must be the id of a token, or a list of such.")
    return tuple(found)


def tokenizer_settings(directory: Path) -> dict[str, Any] | None:
    """Returns the content of tokenizer.json; made by transformers where only older files are there.

    Returns:
        None where there is no tokenizer.

    Raises:
        SpecError: If it cannot be read or made.
    """
    if is_there(directory / TOKENIZER):
        return read_object(directory / TOKENIZER)
    if not any(is_there(directory / name) for name in OLDER):
        return None
    try:
        from transformers import AutoTokenizer  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise SpecError(
            "",
            f"{directory} has a tokenizer without {TOKENIZER}, which transformers makes; "
            "pip install 'jtransformer[interop]'.",
        ) from None
    try:
        made = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
        return json.loads(made.backend_tokenizer.to_str())
    except (ValueError, OSError, ImportError, AttributeError, KeyError, TypeError) as error:
        sentence = " ".join(str(error).split()).rstrip(".")
        raise SpecError(
            "",
            f"The tokenizer of {directory} cannot be made ({sentence}); add {TOKENIZER}, or take "
            "the files of the tokenizer away to have the model alone.",
        ) from None
