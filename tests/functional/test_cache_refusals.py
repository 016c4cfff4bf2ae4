"""Tests for jtransformer.functional.cache: what is rewound, what is refused, and how."""

from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly

from jtransformer.functional.cache import KVCache

B, T = 2, 3
append, rewind = quickly(KVCache.append), quickly(KVCache.rewind)
reading = quickly(KVCache.read)


def empty(**options):
    return KVCache.create(B=B, K=1, H=1, **options)


def numbered(*numbers):
    """Keys and values that are told apart, one row of the batch after the other."""
    return np.asarray(numbers, np.float32)[:, :, None, None]


def grown(cache, tokens):
    """Appends so many tokens to each row, one at a time."""
    for number in range(tokens):
        new = numbered(*[[number]] * B)
        cache = append(cache, new, -new)
    return cache


class SimulatedRow:
    """A row as a table from slots to positions and tokens."""

    def __init__(self, capacity, window):
        self.capacity, self.window = capacity, window
        self.slots, self.length = {}, 0
        self.overflowed = self.rewind_refused = False

    def append(self, tokens):
        too_long = self.window is None and self.length + len(tokens) > self.capacity
        frozen = self.overflowed or self.rewind_refused
        self.overflowed |= too_long
        for token in () if frozen or too_long else tokens:
            self.slots[self.length % self.capacity] = (self.length, token)
            self.length += 1

    def rewind(self, length):
        window = self.window or self.capacity
        is_read = range(max(0, length - window + 1), length) if self.window else range(0)
        stored = {position for position, _ in self.slots.values()}
        if 0 <= length <= self.length and stored.issuperset(is_read):
            self.length = length
            self.slots = {s: entry for s, entry in self.slots.items() if entry[0] < length}
        else:
            self.rewind_refused = True


@pytest.mark.parametrize(
    ("options", "seed"),
    [(dict(capacity=9), seed) for seed in range(4)]
    + [(dict(window=w, chunk=T), seed) for w in (1, 2, 4) for seed in range(3)],
)
def test_random_histories_agree_with_a_table(options, seed):
    generator = np.random.default_rng(seed)
    cache = empty(**options)
    rows = [SimulatedRow(cache.capacity, cache.window) for _ in range(B)]
    for moment in range(30):
        if generator.random() < 0.7:
            valid = generator.random((B, T)) < 0.4
            new = numbered(*(moment * T + np.arange(T) + np.zeros((B, 1))))
            cache = append(cache, new, -new, valid=valid)
            for row, tokens, real in zip(rows, new[:, :, 0, 0], valid, strict=True):
                row.append(tokens[real])
        else:
            # Mostly back by a little, at times too far.
            back = generator.choice(
                [0, 1, 2, 3, 5, 30, -1], B, p=[0.2, 0.3, 0.2, 0.2, 0.06, 0.02, 0.02]
            )
            target = np.array([row.length for row in rows]) - back
            cache = rewind(cache, target.astype(np.int32))
            for row, length in zip(rows, target, strict=True):
                row.rewind(length)
        read = jax.tree.map(np.asarray, reading(cache))
        for b, row in enumerate(rows):
            assert cache.length[b] == row.length
            assert cache.overflowed[b] == row.overflowed
            assert cache.rewind_refused[b] == row.rewind_refused
            stored = np.flatnonzero(read.valid[b])
            assert set(stored) == set(row.slots)
            for slot in stored:
                assert (read.positions[b, slot], read.k[b, slot, 0, 0]) == row.slots[slot]
                assert read.v[b, slot, 0, 0] == -read.k[b, slot, 0, 0]


def test_rewinding_takes_an_absolute_length():
    """0 keeps nothing, 2 keeps two, 5 of 3 is an error; none of them counts from the end."""
    cache = grown(empty(capacity=4), 3)
    for length in (0, 2, 3):
        assert cache.rewind(length).length.tolist() == [length] * B
        assert cache.rewind(length).read().valid.sum(1).tolist() == [length] * B
    assert cache.rewind(jnp.array([1, 2])).length.tolist() == [1, 2]
    assert cache.rewind(jnp.array(1)).length.tolist() == [1, 1]
    for length in (4, -1, 5):
        for number in (length, np.int64(length)):
            with pytest.raises(ValueError, match=rf"got .*{length}"):
                unwrap(KVCache.rewind)(cache, number)
    assert unwrap(KVCache.rewind)(cache, np.int64(2)).length.tolist() == [2] * B


def test_what_follows_a_rewind_is_as_if_nothing_had_been_there():
    cache = grown(empty(capacity=6), 2)
    draft = append(cache, numbered([7, 8, 9], [7, 8, 9]), numbered([7, 8, 9], [7, 8, 9]))
    accepted = numbered([3, 4, 5], [3, 4, 5])
    found = reading(append(rewind(draft, np.int32([2, 2])), accepted, accepted))
    for x, y in zip(found, reading(append(cache, accepted, accepted)), strict=True):
        np.testing.assert_array_equal(x, y)


def test_known_overflow_is_an_error_that_names_the_rows():
    cache = append(
        empty(capacity=3), *[numbered([1, 2], [1, 2])] * 2, valid=np.eye(2, dtype=bool)[[0, 0]]
    )
    cache = append(cache, *[numbered([1], [1])] * 2, valid=np.array([[True], [False]]))
    new = jnp.asarray(numbered([1, 2], [1, 2]))
    message = r"got length=\[2\], new=\[2\], limit=3 in rows \[0\]"
    with pytest.raises(ValueError, match=message):
        cache.append(new, new)
    # Known while tracing too, where the cache is no argument of what is traced.
    with pytest.raises(ValueError, match=message):
        quickly(lambda new: cache.append(new, new))(new)
    real = jnp.array([[True, False], [True, True]])
    assert cache.append(new, new, valid=real).length.tolist() == [3, 3]


