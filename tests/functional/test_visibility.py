"""Tests for jtransformer.functional.visibility: visibility as a value."""

from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer import functional as F
from jtransformer.functional import Visibility, visible

attention_weights = at_once(F.attention_weights)
dot_product_attention = at_once(F.dot_product_attention)

B, T, S, N, K, H, Hv = 2, 3, 5, 6, 2, 4, 7
QUERIES = jnp.array([[2, 3, 4], [0, 2, 3]])
KEYS = jnp.array([[0, 1, 2, 3, 4]])
SEGMENTS = dict(
    query_segments=jnp.array([[0, 0, 1], [1, 1, 2]]),
    key_segments=jnp.array([[0, 0, 0, 0, 1], [0, 1, 1, 1, 2]]),
)
VALID = jnp.array([[True, True, False, True, True], [True, True, False, False, False]])
OPTIONS = {
    "causal": {},
    "around": dict(causal=False, window=2),
    "window of documents": dict(window=3, **SEGMENTS),
    "prefix of all": dict(prefix_length=4, key_valid=VALID),
    "prefix of each": dict(prefix_length=jnp.array([4, 0]), window=4),
}
EVERY = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


@pytest.fixture
def make(normal):
    """Draws queries, keys and values."""
    return lambda: normal((B, T, N, H), (B, S, K, H), (B, S, K, Hv))


def test_drawn_by_hand():
    first = [[0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]
    second = [[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0]]
    window = Visibility(QUERIES, KEYS, window=2).draw()
    np.testing.assert_array_equal(window, np.array([first, second])[:, None])
    first = [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 1]]
    second = [[0, 1, 1, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]
    documents = Visibility(QUERIES, KEYS, prefix_length=3, **SEGMENTS).draw()
    np.testing.assert_array_equal(documents, np.array([first, second])[:, None])


@EVERY
def test_shape_is_that_of_the_drawing(options):
    value = Visibility(QUERIES, KEYS, **options)
    assert value.shape == value.draw().shape == (B, 1, T, S)
    assert Visibility(KEYS, KEYS, key_valid=VALID).shape == (B, 1, S, S)
    assert Visibility(KEYS, KEYS, prefix_length=2).shape == (1, 1, S, S)


@EVERY
def test_passes_through_transformations_as_an_array_does(options):
    value = Visibility(QUERIES, KEYS, **options)
    drawing = np.asarray(visible(QUERIES, KEYS, **options))
    np.testing.assert_array_equal(quickly(Visibility.draw)(value), drawing)
    np.testing.assert_array_equal(quickly(lambda x: x)(value).draw(), drawing)
    two = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * 2), value)
    np.testing.assert_array_equal(quickly(jax.vmap(Visibility.draw))(two)[1], drawing)
    scan = quickly(lambda two: jax.lax.scan(lambda carry, x: (carry, x.draw()), None, two)[1])
    scanned = scan(two)
    np.testing.assert_array_equal(scanned[1], drawing)
    assert jax.eval_shape(Visibility.draw, value).shape == (B, 1, T, S)


def test_static_options_are_part_of_the_program():
    draw = quickly(Visibility.draw)
    wide, narrow = (draw(Visibility(QUERIES, KEYS, window=window)) for window in (3, 1))
    assert wide.sum() > narrow.sum() > 0
    assert draw(Visibility(QUERIES, KEYS, causal=False)).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        dict(window=2, segments=jnp.array([[0, 0, 1, 1, 1]])),
        dict(causal=False, window=2, valid=VALID),
        dict(prefix_length=2),
    ],
)
def test_places_are_positions_that_are_known_when_a_program_is_compiled(options):
    value = Visibility.of_places(S, **options)
    named = {"segments": ("query_segments", "key_segments"), "valid": ("key_valid",)}
    given = {key: x for name, x in options.items() for key in named.get(name, (name,))}
    expected = visible(KEYS, KEYS, **given)
    np.testing.assert_array_equal(value.draw(), expected)
    assert value.by_place and jax.tree.map(lambda x: x, value).by_place
    assert not value.of_queries(0, 2).by_place and not Visibility(KEYS, KEYS).by_place


@EVERY
def test_a_part_of_the_queries_is_a_part_of_the_drawing(options):
    value = Visibility(QUERIES, KEYS, **options)
    for start in (0, 1):
        part = quickly(lambda start: value.of_queries(start, 2).draw())(start)
        np.testing.assert_array_equal(part, value.draw()[:, :, start : start + 2])


@EVERY
@pytest.mark.parametrize("backend", ["plain", "blockwise"])
def test_attention_takes_the_value_for_its_drawing(make, options, backend):
    q, k, v = make()
    value, drawing = Visibility(QUERIES, KEYS, **options), visible(QUERIES, KEYS, **options)
    np.testing.assert_array_equal(
        dot_product_attention(q, k, v, mask=value, backend=backend),
        dot_product_attention(q, k, v, mask=drawing, backend=backend),
    )
    np.testing.assert_array_equal(
        attention_weights(q, k, mask=value), attention_weights(q, k, mask=drawing)
    )


