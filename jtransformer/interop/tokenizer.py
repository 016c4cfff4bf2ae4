"""The tokenizer of a Hugging Face directory, and the ids that steer its generation."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jtransformer.interop.files import CONFIG, read_object
from jtransformer.spec import SpecError

TOKENIZER, GENERATION = "tokenizer.json", "generation_config.json"
OLDER = ("vocab.json", "vocab.txt", "tokenizer.model", "spiece.model", "source.spm")
"""Files of tokenizers that have no tokenizer.json; transformers makes one of them."""


class Steering(NamedTuple):
    """Ids with which generation begins and ends.

    Attributes:
        start: What a decoder that reads an encoder begins with; empty where there is none.
        eos: What ends a text; None is nothing.
    """

    start: tuple[int, ...]
    eos: int | None


def steering(directory: Path) -> Steering:
    """Reads ids of generation: of generation_config.json, else of config.json.

    Of several ids that end a text the first counts.

    Raises:
        SpecError: If a file cannot be read.
    """
    fields = read_object(directory / CONFIG)
    if (directory / GENERATION).exists():
        fields |= {k: v for k, v in read_object(directory / GENERATION).items() if v is not None}
    start = [_id(fields, "decoder_start_token_id"), _id(fields, "forced_bos_token_id")]
    if start[0] is None:
        start = []
    return Steering(tuple(i for i in start if i is not None), _id(fields, "eos_token_id"))


def _id(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if isinstance(value, list) and value:
        value = value[0]
    if value is not None and type(value) is not int:
        raise SpecError(name, f"= {value!r} must be the id of a token.")
    return value


def tokenizer_settings(directory: Path) -> dict[str, Any] | None:
    """Returns the content of tokenizer.json; made by transformers where only older files are there.

    Returns:
        None where there is no tokenizer.

    Raises:
        SpecError: If it cannot be read or made.
    """
    if (directory / TOKENIZER).exists():
        return read_object(directory / TOKENIZER)
    if not any((directory / name).exists() for name in OLDER):
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
            "", f"The tokenizer of {directory} cannot be made ({sentence}); add {TOKENIZER}."
        ) from None
