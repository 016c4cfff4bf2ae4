"""The cache of decoding: steps equal the full pass, rows count alone, nothing is lost silently."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly
from tiny_model import (
    BASE,
    STACKS,
    VARIANTS,
    B,
    S,
    T,
    changed,
    drawn,
    model_of,
    needed,
    tokens_of,
)

from jtransformer.modules import build, empty_cache
from jtransformer.spec import (
    Classifier,
    DotProduct,
    Encoder,
    Learned,
    LinearAttention,
    Precision,
    PrefixDecoder,
)

KINDS = {
    "decoder": VARIANTS["grouped"],
    "scanned": VARIANTS["scanned"],
    "linear": VARIANTS["linear"],
    "latent": VARIANTS["latent"],
} | {name: spec for name, spec in STACKS.items() if name != "encoder"}
RING = changed(attention=DotProduct(window=2))


def cache_of(spec, **given):
    source_length = S if spec.has_encoder else None
    return empty_cache(spec, **dict(B=B, capacity=T, source_length=source_length) | given)


def decoded(spec, variables, tokens, cache, first, **given):
    """Reads `first` tokens at once, then the rest one by one, in one program."""

    @quickly
    def run(variables, tokens, cache, given):
        apply = build(spec).apply
        start = apply(variables, tokens[:, :first], cache=cache, **given)

        def step(cache, column):
            out = apply(variables, column[:, None], cache=cache)
            return out.cache, out.logits[:, 0]

        cache, rest = jax.lax.scan(step, start.cache, tokens[:, first:].T)
        return jnp.concatenate([start.logits, jnp.swapaxes(rest, 0, 1)], axis=1), cache

    return run(variables, tokens, cache, given)


FAST = ("decoder", "prefix_decoder", "two_scanned")
EVERY_KIND = [
    name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in KINDS
]


@pytest.mark.parametrize("name", EVERY_KIND)
def test_prefill_and_steps_equal_the_full_pass(key, name):
    spec = KINDS[name]
    variables, tokens, given = drawn(spec), tokens_of(key), needed(spec, key)
    if spec.has_encoder:
        given["source_valid"] = jnp.arange(S)[None] < jnp.array([[S], [3]])
    if "prefix_length" in given:
        given["prefix_length"] = jnp.array([3, 1])
    full = model_of(spec).apply(variables, tokens, **given).logits
    logits, cache = decoded(spec, variables, tokens, cache_of(spec), 4, **given)
    np.testing.assert_allclose(logits, full, atol=2e-5)
    np.testing.assert_array_equal(cache.length, [T, T])
    cache.check()


def test_a_ring_equals_the_full_pass_and_is_smaller(key):
    variables, tokens = drawn(RING), tokens_of(key)
    ring = cache_of(RING, chunk=2)
    assert ring.nbytes < cache_of(RING).nbytes
    logits, _ = decoded(RING, variables, tokens, ring, 2)
    full = model_of(RING).apply(variables, tokens).logits
    np.testing.assert_allclose(logits, full, atol=1e-5)
    with pytest.raises(ValueError, match="At most 2 tokens can be appended at a time"):
        build(RING).apply(variables, tokens[:, :3], cache=ring)


def test_ragged_prompts_count_their_own_positions(key):
    """The fault of one counter for all rows."""
    variables, tokens = drawn(BASE), tokens_of(key)
    valid = jnp.array([[False, False, True, True], [True] * 4])
    apply = model_of(BASE).apply
    out = apply(variables, tokens[:, :4], valid=valid, cache=cache_of(BASE))
    np.testing.assert_array_equal(out.cache.length, [2, 4])
    step = apply(variables, tokens[:, 4:5], cache=out.cache)
    alone = apply(variables, tokens[:1, 2:5]).logits
    np.testing.assert_allclose(step.logits[0, 0], alone[0, -1], atol=1e-5)
    whole = apply(variables, tokens[1:, :5]).logits
    np.testing.assert_allclose(step.logits[1, 0], whole[0, -1], atol=1e-5)


def test_rows_are_picked_with_all_they_have(key):
    spec = KINDS["two_scanned"]
    variables, tokens, given = drawn(spec), tokens_of(key), needed(spec, key)
    apply = model_of(spec).apply
    cache = apply(variables, tokens[:, :4], cache=cache_of(spec), **given).cache
    order = jnp.array([1, 1, 0])
    picked = cache.rows(order)
    np.testing.assert_array_equal(picked.length, cache.length[order])
    ours = apply(variables, tokens[order, 4:5], cache=picked).logits
    theirs = apply(variables, tokens[:, 4:5], cache=cache).logits
    np.testing.assert_allclose(ours, theirs[order], atol=1e-5)


def test_a_row_that_is_full_is_marked_and_the_others_go_on(key):
    variables, tokens = drawn(BASE), tokens_of(key)
    apply = model_of(BASE).apply
    valid = jnp.array([[True] * 4, [True, False, False, False]])
    cache = apply(variables, tokens[:, :4], valid=valid, cache=cache_of(BASE, capacity=4)).cache
    cache.check()
    after = apply(variables, tokens[:, 4:5], cache=cache).cache
    np.testing.assert_array_equal(after.length, [4, 2])
    with pytest.raises(ValueError, match=r"beyond the capacity.*capacity=4 in rows \[0\]"):
        after.check()
    with pytest.raises(ValueError, match=r"length=\[4\], tokens=\[1\], capacity=4 in rows \[0\]"):
        build(BASE).apply(variables, tokens[:, 4:5], cache=cache)


def test_linear_attention_has_a_capacity_as_well(key):
    spec = KINDS["linear"]
    variables, tokens = drawn(spec), tokens_of(key)
    cache = model_of(spec).apply(variables, tokens, cache=cache_of(spec, capacity=3)).cache
    with pytest.raises(ValueError, match="beyond the capacity"):
        cache.check()
    np.testing.assert_array_equal(cache.length, 0)


def test_calls_out_of_order_are_marked_and_refused(key):
    prefix, two = changed(stack=PrefixDecoder()), STACKS["encoder_decoder"]
    tokens = tokens_of(key)
    for spec, given in ((prefix, {"prefix_length": 2}), (two, needed(two, key))):
        variables, apply = drawn(spec), model_of(spec).apply
        with pytest.raises(ValueError, match="first call with a cache is given what the model"):
            build(spec).apply(variables, tokens[:, :3], cache=cache_of(spec))
        started = apply(variables, tokens[:, :3], cache=cache_of(spec), **given).cache
        started.check()
        again = apply(variables, tokens[:, :3], cache=started, **given).cache
        with pytest.raises(ValueError, match="later ones are not"):
            again.check()
        np.testing.assert_array_equal(again.length, 3)
        without = apply(variables, tokens[:, :3], cache=cache_of(spec)).cache
        with pytest.raises(ValueError, match="start from an empty cache"):
            without.check()


def test_a_prefix_that_is_longer_than_the_first_call_is_refused(key):
    spec = changed(stack=PrefixDecoder())
    variables, tokens = drawn(spec), tokens_of(key)
    with pytest.raises(ValueError, match="prefix_length=3, T=2; the first call with a cache holds"):
        build(spec).apply(variables, tokens[:, :2], cache=cache_of(spec), prefix_length=3)
    apply = model_of(spec).apply
    cache = apply(variables, tokens[:, :2], cache=cache_of(spec), prefix_length=3).cache
    with pytest.raises(ValueError, match="a prefix that the call holds whole"):
        cache.check()


def test_bfloat16_halves_the_bytes_and_sums_stay_wide():
    for name in ("decoder", "latent", "encoder_decoder"):
        wide, narrow = (cache_of(KINDS[name], dtype=x) for x in (jnp.float32, jnp.bfloat16))
        assert wide.nbytes == 2 * narrow.nbytes
        # By itself a cache has the type in which attention is computed.
        rounded = changed(KINDS[name], precision=Precision(attention="bfloat16"))
        assert cache_of(rounded).nbytes == narrow.nbytes
        assert cache_of(rounded, dtype=jnp.float32).nbytes == cache_of(KINDS[name]).nbytes
    assert cache_of(KINDS["linear"], dtype=jnp.bfloat16).layers[0].state.sums.dtype == jnp.float32


def test_bytes_are_those_of_keys_and_values():
    assert cache_of(BASE).nbytes == 2 * 2 * B * T * 12 * 4
    assert cache_of(changed(scan_layers=True)).nbytes == cache_of(BASE).nbytes


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        (changed(stack=Encoder()), {}, "An encoder reads all tokens at once and has no cache"),
        (BASE, {"capacity": 0}, "capacity must be at least 1, got capacity=0"),
        (BASE, {"chunk": 2}, "chunk=2 would do nothing"),
        (BASE, {"source_length": 3}, "source_length belongs to models with an encoder"),
        (STACKS["two_scanned"], {"source_length": None}, "source_length=None.*give it"),
        (changed(position=Learned(max_length=4)), {}, "capacity=7 is more than .*max_length=4"),
        (VARIANTS["scanned"], {"chunk": 2}, "makes rings of some layers alone"),
    ],
)
def test_error_caches_that_cannot_be(spec, given, message):
    with pytest.raises(ValueError, match=message):
        cache_of(spec, **given)


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        (BASE, {"positions": jnp.zeros((B, T), jnp.int32)}, "positions cannot be given with a"),
        (BASE, {"segments": jnp.zeros((B, T), jnp.int32)}, "segments cannot be given with a"),
        (changed(head=Classifier()), {}, "pools all tokens of a row, got a cache"),
        (changed(attention=LinearAttention()), {"B": 3}, "rows of the tokens, got 3 and 2"),
        (
            STACKS["two_scanned"],
            {"source": jnp.zeros((B, 2), jnp.int32)},
            "got 2; pad it to source_length=5",
        ),
    ],
)
def test_error_calls_that_a_cache_does_not_allow(key, spec, given, message):
    cache = cache_of(spec, B=given.pop("B", B))
    with pytest.raises(ValueError, match=message):
        build(spec).apply(drawn(spec), tokens_of(key), cache=cache, **given)


def test_error_an_encoder_takes_no_cache(key):
    spec = changed(stack=Encoder())
    with pytest.raises(ValueError, match="An encoder reads all tokens at once, got a cache"):
        build(spec).apply(drawn(spec), tokens_of(key), cache=cache_of(BASE))