@pytest.mark.parametrize("backend", ["plain", "blockwise"])
@pytest.mark.parametrize("poison", [jnp.nan, jnp.inf])
def test_what_stands_in_padding_is_not_felt_even_if_it_is_no_number(make, backend, poison):
    clean = make()
    dirty = [clean[0], *(x.at[~VALID].set(poison) for x in clean[1:])]

    def loss(*arrays):
        mask = Visibility(QUERIES, KEYS, causal=False, key_valid=VALID)
        return dot_product_attention(*arrays, mask=mask, backend=backend)

    np.testing.assert_array_equal(loss(*dirty), loss(*clean))
    slopes = quickly(jax.grad(lambda *a: (loss(*a) ** 2).sum(), (0, 1, 2)))
    for found, expected in zip(slopes(*dirty), slopes(*clean), strict=True):
        np.testing.assert_array_equal(found, expected)
    forward = quickly(lambda *arrays: jax.jvp(loss, arrays, arrays)[1])
    np.testing.assert_array_equal(forward(*dirty), forward(*clean))
    mask = Visibility(QUERIES, KEYS, key_valid=VALID)
    dirty_weights, clean_weights = (attention_weights(*x[:2], mask=mask) for x in (dirty, clean))
    np.testing.assert_array_equal(dirty_weights, clean_weights)


def test_a_drawn_mask_does_not_say_what_is_padding_so_values_must_be_finite(make):
    q, k, v = make()
    dirty = v.at[~VALID].set(jnp.nan)
    mask = visible(QUERIES, KEYS, causal=False, key_valid=VALID)
    assert jnp.isnan(dot_product_attention(q, k, dirty, mask=mask)).any()
    remedy = jnp.where(VALID[:, :, None, None], dirty, 0)
    np.testing.assert_array_equal(
        dot_product_attention(q, k, remedy, mask=mask), dot_product_attention(q, k, v, mask=mask)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(window=0), "got window=0"),
        (dict(prefix_length=-2), "got -2"),
        (dict(prefix_length=1, causal=False), "prefix_length needs causal=True"),
        (dict(query_segments=jnp.zeros((B, T), int)), "given together"),
        (dict(key_segments=jnp.zeros((B, S), int)), "given together"),
        (dict(key_valid=jnp.ones((B, S))), "key_valid must be boolean"),
        (
            dict(key_valid=VALID[:, :1]),
            r"key_valid.shape=\(2, 1\) for key_positions.shape=\(1, 5\)",
        ),
        (dict(key_valid=VALID[0]), r"key_valid.shape=\(5,\)"),
        (
            dict(SEGMENTS, query_segments=jnp.zeros((B, 1), int)),
            r"query_segments.shape=\(2, 1\) for query_positions.shape=\(2, 3\)",
        ),
        (dict(SEGMENTS, key_segments=jnp.zeros((B, 1), int)), r"key_segments.shape=\(2, 1\)"),
        (dict(SEGMENTS, key_segments=jnp.ones((B, S))), "key_segments must be integers"),
    ],
)
def test_a_combination_without_meaning_cannot_be_made(monkeypatch, change, message):
    monkeypatch.setattr(Visibility, "__init__", unwrap(Visibility.__init__))
    for make in (Visibility, unwrap(visible)):
        with pytest.raises(ValueError, match=message):
            make(QUERIES, KEYS, **change)


def test_positions_that_are_no_integers_cannot_be_compared(monkeypatch):
    monkeypatch.setattr(Visibility, "__init__", unwrap(Visibility.__init__))
    with pytest.raises(ValueError, match="query_positions must be integers, got dtype=float32"):
        Visibility(QUERIES.astype(jnp.float32), KEYS)
    with pytest.raises(ValueError, match="key_positions must be integers, got dtype=bool"):
        Visibility(QUERIES, KEYS > 2)
    with pytest.raises(ValueError, match=r"key_positions must have two axes.*shape=\(5,\)"):
        Visibility(QUERIES, KEYS[0])


@pytest.mark.parametrize("backend", ["plain", "blockwise"])
def test_a_value_of_other_lengths_is_refused(make, backend):
    for other in (Visibility(KEYS, KEYS), Visibility(QUERIES, QUERIES)):
        with pytest.raises(ValueError, match=r"mask.shape=\(.*\) for B, N, T, S = \(2, 6, 3, 5\)"):
            dot_product_attention(*make(), mask=other, backend=backend)
    three = Visibility(jnp.zeros((3, T), int), KEYS)
    with pytest.raises(ValueError, match=r"mask.shape=\(3, 1, 3, 5\)"):
        attention_weights(*make()[:2], mask=three)
