"""Tests for jtransformer.functional.tpu_attention, which Pallas interprets here."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer.functional import (
    Visibility,
    attention_backend,
    causal_mask,
    dot_product_attention,
    tpu_attention,
)

B, T, N, K, H, Hv = 2, 256, 4, 2, 8, 16
PLACES = jnp.arange(T)[None]
# Documents of 100 and 120 tokens and padding, in the second row one of 250.
ENDS = np.array([[100, 220], [250, 250]])
SEGMENTS = jnp.array([np.searchsorted(ends, np.arange(T), side="right") for ends in ENDS])
REAL = jnp.arange(T)[None] < ENDS[:, -1:]
MEMORY = jnp.arange(384)[None]
ACROSS = Visibility(
    jnp.zeros_like(PLACES),
    jnp.zeros_like(MEMORY),
    causal=False,
    query_segments=SEGMENTS,
    key_segments=jnp.where(MEMORY < 200, 0, 1) + jnp.array([[0], [7]]),
    key_valid=jnp.array([300, 150])[:, None] > MEMORY,
)
CASES = {
    "causal": dict(mask=Visibility.of_places(T)),
    "all": dict(),
    "window": dict(mask=Visibility.of_places(T, window=100), scale=0.5, soft_cap=1.5),
    "window on both sides": dict(mask=Visibility.of_places(T, causal=False, window=70)),
    "documents": dict(mask=Visibility.of_places(T, segments=SEGMENTS, valid=REAL)),
    "one head of keys": dict(mask=Visibility.of_places(T, valid=REAL, window=2**40)),
    "blind queries": dict(mask=ACROSS),
}


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    monkeypatch.setattr(tpu_attention, "BLOCKS", (128,))


def make(normal, *, S=T, K=K, dtype=jnp.float32):
    arrays = normal((B, T, N, H), (B, S, K, H), (B, S, K, Hv))
    return tuple(x.astype(dtype) for x in arrays)


def computed(arrays, options, backend):
    @quickly
    def both(*arrays):
        attend = functools.partial(dot_product_attention, **options, backend=backend)
        out, pull = jax.vjp(attend, *arrays)
        return out, pull(jnp.cos(out))

    return jax.tree.leaves(both(*arrays))


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_computes_the_same(normal, name):
    arrays = make(normal, S=384 if name == "blind queries" else T, K=1 if "head" in name else K)
    found, expected = (computed(arrays, CASES[name], which) for which in ("splash", "plain"))
    # A gradient of keys sums T products of size 1, each off by some units in the last place.
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=3e-5)
    if name == "blind queries":
        blind = ~np.asarray(ACROSS.draw()).any(axis=(1, 3))
        assert 50 < blind.sum() < blind.size - 50
        assert not found[0][blind].any() and not found[1][blind].any()
        assert found[0][~blind].all()


def test_bfloat16(normal):
    arrays = make(normal, dtype=jnp.bfloat16)
    found, expected = (computed(arrays, CASES["documents"], which) for which in ("splash", "plain"))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == jnp.bfloat16
        # Scaled queries are rounded once more, and a result may fall on the other neighbour.
        as_float = (np.asarray(x, np.float32) for x in (one, other))
        np.testing.assert_allclose(*as_float, atol=0.05, rtol=2**-7)


def test_what_stands_in_padding_is_not_felt_even_if_it_is_no_number(normal):
    q, k, v = make(normal)
    poisoned = [jnp.where(REAL[:, :, None, None], x, jnp.nan) for x in (k, v)]
    clean = computed((q, k, v), CASES["documents"], "splash")
    for one, other in zip(
        computed((q, *poisoned), CASES["documents"], "splash"), clean, strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_what_is_later_moves_no_bit(normal):
    q, k, v = make(normal)
    attend = quickly(functools.partial(dot_product_attention, **CASES["causal"], backend="splash"))
    moved = attend(q, *(x.at[:, 200:].add(1) for x in (k, v)))
    np.testing.assert_array_equal(moved[:, :200], attend(q, k, v)[:, :200])


def test_a_part_of_the_arguments_may_be_mapped_over(normal):
    q, k, v = make(normal)
    attend = functools.partial(dot_product_attention, **CASES["documents"], backend="splash")
    many = quickly(jax.vmap(attend, in_axes=(0, None, None)))(jnp.stack([q, 2 * q]), k, v)
    np.testing.assert_allclose(many[1], quickly(attend)(2 * q, k, v), atol=1e-6)


def test_there_is_no_forward_mode(normal):
    arrays = make(normal)
    attend = functools.partial(dot_product_attention, backend="splash")
    with pytest.raises(TypeError, match="forward-mode"):
        quickly(lambda *arrays: jax.jvp(attend, arrays, arrays))(*arrays)


def shapes(T=T, S=T, H=H, Hv=H, dtype=jnp.bfloat16):
    sizes = (B, T, N, H), (B, S, K, H), (B, S, K, Hv)
    return [jax.ShapeDtypeStruct(size, dtype) for size in sizes]


GIVEN = Visibility(PLACES, PLACES)
AHEAD = Visibility(PLACES, PLACES, causal=False, query_segments=SEGMENTS, key_segments=SEGMENTS)
CHOICES = [
    ({}, {}, None),
    ({}, dict(mask=Visibility.of_places(T)), None),
    ({}, dict(mask=Visibility.of_places(T, window=3, segments=SEGMENTS), soft_cap=3.0), None),
    ({}, dict(mask=AHEAD), None),
    (dict(dtype=jnp.float32, S=128, H=256, Hv=80), {}, None),
    ({}, dict(dropout_rate=0.1), None),
    ({}, dict(dropout_rate=0.1, key=jax.random.key(0)), "drops no weights, got a key"),
    ({}, dict(bias=jnp.zeros((1, N, T, T))), r"no bias .* bias.shape=\(1, 4, 256, 256\)"),
    (dict(dtype=jnp.float16), {}, r"bfloat16 or float32, got \['float16', 'float16'"),
    (dict(T=192), {}, "multiples of 128, got T=192, S=256"),
    (dict(S=0), {}, "multiples of 128, got T=256, S=0"),
    (dict(H=264), {}, "at most 256, got H=264, Hv=8"),
    ({}, dict(mask=causal_mask(T)), r"no drawn mask, got mask.shape=\(1, 1, 256, 256\)"),
    ({}, dict(mask=Visibility.of_places(T, prefix_length=3)), "no prefix"),
    ({}, dict(mask=GIVEN), "not by_place"),
    ({}, dict(mask=Visibility(PLACES, PLACES, causal=False, window=3)), "not by_place"),
]


@pytest.mark.parametrize(("sizes", "options", "refusal"), CHOICES)
def test_what_auto_chooses_on_a_tpu_and_what_is_refused(sizes, options, refusal):
    arrays = shapes(**sizes)
    chosen = attention_backend(*arrays, **options, platform="tpu")
    assert chosen == ("plain" if refusal else "splash")
    assert attention_backend(*arrays, **options, platform="cpu") != "splash"
    attend = functools.partial(dot_product_attention, **options, backend="splash")
    if not refusal:
        assert jax.eval_shape(attend, *arrays).shape == (*arrays[0].shape[:3], sizes.get("Hv", H))
        return
    with pytest.raises(ValueError, match=f"^backend='splash' .*{refusal}.*; use 'auto' or 'plain'"):
        jax.eval_shape(attend, *arrays)


def test_live_and_null_the_platform_chooses_the_kernel():
    def program(**options):
        return str(jax.make_jaxpr(functools.partial(dot_product_attention, **options))(*shapes()))

    assert "splash" in program(platform="tpu")
    assert program(platform="cpu") == program() == program(backend="plain")
    # Pallas interprets what is not for a TPU.
    for platform, interpreted in (("tpu", "interpret=False"), ("cpu", "interpret=True")):
        assert interpreted in program(platform=platform, backend="splash")


@pytest.fixture
def cudnn(monkeypatch):
    """Lets JAX lower for a GPU that this machine does not have: it asks the machine's first."""
    from jax._src.cudnn import fused_attention_stablehlo as of_jax

    monkeypatch.setattr(of_jax, "check_cudnn_version", lambda: 91_000)
    monkeypatch.setattr(of_jax, "check_compute_capability", lambda capability: True)


