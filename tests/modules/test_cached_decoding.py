"""Prefill and decoding with a cache give the logits of one full pass, for every kind of model.

Each case is one program: rows that differ in length are read in a first chunk and then by one or
two tokens at a time, and all logits are compared with those of a pass without a cache.
"""

import dataclasses
import random
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_model
from pairwise import covering
from quickly import quickly
from thinned import thinned

from jtransformer.modules import build, empty_cache
from jtransformer.spec import (
    Alibi,
    Decoder,
    DotProduct,
    DynamicTanh,
    EncoderDecoder,
    LatentAttention,
    LayerNorm,
    Learned,
    LinearAttention,
    ModelSpec,
    NoPosition,
    PrefixDecoder,
    RelativeBias,
    RMSNorm,
    Rope,
    ScaleNorm,
    Shaw,
    Sinusoidal,
    SpecError,
    T5Bias,
)

B, S, V = 3, 5, 11
LENGTHS = (8, 3, 6)  # Tokens of each row.
FIRST = 4  # Tokens of the first chunk.
PREFIX = 2
WINDOW = 3
FACTORS = dict(
    stack=dict(decoder=Decoder(), prefix=PrefixDecoder(), both=EncoderDecoder(encoder_layers=1)),
    placement={name: name for name in ("pre", "post", "sandwich", "branch", "deepnorm", "none")},
    norm=dict(layer=LayerNorm(), rms=RMSNorm(), scale=ScaleNorm(), tanh=DynamicTanh()),
    position=dict(
        none=NoPosition(),
        sinusoidal=Sinusoidal(),
        learned=Learned(max_length=16),
        half=Rope(),
        interleaved=Rope(pairing="interleaved", rotary_fraction=0.5),
        t5=T5Bias(buckets=4, max_distance=6),
        relative=RelativeBias(max_distance=3),
        alibi=Alibi(),
        shaw=Shaw(max_distance=3, values=True),
    ),
    attention=dict(
        full=DotProduct(),
        window=DotProduct(window=WINDOW),
        pattern=DotProduct(window=WINDOW, window_pattern="window,full"),
        capped=DotProduct(soft_cap=2.0, query_key_norm="head", heads_off="1.2"),
        wide=DotProduct(query_key_norm="width", scale=0.7),
        linear=LinearAttention(),
        latent=LatentAttention(latent_width=5),
    ),
    key_heads={"all": None, "two": 2, "one": 1},
    sublayers={name: name for name in ("sequential", "parallel")},
    layers=dict(loop=False, scan=True),
    prompts=dict(ragged=True, equal=False),
    ring=dict(ring=True, buffer=False),
)


def model_of(case):
    chosen = {name: FACTORS[name][value] for name, value in case.items()}
    attention = chosen["attention"]
    if isinstance(attention, LatentAttention) and isinstance(chosen["position"], Rope):
        attention = dataclasses.replace(attention, rotary_width=4)
    return ModelSpec(
        vocabulary=V,
        width=16,
        layers=2 if case["layers"] == "scan" or case["attention"] in ("pattern", "capped") else 1,
        heads=4,
        head_width=8,
        key_value_heads=chosen["key_heads"],
        ffn_width=12,
        stack=chosen["stack"],
        norm_placement=chosen["placement"],
        norm=chosen["norm"],
        position=chosen["position"],
        attention=attention,
        sublayers=chosen["sublayers"],
        scan_layers=chosen["layers"],
    )


def is_possible(case):
    # A ring is made of a window; layers that are scanned have caches of one size.
    rings = ("window",) if case["layers"] == "scan" else ("window", "pattern")
    if case["ring"] == "ring" and case["attention"] not in rings:
        return False
    try:
        model_of(case)
    except SpecError:
        return False
    return True


