"""Tests for jtransformer.functional.cache: what is stored, and attention that reads it."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jtransformer.functional.attention import dot_product_attention
from jtransformer.functional.cache import KVCache
from jtransformer.functional.latent_attention import latent_attention
from jtransformer.functional.masks import visible

B, T, N, K, H, Hv, LONGEST = 3, 4, 4, 2, 6, 5, 11
SIZES = dict(B=B, K=K, H=H, Hv=Hv)
# What a step takes is B tokens wide each time, real ones anywhere in the row.
VALID = np.array(
    [
        [[0, 0, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]],
        [[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]],
        [[1, 0, 1, 1], [0, 0, 1, 1], [0, 1, 1, 0]],
        [[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 1]],
    ],
    bool,
)


def one_query_at_a_time(q, k, v, window):
    """The full causal pass over one row, in double precision."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    out = np.zeros((*q.shape[:2], v.shape[-1]))
    for t, n in np.ndindex(*q.shape[:2]):
        group = n // (N // K)
        seen = range(max(0, t - window + 1) if window else 0, t + 1)
        powers = [math.exp(q[t, n] @ k[s, group] / math.sqrt(H)) for s in seen]
        reads = sum(p * v[s, group] for p, s in zip(powers, seen, strict=True))
        out[t, n] = reads / sum(powers)
    return out


@jax.jit
def step(cache, q, k, v, valid=None):
    """Appends, and reads for the queries of the same tokens."""
    positions = cache.next_positions(q.shape[1], valid=valid)
    cache = cache.append(k, v, valid=valid)
    read = cache.read()
    mask = visible(positions, read.positions, key_valid=read.valid, window=cache.window)
    return cache, dot_product_attention(q, read.k, read.v, mask=mask)


append = jax.jit(KVCache.append)
reading = jax.jit(KVCache.read)


def empty(window, **options):
    if window is None:
        return KVCache.create(**SIZES, capacity=LONGEST, **options)
    return KVCache.create(**SIZES, window=window, chunk=T, **options)


def tokens(*lead):
    generator = np.random.default_rng(0)
    shapes = (*lead, N, H), (*lead, K, H), (*lead, K, Hv)
    return [generator.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("window", [None, 1, 3, 50])
def test_ragged_parts_equal_the_full_pass(window):
    cache, out = empty(window), []
    q, k, v = tokens(len(VALID), B, T)
    for part, valid in enumerate(VALID):
        cache, read = step(cache, q[part], k[part], v[part], valid)
        out.append(read)
    assert cache.length.tolist() == VALID.sum((0, 2)).tolist() == [11, 10, 7]
    for row in range(B):
        own = [np.concatenate([x[p, row][VALID[p, row]] for p in range(4)]) for x in (q, k, v)]
        found = np.concatenate([out[p][row][VALID[p, row]] for p in range(4)])
        np.testing.assert_allclose(found, one_query_at_a_time(*own, window), atol=1e-6)


@pytest.mark.parametrize("window", [None, 3])
def test_stale_slots_and_padding_have_no_influence_on_any_bit(window):
    """Slots without a token, and padding among the new ones, may hold anything finite."""
    q, k, v = tokens(len(VALID), B, T)
    clean = spoilt = empty(window)
    for part, valid in enumerate(VALID):
        is_stale = ~np.asarray(reading(spoilt).valid)[:, None, :, None]
        spoilt = dataclasses.replace(
            spoilt,
            k=jnp.asarray(np.where(is_stale, np.float32(1e30), spoilt.k)),
            v=jnp.asarray(np.where(is_stale, np.float32(-1e30), spoilt.v)),
        )
        real = valid[:, :, None, None]
        clean, read = step(clean, q[part], k[part], v[part], valid)
        padded = (
            np.where(real, k[part], np.float32(np.nan)),
            np.where(real, v[part], np.float32(np.nan)),
        )
        spoilt, of_spoilt = step(spoilt, q[part], *padded, valid)
        np.testing.assert_array_equal(of_spoilt, read)


def test_a_prompt_of_any_length_and_then_single_steps():
    """A cache that counts steps, or a causal mask by index, fails at the second step."""
    q, k, v = tokens(B, 4)
    cache, prompt = step(empty(None), q[:, :2], k[:, :2], v[:, :2])
    out = [prompt]
    for t in (2, 3):
        cache, read = step(cache, *(x[:, t : t + 1] for x in (q, k, v)))
        out.append(read)
    assert cache.length.tolist() == [4] * B
    found = np.concatenate(out, axis=1)
    for row in range(B):
        expected = one_query_at_a_time(q[row], k[row], v[row], None)
        np.testing.assert_allclose(found[row], expected, atol=1e-6)


def test_positions_continue_per_row():
    """With one counter for the batch the padded row would go on at 5."""
    valid = jnp.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]) > 0
    cache = KVCache.create(B=2, K=1, H=1, capacity=9)
    assert cache.next_positions(5, valid=valid).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]
    cache = append(
        cache, np.ones((2, 5, 1, 1), np.float32), np.ones((2, 5, 1, 1), np.float32), valid=valid
    )
    assert cache.next_positions(1).tolist() == [[3], [5]]
    read = cache.read()
    assert read.valid.tolist() == [[s < n for s in range(9)] for n in (3, 5)]
    assert read.positions.tolist() == [[s if s < n else 0 for s in range(9)] for n in (3, 5)]
    right = jnp.array([[1, 1, 0], [0, 0, 0]]) > 0
    assert cache.next_positions(3, valid=right).tolist() == [[3, 4, 4], [5, 5, 5]]