PADDED = dict(mask=Visibility.of_places(T, valid=REAL))


@pytest.mark.usefixtures("cudnn")
@pytest.mark.parametrize(
    ("options", "told", "is_drawn"),
    [
        ({}, "NO_MASK", False),
        (CASES["causal"], "CAUSAL", False),
        (dict(mask=Visibility.of_places(T, window=100)), "sliding_window_length\\22: 100", False),
        (PADDED, "NO_MASK", True),
    ],
)
def test_attention_by_cudnn_is_lowered_for_a_gpu(options, told, is_drawn):
    def both(*arrays):
        attend = functools.partial(dot_product_attention, **options, platform="cuda")
        out, pull = jax.vjp(attend, *arrays)
        return pull(out)

    traced = jax.jit(both).trace(*shapes(H=64, Hv=64))
    program = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert program.count("custom_call @__cudnn$fmha") == 2
    assert told in program
    assert (f"{T}x{T}x" in program) == is_drawn


def test_no_mask_is_drawn_to_find_the_queries_that_see_no_key():
    T = 8192
    arrays = [jax.ShapeDtypeStruct((1, T), dtype) for dtype in (bool, jnp.int32)]

    def found(valid, segments):
        return tpu_attention.seeing(Visibility.of_places(T, valid=valid, segments=segments))

    memory = jax.jit(found).lower(*arrays).compile().memory_analysis()
    assert memory.temp_size_in_bytes < T * T // 16
