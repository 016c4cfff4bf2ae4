"""What a call of a model is given, checked once."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from jtransformer import functional as F
from jtransformer.modules.cache import DecodingCache, Step
from jtransformer.modules.parts import parts_of
from jtransformer.spec import (
    Classifier,
    Embedder,
    Encoder,
    LinearAttention,
    ModelSpec,
    PrefixDecoder,
)


class Call(NamedTuple):
    """The arguments of a call, by the names of `Transformer.__call__`."""

    tokens: Array | None
    positions: Array | None
    valid: Array | None
    segments: Array | None
    source: Array | None
    source_valid: Array | None
    source_segments: Array | None
    source_positions: Array | None
    prefix_length: Any
    token_types: Array | None
    embeddings: Array | None
    source_embeddings: Array | None
    cache: DecodingCache | None
    ordered: bool = False

    def by_place(self, positions: Array | None, valid: Array | None) -> bool:
        """Says whether tokens with these positions see one another by their places."""
        return self.ordered or (positions is None and valid is None)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and tokens."""
        given = self.tokens if self.embeddings is None else self.embeddings
        assert given is not None
        return given.shape[0], given.shape[1]

    @property
    def source_shape(self) -> tuple[int, int] | None:
        """Rows and tokens of the source; None without one."""
        given = self.source if self.source_embeddings is None else self.source_embeddings
        return None if given is None else (given.shape[0], given.shape[1])


def check_call(spec: ModelSpec, call: Call) -> None:
    """Refuses a call that the model cannot answer.

    Raises:
        ValueError: For the first rule that is broken.
    """
    _check_tokens(spec, call)
    _check_source(spec, call)
    _check_prefix(spec, call)
    _check_segments(spec, call)
    if call.cache is not None:
        _check_cached(spec, call, call.cache)


def _check_tokens(spec: ModelSpec, call: Call) -> None:
    if (call.tokens is None) == (call.embeddings is None):
        which = "neither" if call.tokens is None else "both"
        raise ValueError(f"A call has either tokens or embeddings, got {which}; give one of them.")
    if call.embeddings is not None and call.embeddings.shape[-1] != spec.width:
        raise ValueError(
            f"embeddings must be of the model's width, got embeddings.shape="
            f"{call.embeddings.shape}; use width={spec.width}."
        )
    if call.token_types is not None and not (
        isinstance(spec.stack, Encoder) and spec.stack.token_types
    ):
        raise ValueError(
            f"token_types belong to an encoder with a table of them, got stack={spec.stack}; leave "
            "them out or set stack.encoder.token_types."
        )


def _check_source(spec: ModelSpec, call: Call) -> None:
    encoder, _ = parts_of(spec)
    if encoder is None:
        for name in (
            "source", "source_embeddings", "source_valid", "source_segments", "source_positions",
        ):  # fmt: skip
            if getattr(call, name) is not None:
                raise ValueError(
                    f"{name} belongs to a model with an encoder of its own, got stack.kind="
                    f"{spec.stack.kind!r}; leave it out or use 'encoder_decoder'."
                )
        return
    if call.source is not None and call.source_embeddings is not None:
        raise ValueError(
            "A call has either source or source_embeddings, got both; give one of them."
        )
    if call.source_shape is None:
        if call.cache is None:
            raise ValueError(
                "An encoder-decoder reads a source, got source=None; give source, or a cache that "
                "holds it."
            )
        for name in ("source_valid", "source_segments", "source_positions"):
            if getattr(call, name) is not None:
                raise ValueError(
                    f"{name} belongs to a source, got source=None; the cache has kept it."
                )
        return
    if call.source_shape[0] != call.shape[0]:
        raise ValueError(
            f"source and tokens must have the same rows, got {call.source_shape[0]} and "
            f"{call.shape[0]}."
        )


def _check_prefix(spec: ModelSpec, call: Call) -> None:
    if not isinstance(spec.stack, PrefixDecoder):
        if call.prefix_length is not None:
            raise ValueError(
                f"prefix_length belongs to stack.kind 'prefix_decoder', got stack.kind="
                f"{spec.stack.kind!r}; leave it out."
            )
        return
    if call.prefix_length is None:
        if call.cache is None:
            raise ValueError(
                "A prefix decoder needs prefix_length, got None; give the tokens of the prefix, 0 "
                "for none."
            )
        return
    if isinstance(call.prefix_length, Tracer):
        return
    lengths, T = np.asarray(call.prefix_length), call.shape[1]
    if lengths.size and (lengths.min() < 0 or lengths.max() > T):
        hint = "; the first call with a cache holds the whole prefix" if call.cache else ""
        raise ValueError(
            f"prefix_length must lie in 0 … T, got prefix_length={lengths.tolist()}, T={T}{hint}."
        )


def _check_segments(spec: ModelSpec, call: Call) -> None:
    if call.segments is None and call.source_segments is None:
        return
    if isinstance(spec.attention, LinearAttention):
        raise ValueError(
            "segments need attention that keeps documents apart, and linear attention has one "
            "state for all; give a document a row."
        )
    if isinstance(spec.head, Classifier | Embedder):
        raise ValueError(
            f"head.kind={spec.head.kind!r} has one answer for a whole row, got segments; give a "
            "document a row."
        )
    if parts_of(spec).encoder is not None and (
        (call.segments is None) != (call.source_segments is None)
    ):
        missing = "segments" if call.segments is None else "source_segments"
        raise ValueError(
            f"segments and source_segments say which source a target reads, got {missing}=None; "
            "give both."
        )


def _check_cached(spec: ModelSpec, call: Call, cache: DecodingCache) -> None:
    if isinstance(spec.stack, Encoder):
        raise ValueError("An encoder reads all tokens at once, got a cache; leave it out.")
    if isinstance(spec.head, Classifier | Embedder):
        raise ValueError(
            f"head.kind={spec.head.kind!r} pools all tokens of a row, got a cache, whose calls "
            "have some of them; leave it out."
        )
    for name in ("positions", "segments", "source_segments"):
        if getattr(call, name) is not None:
            raise ValueError(
                f"{name} cannot be given with a cache, which counts the tokens of each row by "
                "itself; leave it out."
            )
    if cache.length.shape[0] != call.shape[0]:
        raise ValueError(
            f"The cache must have the rows of the tokens, got {cache.length.shape[0]} and "
            f"{call.shape[0]}."
        )
    if call.source_shape is not None:
        assert cache.source_valid is not None
        S = cache.source_valid.shape[1]
        if call.source_shape[1] != S:
            raise ValueError(
                f"The source must have the length that the cache was made for, got "
                f"{call.source_shape[1]}; pad it to source_length={S} and give source_valid."
            )


def positions_of(T: int, positions: Array | None, valid: Array | None) -> Array:
    """Returns the positions of tokens: as given, else counted over the real ones of each row."""
    if positions is not None:
        return positions
    if valid is not None:
        return F.token_positions(valid)
    return jnp.arange(T, dtype=jnp.int32)[None]


def advanced(call: Call) -> Step:
    """Counts the tokens of a call with a cache."""
    assert call.cache is not None
    source_valid = call.source_valid
    if source_valid is None and call.source_shape is not None:
        source_valid = jnp.ones(call.source_shape, bool)
    return call.cache.advance(
        call.shape[1],
        valid=call.valid,
        source_valid=source_valid,
        prefix_length=call.prefix_length,
    )
