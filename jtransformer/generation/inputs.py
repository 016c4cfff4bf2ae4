"""What a model continues: checked before any work is done."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Int
from numpy.typing import ArrayLike

from jtransformer.spec import Encoder, EncoderDecoder, Learned, ModelSpec, TokenHead

MOST_TOKENS = 2**30
"""Tokens are counted in int32, those of the prompt too."""


class Given(NamedTuple):
    """What a caller gives, of whatever NumPy can read; the fields are those of `Prompt`."""

    tokens: ArrayLike
    valid: ArrayLike | None
    source: ArrayLike | None
    source_valid: ArrayLike | None


class Prompt(NamedTuple):
    """Prompts of one batch, and their sources where the model has an encoder.

    Attributes:
        tokens: Token ids; what is padding is said by `valid`, not by the ids.
        valid: False at padding, wherever it lies; None is no padding.
        source: Token ids that the encoder reads.
        source_valid: False at the padding of the source; None is no padding.
    """

    tokens: Int[Array, "B T"]
    valid: Bool[Array, "B T"] | None
    source: Int[Array, "B S"] | None
    source_valid: Bool[Array, "B S"] | None


def checked_prompt(model: ModelSpec, given: Given, *, limit: int) -> Prompt:
    """Returns the prompt as arrays, once it is known that the model can continue it.

    Args:
        model: The model.
        given: The prompts, outside a traced function.
        limit: Tokens that are to be added.

    Raises:
        ValueError: If the model does not generate, shapes do not fit, an id lies outside the
            vocabulary, a row is empty, or the positions do not suffice.
    """
    _check_model(model)
    tokens, valid = _row(given.tokens, given.valid, "prompt", model.vocabulary)
    _check_length(model, valid, tokens, more=limit - 1, name="prompt")
    if not isinstance(model.stack, EncoderDecoder):
        if given.source is not None or given.source_valid is not None:
            raise ValueError(
                f"A model with stack.kind={model.stack.kind!r} reads no source; give the prompt "
                "alone."
            )
        return Prompt(tokens, valid, None, None)
    if given.source is None:
        raise ValueError("An encoder-decoder continues a prompt for a source; give source too.")
    assert model.source_vocabulary is not None
    source, source_valid = _row(given.source, given.source_valid, "source", model.source_vocabulary)
    if source.shape[0] != tokens.shape[0]:
        raise ValueError(
            f"source and prompt must have the same rows, got source.shape={source.shape}, "
            f"prompt.shape={tokens.shape}."
        )
    _check_length(model, source_valid, source, more=0, name="source")
    return Prompt(tokens, valid, source, source_valid)


def checked_rows(rows: ArrayLike | None, B: int) -> np.ndarray:
    """Returns the number of every row, 0, 1, 2 … where none are given.

    Raises:
        ValueError: If there is not one non-negative number for every row.
    """
    if rows is None:
        return np.arange(B, dtype=np.uint32)
    numbers = np.asarray(rows)
    is_integer = np.issubdtype(numbers.dtype, np.integer)
    if numbers.shape != (B,) or not is_integer or np.any(numbers < 0):
        raise ValueError(
            "rows must hold one number of at least 0 for every row of the prompt, got rows="
            f"{numbers.tolist()} for {B} rows."
        )
    return numbers.astype(np.uint32)


def check_limit(limit: int) -> None:
    """Refuses to add nothing, or more than can be counted.

    Raises:
        ValueError: If the limit is below 1 or beyond `MOST_TOKENS`.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, got limit={limit}.")
    if limit > MOST_TOKENS:
        raise ValueError(f"limit must be at most {MOST_TOKENS}, got limit={limit}.")


def checked_eos(
    eos: int | tuple[int, ...] | None, never: tuple[int, ...], model: ModelSpec
) -> tuple[int, ...]:
    """Returns the tokens that end a row, once it is known that the model can choose them.

    Raises:
        ValueError: If one is no token of the model, or never chosen; or if none may be chosen.
    """
    ends = () if eos is None else eos if isinstance(eos, tuple) else (eos,)
    if not all(0 <= end < model.vocabulary for end in ends):
        raise ValueError(
            f"eos must be a token of the model, got eos={eos}, vocabulary={model.vocabulary}; "
            "None is no end token."
        )
    if not all(0 <= token < model.vocabulary for token in never):
        raise ValueError(
            f"never must hold tokens of the model, got never={never}, "
            f"vocabulary={model.vocabulary}; leave the others out."
        )
    if set(ends) & set(never) or len(set(never)) == model.vocabulary:
        raise ValueError(
            f"never must leave tokens to choose, those of eos among them, got never={never}, "
            f"eos={eos}; take them out of it."
        )
    return ends


def _check_model(model: ModelSpec) -> None:
    if isinstance(model.stack, Encoder):
        raise ValueError(
            "stack.kind='encoder' sees both directions and continues nothing; generate with "
            "'decoder', 'prefix_decoder' or 'encoder_decoder'."
        )
    if not isinstance(model.head, TokenHead):
        raise ValueError(
            f"head.kind={model.head.kind!r} scores no tokens; generate with a model whose head "
            "is 'tokens'."
        )


def _row(tokens: Any, valid: Any, name: str, vocabulary: int) -> tuple[Any, Any]:
    """Returns ids and validity as arrays; the validity is None where none is given."""
    ids = np.asarray(tokens)
    if ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer) or 0 in ids.shape:
        raise ValueError(
            f"{name} must hold integers with the axes B T, none of them empty, got {name}.shape="
            f"{ids.shape}, dtype={ids.dtype}; one row is [[1, 2, 3]]."
        )
    real = np.full(ids.shape, True) if valid is None else np.asarray(valid)
    if real.shape != ids.shape or real.dtype != np.bool_:
        raise ValueError(
            f"What is padding in {name} must be boolean with its axes {ids.shape}, got shape="
            f"{real.shape}, dtype={real.dtype}."
        )
    empty = np.flatnonzero(~real.any(axis=1))
    if empty.size:
        raise ValueError(
            f"Every row of {name} needs at least one real token, got none in rows "
            f"{empty.tolist()}; begin with the token that every text begins with."
        )
    low, high = int(ids[real].min()), int(ids[real].max())
    if low < 0 or high >= vocabulary:
        raise ValueError(
            f"The ids of {name} must lie in 0 … {vocabulary - 1} (vocabulary={vocabulary}), got "
            f"{low} … {high}; encode it with the tokenizer of the model."
        )
    # Padding is never read; it is given an id that surely has a row in the table.
    return np.where(real, ids, 0).astype(np.int32), None if valid is None else real


def _check_length(model: ModelSpec, valid: Any, tokens: Any, *, more: int, name: str) -> None:
    """Refuses what would need a position that was never learned."""
    position = model.position
    if not isinstance(position, Learned):
        return
    T, most = tokens.shape[1], position.max_length
    longest = T if valid is None else int(valid.sum(axis=1).max())
    if most < T:
        raise ValueError(
            f"{name} must fit position.learned.max_length, got max_length={most} and {T} tokens, "
            f"{longest} of them without padding; shorten it."
        )
    if longest + more > most:
        room = most - longest + 1
        raise ValueError(
            f"{name} and what is added must fit position.learned.max_length, got max_length="
            f"{most}, a {name} of {longest} tokens and limit={more + 1}; use limit={room} or less."
        )