@pytest.mark.parametrize("options", [dict(capacity=3), dict(window=5, chunk=3), dict(window=5)])
def test_more_tokens_than_fit_are_an_error_where_lengths_are_traced(options):
    most = options.get("chunk", options.get("capacity", 1))
    new = jax.ShapeDtypeStruct((B, most + 1, 1, 1), jnp.float32)
    message = rf"At most {most} tokens can be appended at a time .*, got T={most + 1}"
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(KVCache.append, empty(**options), new, new)


def test_an_overflow_met_while_running_marks_the_row_and_stores_nothing():
    """A clamped update would overwrite the last tokens of the full row instead."""
    before = append(empty(capacity=4), *[numbered([1, 2, 3], [1, 2, 3])] * 2)
    before = rewind(before, np.int32([3, 1]))
    after = append(before, *[numbered([8, 9], [8, 9])] * 2)
    assert after.overflowed.tolist() == [True, False]
    assert after.length.tolist() == [3, 3]
    np.testing.assert_array_equal(after.k[:, 0, :, 0], [[1, 2, 3, 0], [1, 8, 9, 0]])
    # What would fit now would leave a gap where the refused tokens are missing.
    later = append(after, *[numbered([7], [7])] * 2)
    assert later.overflowed.tolist() == [True, False]
    assert later.length.tolist() == [3, 4]
    assert later.k[:, 0, :, 0].tolist() == [[1, 2, 3, 0], [1, 8, 9, 7]]
    assert rewind(later, np.int32([1, 1])).overflowed.tolist() == [True, False]
    with pytest.raises(ValueError, match=r"got length=\[3\], limit=4 in rows \[0\]"):
        later.check()
    with pytest.raises(ValueError, match=r"got length=\[1\], new=\[1\], limit=4 in rows \[0\]"):
        later.rewind(1).append(*[jnp.ones((B, 1, 1, 1))] * 2)


def test_a_rewind_refused_while_running_marks_the_row():
    cache = grown(empty(capacity=4), 2)
    after = rewind(cache, np.int32([1, 3]))
    assert after.length.tolist() == [1, 2]
    assert after.rewind_refused.tolist() == [False, True]
    with pytest.raises(ValueError, match=r"A row can be rewound .* got length=\[2\] in rows \[1\]"):
        after.check()
    cache.check()


def test_a_ring_goes_back_by_its_chunk_and_no_further():
    """With window 3 and chunk 2 the four last tokens are there; a query reads two before it."""
    cache = grown(empty(window=3, chunk=2), 7)
    assert sorted(reading(cache).positions[0].tolist()) == [3, 4, 5, 6]
    back = cache.rewind(5)
    assert sorted(reading(back).positions[reading(back).valid].tolist()) == [3, 3, 4, 4]
    with pytest.raises(ValueError, match=r"got to=\[4, 4\], length=\[7, 7\], oldest=\[3, 3\]"):
        cache.rewind(4)
    assert rewind(cache, np.int32([4, 5])).rewind_refused.tolist() == [True, False]
    # Before a query at 0 there is nothing to be missed.
    assert not reading(cache.rewind(0)).valid.any()
    assert rewind(grown(empty(window=3, chunk=2), 4), np.int32([1, 2])).length.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(), "either a capacity or a window, got capacity=None, window=None"),
        (dict(capacity=3, window=2), "got capacity=3, window=2"),
        (dict(capacity=3, chunk=2), "give window as well, got chunk=2"),
        (dict(capacity=0), "capacity must be at least 1, got capacity=0"),
        (dict(window=0), "window must be at least 1, got window=0"),
        (dict(window=3, chunk=0), "chunk must be at least 1, got chunk=0"),
        (dict(capacity=3, Hv=0), "Hv must be at least 1, got Hv=0"),
        (dict(capacity=3, dtype=jnp.int8), "dtype must be a floating-point type"),
    ],
)
def test_sizes_of_no_sense_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        empty(**options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(k=jnp.ones((B, 1, 2, 1))), r"got k.shape=\(2, 1, 2, 1\); use \(2, 1, 1, 1\)"),
        (dict(v=jnp.ones((B, 2, 1, 1))), r"got v.shape=\(2, 2, 1, 1\); use \(2, 1, 1, 1\)"),
        (dict(valid=jnp.ones((B, 1), int)), r"boolean .* dtype=int32 for B=2, T=1"),
        (dict(valid=jnp.ones((B, 2), bool)), r"valid.shape=\(2, 2\)"),
    ],
)
def test_tokens_that_do_not_fit_are_named(change, message):
    arguments = dict(k=jnp.ones((B, 1, 1, 1)), v=jnp.ones((B, 1, 1, 1))) | change
    with pytest.raises(ValueError, match=message):
        unwrap(KVCache.append)(empty(capacity=3), **arguments)


def test_null_and_live_sizes():
    assert empty(capacity=3).v.shape == empty(capacity=3, Hv=1).v.shape
    assert empty(capacity=3, Hv=4).v.shape == (B, 1, 3, 4)
    assert empty(window=3).capacity == empty(window=3, chunk=1).capacity == 3
    assert empty(window=3, chunk=2).capacity == 4
    assert jax.tree.structure(empty(window=3)) != jax.tree.structure(empty(capacity=3))
    assert jax.tree.structure(grown(empty(window=3), 5)) == jax.tree.structure(empty(window=3))