@pytest.mark.parametrize("window", [None, 3])
def test_a_batch_of_one_stores_what_a_batch_of_many_stores(window):
    q, k, v = tokens(len(VALID), B, T)
    many = empty(window)
    one = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[1:2]), many)
    for part, valid in enumerate(VALID):
        many, of_many = step(many, q[part], k[part], v[part], valid)
        one, of_one = step(one, *(x[part, 1:2] for x in (q, k, v)), valid[1:2])
        np.testing.assert_allclose(of_one[0], of_many[1], atol=1e-6)
    for alone, row in zip(jax.tree.leaves(one), jax.tree.leaves(many), strict=True):
        np.testing.assert_array_equal(alone[0], row[1])


@pytest.mark.parametrize("window", [None, 3])
def test_a_scan_and_a_while_loop_carry_it(window):
    _, k, v = tokens(7, B, 1)
    cache = empty(window)

    @jax.jit
    def scanned(cache, k, v):
        return jax.lax.scan(lambda cache, new: (cache.append(*new), None), cache, (k, v))[0]

    @jax.jit
    def looped(cache, k, v):
        return jax.lax.while_loop(
            lambda cache: (cache.length < 7).all(),
            lambda cache: cache.append(k[cache.length[0]], v[cache.length[0]]),
            cache,
        )

    for found in (looped(cache, k, v), scanned(cache, k, v)):
        stored = jax.tree.map(np.asarray, reading(found))
        for row, slot in np.argwhere(stored.valid):
            position = int(stored.positions[row, slot])
            np.testing.assert_array_equal(stored.k[row, slot], k[position, row, 0])
            np.testing.assert_array_equal(stored.v[row, slot], v[position, row, 0])
        assert found.length.tolist() == [7] * B
        assert stored.valid.sum(1).tolist() == [min(7, cache.capacity)] * B


def test_a_donated_cache_is_written_in_place():
    """By the compiler's own account: a step and a loop copy none of 1024 slots."""
    cache = jax.eval_shape(lambda: KVCache.create(**SIZES, capacity=1024))
    one = [jax.ShapeDtypeStruct((B, 1, K, width), jnp.float32) for width in (H, Hv)]
    many = [jax.ShapeDtypeStruct((9, *x.shape), x.dtype) for x in one]

    def loop(cache, *new):
        return jax.lax.scan(lambda cache, new: (cache.append(*new), None), cache, new)[0]

    for run, new in ((KVCache.append, one), (loop, many)):
        compiled = jax.jit(run, donate_argnums=0).lower(cache, *new).compile()
        memory = compiled.memory_analysis()
        assert memory.alias_size_in_bytes >= cache.nbytes
        assert memory.temp_size_in_bytes < cache.nbytes / 50


def test_it_is_mapped_over_runs():
    _, k, v = tokens(2, B, T)
    caches = jax.vmap(lambda _: empty(None), axis_size=2)(jnp.arange(2))
    valid = jnp.asarray(VALID[0])
    append = jax.jit(jax.vmap(lambda cache, k, v: cache.append(k, v, valid=valid)))
    caches = append(caches, k, v)
    alone = jax.jit(lambda k, v: empty(None).append(k, v, valid=valid))
    for run in range(2):
        expected = alone(k[run], v[run])
        for found, one in zip(jax.tree.leaves(caches), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(found[run], one)


def test_keys_and_values_are_converted_to_its_own_dtype():
    _, k, v = tokens(B, T)
    cache = append(empty(None, dtype=jnp.bfloat16), k, v)
    assert cache.k.dtype == cache.v.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(cache.read().k)[:, :T], k.astype(jnp.bfloat16))
    assert 2 * cache.nbytes == empty(None).nbytes


def test_it_holds_the_latent_and_the_rotary_key_of_latent_attention():
    C, Hr, S = 5, 2, 7
    generator = np.random.default_rng(1)
    shapes = (B, S, N, H), (B, S, C), (C, N, H), (C, N, Hv), (B, S, N, Hr), (B, S, Hr)
    q, latent, w_k, w_v, q_rotary, k_rotary = (
        jnp.asarray(generator.normal(size=shape), jnp.float32) for shape in shapes
    )

    @jax.jit
    def both(q, latent, q_rotary, k_rotary):
        where = jnp.arange(S)[None]
        rotary = dict(q_rotary=q_rotary, k_rotary=k_rotary)
        full = latent_attention(q, latent, w_k, w_v, **rotary, mask=visible(where, where))
        cache, out = KVCache.create(B=B, K=1, H=C, Hv=Hr, capacity=S + 1), []
        for part in (slice(0, 4), slice(4, 7)):
            positions = cache.next_positions(part.stop - part.start)
            cache = cache.append(latent[:, part, None], k_rotary[:, part, None])
            read = cache.read()
            rotary = dict(q_rotary=q_rotary[:, part], k_rotary=read.v[:, :, 0])
            mask = visible(positions, read.positions, key_valid=read.valid)
            stored = read.k[:, :, 0]
            out.append(latent_attention(q[:, part], stored, w_k, w_v, **rotary, mask=mask))
        return full, jnp.concatenate(out, axis=1)

    np.testing.assert_allclose(*both(q, latent, q_rotary, k_rotary), atol=1e-5)


@pytest.mark.parametrize(("heads", "expected"), [(32, 2147483648), (8, 536870912)])
def test_bytes_of_a_large_model(heads, expected):
    def layers():
        sizes = dict(B=1, K=heads, H=128, capacity=4096, dtype=jnp.float16)
        return jax.vmap(lambda _: KVCache.create(**sizes))(jnp.arange(32))

    assert jax.eval_shape(layers).nbytes == expected