def chunked(spec, variables, tokens, lengths, *, memory, chunk, at_once):
    """Reads rows of the given lengths: a first chunk, then the rest, so many tokens at a time.

    Returns:
        The logits, which of them stand for a token, and the length of the cache.
    """
    apply = build(spec).apply
    source_length = S if memory else None
    cache = empty_cache(spec, B=B, capacity=max(lengths), chunk=chunk, source_length=source_length)
    prefix = dict(prefix_length=PREFIX) if spec.stack.kind == "prefix_decoder" else {}
    begins = range(FIRST, max(lengths), at_once)
    slots = np.arange(FIRST + len(begins) * at_once)
    # Short rows are padded on the left of the first chunk, others at the end of the last.
    real = np.stack([slots >= FIRST - n if n < FIRST else slots < n for n in lengths])
    real &= slots < max(FIRST, max(lengths))
    real = np.stack([row & (np.cumsum(row) <= n) for row, n in zip(real, lengths, strict=True)])
    index = np.maximum(np.cumsum(real, axis=1) - 1, 0)
    padded, valid = jnp.take_along_axis(tokens, jnp.asarray(index), axis=1), jnp.asarray(real)
    first = apply(
        variables, padded[:, :FIRST], valid=valid[:, :FIRST], cache=cache, **memory, **prefix
    )

    def step(cache, chunk):
        out = apply(variables, chunk[0], valid=chunk[1], cache=cache)
        return out.cache, out.logits

    def in_chunks(array):
        rest = array[:, FIRST:]
        return jnp.swapaxes(rest.reshape(B, len(begins), at_once), 0, 1)

    cache, logits = jax.lax.scan(step, first.cache, (in_chunks(padded), in_chunks(valid)))
    rest = jnp.swapaxes(logits, 0, 1).reshape(B, -1, V)
    return jnp.concatenate([first.logits, rest], axis=1), real, cache.length


def check(case):
    spec = model_of(case)
    ragged = case["prompts"] == "ragged"
    # The whole prefix lies in the first chunk, wherever the padding is.
    lengths = LENGTHS if ragged else (max(LENGTHS),) * B
    at_once = 1 if case["ring"] == "ring" or ragged else 2
    chunk = FIRST if case["ring"] == "ring" else None
    seed = zlib.crc32(repr(sorted(case.items())).encode())
    generator = np.random.default_rng(seed)
    tokens = jnp.asarray(generator.integers(V, size=(B, max(lengths))), jnp.int32)
    memory = {}
    if spec.has_encoder:
        source = jnp.asarray(generator.integers(V, size=(B, S)), jnp.int32)
        memory = dict(source=source, source_valid=jnp.arange(S)[None] < jnp.array([[5], [3], [1]]))
    prefix = dict(prefix_length=PREFIX) if spec.stack.kind == "prefix_decoder" else {}
    variables = tiny_model.drawn(spec)
    marks = []

    @quickly
    def both(variables):
        full = build(spec).apply(variables, tokens, **memory, **prefix).logits
        logits, real, length = chunked(
            spec, variables, tokens, lengths, memory=memory, chunk=chunk, at_once=at_once
        )
        marks.append(real)
        return full, logits, length

    full, logits, length = map(np.asarray, both(variables))
    np.testing.assert_array_equal(length, lengths)
    for row, n in enumerate(lengths):
        expected = full[row, :n]
        size = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(logits[row][marks[0][row]], expected, rtol=0, atol=1e-5 * size)


VALUES = {name: list(values) for name, values in FACTORS.items()}
CASES = covering(VALUES, is_possible)


def drawn(count, seed):
    """Draws cases from the whole product, which has tens of thousands that can be."""
    draw = random.Random(seed)
    cases = []
    while len(cases) < count:
        case = {name: draw.choice(values) for name, values in VALUES.items()}
        if is_possible(case) and case not in cases:
            cases.append(case)
    return cases


@pytest.mark.parametrize("case", thinned(CASES, lambda case: "-".join(case.values()), one_of=4))
def test_cached_decoding_equals_the_full_pass(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", drawn(60, seed=1), ids=lambda case: "-".join(case.values()))
def test_cached_decoding_equals_the_full_pass_anywhere_in_the_product(case):
    """A sample, since the whole product would take days; change the seed for another one."""
    check(case)
