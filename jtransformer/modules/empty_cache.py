"""Empty caches, for every kind of attention.

Sizes: keys and values of every token, see `jtransformer.functional.cache`; a latent and a rotary
key, DeepSeek-AI 2024, sec. 2.1, https://arxiv.org/abs/2405.04434; sums, whose size does not depend
on the length, Katharopoulos et al. 2020, sec. 3.4, https://arxiv.org/abs/2006.16236.
"""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from jtransformer import functional as F
from jtransformer.modules.cache import DecodingCache
from jtransformer.modules.context import LayerCache, windows
from jtransformer.modules.layers import at_least_float32
from jtransformer.modules.parts import parts_of
from jtransformer.spec import (
    DotProduct,
    Encoder,
    EncoderDecoder,
    LatentAttention,
    Learned,
    LinearAttention,
    ModelSpec,
    PrefixDecoder,
)


def empty_cache(
    model: ModelSpec,
    *,
    B: int,
    capacity: int,
    chunk: int | None = None,
    source_length: int | None = None,
    dtype: DTypeLike | None = None,
) -> DecodingCache:
    """Makes the cache from which decoding starts.

    Args:
        model: The model.
        B: Rows.
        capacity: Tokens that a row can hold.
        chunk: Makes rings of the layers with a window, which take so many tokens a call at most;
            None gives every layer `capacity` slots.
        source_length: Tokens of a source, padding included; where there is an encoder.
        dtype: What keys and values are stored in; None is the type in which attention is computed.
            Sums are kept in float32 at least.

    Raises:
        ValueError: If the model does not decode, its positions end before the capacity, a size
            is below 1, or an argument would do nothing.
    """
    _check_cache(model, B, capacity, chunk, source_length)
    part = parts_of(model).main
    dtype = model.precision.attention if dtype is None else dtype
    layers = tuple(
        _layer_cache(
            model,
            B=B,
            capacity=capacity,
            ring=chunk if has_window else None,
            source_length=source_length,
            dtype=dtype,
        )
        for has_window in windows(model, part)
    )
    S = source_length
    return DecodingCache(
        layers=jax.tree.map(lambda *x: jnp.stack(x), *layers) if model.scan_layers else layers,
        length=jnp.zeros(B, jnp.int32),
        overflowed=jnp.zeros(B, bool),
        misused=jnp.zeros(B, bool),
        prefix_length=jnp.full(B, -1) if isinstance(model.stack, PrefixDecoder) else None,
        source_valid=None if S is None else jnp.zeros((B, S), bool),
        has_source=None if S is None else jnp.zeros(B, bool),
        capacity=capacity,
        stacked=model.scan_layers,
    )


def _check_cache(
    model: ModelSpec, B: int, capacity: int, chunk: int | None, source_length: int | None
) -> None:
    if isinstance(model.stack, Encoder):
        raise ValueError(
            "An encoder reads all tokens at once and has no cache, got stack.kind='encoder'; "
            "use a decoder."
        )
    sizes = dict(B=B, capacity=capacity, chunk=chunk, source_length=source_length)
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, got {name}={size}.")
    has_encoder = isinstance(model.stack, EncoderDecoder)
    if has_encoder != (source_length is not None):
        raise ValueError(
            f"source_length belongs to models with an encoder and they need it, got source_length="
            f"{source_length}, stack.kind={model.stack.kind!r}; "
            f"{'give it' if has_encoder else 'leave it out'}."
        )
    if isinstance(model.position, Learned) and capacity > model.position.max_length:
        raise ValueError(
            f"capacity={capacity} is more than position.max_length={model.position.max_length} "
            "learned positions; make a smaller cache."
        )
    if chunk is not None:
        with_window = windows(model, parts_of(model).main)
        if not any(with_window):
            raise ValueError(f"chunk={chunk} would do nothing: no layer has a window; use None.")
        if model.scan_layers and not all(with_window):
            raise ValueError(
                f"chunk={chunk} makes rings of some layers alone, and layers that are scanned have "
                "caches of one size; use chunk=None or scan_layers=False."
            )


def _layer_cache(
    model: ModelSpec,
    *,
    B: int,
    capacity: int,
    ring: int | None,
    source_length: int | None,
    dtype: DTypeLike,
) -> LayerCache:
    K, H = model.K, model.H
    memory = (None, None)
    if source_length is not None:
        shape = (B, source_length, K, H)
        memory = (jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))
    match model.attention:
        case LinearAttention():
            wide = at_least_float32(dtype)
            return LayerCache(F.LinearAttentionState.empty(B, K, H, H, dtype=wide), *memory)
        case LatentAttention(latent_width=C, rotary_width=Hr):
            kept = F.KVCache.create(B=B, K=1, H=C, Hv=Hr or 1, capacity=capacity, dtype=dtype)
            return LayerCache(kept, *memory)
        case DotProduct(window=int(window)) if ring is not None and window + ring <= capacity:
            kept = F.KVCache.create(B=B, K=K, H=H, window=window, chunk=ring, dtype=dtype)
            return LayerCache(kept, *memory)
        case _:
            kept = F.KVCache.create(B=B, K=K, H=H, capacity=capacity, dtype=dtype)
            return LayerCache(kept, *memory)
