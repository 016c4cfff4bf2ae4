"""Tests for jtransformer.accounting.caches."""

import dataclasses

import jax.numpy as jnp
import model_grid
import pytest

from jtransformer.accounting import cache_bytes
from jtransformer.modules import empty_cache
from jtransformer.spec import (
    DotProduct,
    Encoder,
    EncoderDecoder,
    LatentAttention,
    LinearAttention,
    ModelSpec,
    Precision,
    RMSNorm,
    Rope,
    SpecError,
)

GOLDEN_BYTES, GOLDEN_BYTES_OF_EIGHT_HEADS = 2_147_483_648, 536_870_912
LLAMA = ModelSpec(
    vocabulary=32_000, width=4096, layers=32, heads=32, ffn="swiglu", ffn_width=11_008,
    norm=RMSNorm(), position=Rope(),
)  # fmt: skip
TWO_STACKS = EncoderDecoder(encoder_layers=5)
ROWS, CAPACITY, SOURCE = 3, 11, 7


def kept(model, chunk, dtype=jnp.float32):
    """Bytes of a real cache."""
    source = SOURCE if model.has_encoder else None
    cache = empty_cache(
        model, B=ROWS, capacity=CAPACITY, chunk=chunk, source_length=source, dtype=dtype
    )
    return cache.nbytes


def counted(model, chunk, bytes_per_number=4):
    return cache_bytes(
        model, length=CAPACITY, source_length=SOURCE if model.has_encoder else None, rows=ROWS,
        bytes_per_number=bytes_per_number, chunk=chunk,
    )  # fmt: skip


def decoders(count, seed):
    models = model_grid.models(count, seed)
    return [model for model in models if not isinstance(model.stack, Encoder)]


def test_equals_the_empty_cache_of_every_kind():
    for model in decoders(60, seed=5):
        for dtype, size in ((jnp.float32, 4), (jnp.bfloat16, 2)):
            assert counted(model, None, size) == kept(model, None, dtype), model


@pytest.mark.parametrize("chunk", [1, 4, 8, 9, 20])
@pytest.mark.parametrize("pattern", ["window", "window,full"])
def test_windows_are_rings(chunk, pattern):
    kind = DotProduct(window=3, window_pattern=pattern)
    model = ModelSpec(width=24, heads=6, key_value_heads=2, layers=3, attention=kind)
    assert counted(model, chunk) == kept(model, chunk)
    scanned = dataclasses.replace(model, scan_layers=True)
    if pattern == "window":
        assert counted(scanned, chunk) == kept(scanned, chunk)
    else:
        # One size for all layers, and no ring among them.
        assert counted(scanned, chunk) == kept(scanned, None)


def test_worked_seven_billion():
    found = cache_bytes(LLAMA, length=4096, bytes_per_number=2)
    assert found == GOLDEN_BYTES == 2 * 32 * 32 * 128 * 4096 * 2
    eight = dataclasses.replace(LLAMA, key_value_heads=8)
    assert cache_bytes(eight, length=4096, bytes_per_number=2) == GOLDEN_BYTES_OF_EIGHT_HEADS


def test_worked_memory_is_stored_once_in_each_decoder_layer():
    model = ModelSpec(width=64, layers=2, heads=4, stack=TWO_STACKS)
    both = cache_bytes(model, length=10, source_length=30)
    assert both == 4 * 2 * 64 * 2 * (10 + 30)
    assert cache_bytes(model, length=10) == 4 * 2 * 64 * 2 * (10 + 10)


def test_worked_latent_and_linear():
    latent = LatentAttention(latent_width=24, rotary_width=6, value_width=40)
    model = ModelSpec(layers=3, attention=latent, position=Rope())
    assert cache_bytes(model, length=100) == 4 * 3 * 100 * (24 + 6)
    linear = ModelSpec(layers=3, attention=LinearAttention(), heads=4, key_value_heads=2)
    assert cache_bytes(linear, length=100) == 4 * 3 * 2 * 16 * (16 + 1)
    # Sums are kept in float32 at least.
    assert cache_bytes(linear, length=7, bytes_per_number=2) == cache_bytes(linear, length=100)


def test_law_proportions():
    base = cache_bytes(LLAMA, length=64)
    assert cache_bytes(LLAMA, length=192) == 3 * base
    assert cache_bytes(LLAMA, length=64, rows=5) == 5 * base
    rounded = dataclasses.replace(LLAMA, precision=Precision(attention="bfloat16"))
    assert cache_bytes(rounded, length=64) == base // 2
    assert cache_bytes(rounded, length=64, bytes_per_number=4) == base
    others = Precision(stream="bfloat16", ffn="bfloat16", head="bfloat16")
    assert cache_bytes(dataclasses.replace(LLAMA, precision=others), length=64) == base
    assert cache_bytes(LLAMA, length=64, bytes_per_number=2) == base // 2
    assert cache_bytes(dataclasses.replace(LLAMA, key_value_heads=8), length=64) == base // 4
    assert cache_bytes(dataclasses.replace(LLAMA, layers=16), length=64) == base // 2


def test_law_a_window_caps_the_length():
    model = dataclasses.replace(LLAMA, attention=DotProduct(window=16))
    assert cache_bytes(model, length=16) == cache_bytes(LLAMA, length=16)
    assert cache_bytes(model, length=999) == cache_bytes(LLAMA, length=16)
    assert cache_bytes(model, length=999, chunk=4) == cache_bytes(LLAMA, length=19)
    assert cache_bytes(model, length=999, chunk=None) == cache_bytes(LLAMA, length=999)


def test_null_what_a_cache_does_not_depend_on():
    base = cache_bytes(LLAMA, length=64)
    for change in (dict(ffn_width=8), dict(vocabulary=9), dict(qkv_bias=True)):
        assert cache_bytes(dataclasses.replace(LLAMA, **change), length=64) == base
    assert cache_bytes(LLAMA, length=64, chunk=9) == base
    assert cache_bytes(ModelSpec(stack=Encoder()), length=64) == 0


def test_error_sizes():
    for name in ("length", "rows", "bytes_per_number", "chunk"):
        with pytest.raises(SpecError, match=f"{name} must be at least 1, got 0"):
            cache_bytes(LLAMA, **{"length": 3, name: 0})
    with pytest.raises(SpecError, match="source_length = 3 would do nothing"):
        cache_bytes(LLAMA, length=3, source_length=3)
