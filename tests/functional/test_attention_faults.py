"""Faults that attention code is known for, each on every backend that has it to avoid."""

import functools
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer import functional as F
from jtransformer.functional import attention

EVERY_BACKEND = pytest.mark.parametrize("backend", ["plain", "fused", "blockwise"])


@pytest.fixture(autouse=True)
def blocks_of_one_query(monkeypatch):
    monkeypatch.setattr(attention, "block_rows", lambda shape: 1)


@pytest.fixture
def attend(backend):
    return functools.partial(at_once(F.dot_product_attention), backend=backend)


def columns(*values):
    """One head of width 1: `B S K H` from a list of numbers."""
    return jnp.array(values, jnp.float32)[None, :, None, None]


def one_query(attend, scores, values, **options):
    """Attention of a single query with these scores on keys of width 1."""
    return attend(columns(1.0), columns(*scores), columns(*values), **options).item()


@EVERY_BACKEND
def test_polarity(attend):
    """A mask of the opposite convention reads what was to be hidden: 10 instead of 1."""
    q = jnp.array([1.0, 0.0])[None, None, None]
    k = jnp.array([[1.0, 0.0], [0.0, 1.0]])[None, :, None]
    v = jnp.array([[1.0, 1.0], [10.0, 10.0]])[None, :, None]
    out = attend(q, k, v, mask=jnp.array([[True, False]]))
    np.testing.assert_array_equal(out.ravel(), [1.0, 1.0])


@EVERY_BACKEND
def test_before_the_softmax(attend, golden):
    """Zeroing scores before, or weights after the softmax gives 11.19 or 7.31 instead of 10."""
    figures = golden("masks")["mask_forms"]
    mask = jnp.array([figures["visible"]])
    out = one_query(attend, figures["scores"], figures["values"], mask=mask)
    assert out == figures["right"]
    wrong = one_query(attend, [2, 0], figures["values"])
    np.testing.assert_allclose(wrong, figures["score_set_to_zero"], rtol=1e-6)
    zeroed = one_query(attend, figures["scores"], [10, 0])
    np.testing.assert_allclose(zeroed, figures["zeroed_after_softmax"], rtol=1e-6)


@EVERY_BACKEND
def test_blind_query(attend):
    """One query that sees nothing turns every gradient into NaN, though it is not scored."""
    x = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    mask = jnp.array([[False, False], [True, True]])

    def loss(w):
        projected = (x @ w)[None, :, None]
        return attend(projected, x[None, :, None], projected, mask=mask, scale=1.0)[0, 1].sum()

    expected = [[2.985212, 2.985212], [4.112159, 4.112159]]
    np.testing.assert_allclose(quickly(jax.grad(loss))(0.1 * jnp.eye(2)), expected, atol=1e-5)


@EVERY_BACKEND
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16])
def test_hidden_by_a_number(attend, dtype):
    """A hidden score of 20,000 outweighs a summand of -1e4, and -1e9 is NaN in float16."""
    scores, values = (x.astype(dtype) for x in (columns(20_000, 0), columns(1, 5)))
    mask = jnp.array([[False, True]])
    assert attend(jnp.ones((1, 1, 1, 1), dtype), scores, values, mask=mask).item() == 5
    weights = F.attention_weights(jnp.ones((1, 1, 1, 1), dtype), scores, mask=mask)
    np.testing.assert_array_equal(weights.ravel(), [0, 1])


@EVERY_BACKEND
def test_number_for_a_mask(attend):
    """A 0/1 float mask is added to the scores by some: 0.731 instead of a hidden key."""
    q, k, v = columns(1.0), columns(0, 0), columns(1, 0)
    zero_one = jnp.array([[1.0, 0.0]])
    with pytest.raises(ValueError, match=r"boolean.*dtype=float32.*as bias"):
        unwrap(F.dot_product_attention)(q, k, v, mask=zero_one)
    with pytest.raises(ValueError, match=r"boolean.*dtype=float32.*as bias"):
        unwrap(F.attention_weights)(q, k, mask=zero_one)
    np.testing.assert_allclose(attend(q, k, v, bias=zero_one).item(), 0.731059, atol=1e-6)
    assert attend(q, k, v, mask=zero_one != 0).item() == 1


@EVERY_BACKEND
def test_source_padding_in_decoding(attend, normal):
    """Cross-attention without the source's mask averages padding in: 50.5 instead of 1."""
    valid = jnp.array([[True, False]])
    assert one_query(attend, [0, 0], [1, 100], mask=F.cross_mask(1, valid)) == 1
    assert one_query(attend, [0, 0], [1, 100]) == 50.5
    # A batch of one, trimmed, is its row of the batch of two.
    q, memory = normal((2, 3, 4, 2), (2, 5, 4, 2))
    lengths = jnp.array([[3], [5]])
    mask = F.cross_mask(3, jnp.arange(5)[None] < lengths)
    many = attend(q, memory, memory, mask=mask)
    alone = attend(q[:1], memory[:1, :3], memory[:1, :3])
    np.testing.assert_allclose(many[:1], alone, atol=1e-6)


def test_padding_that_is_a_token():
    """Ids 5 2 7 2 of length 4, padded with the EOS 2: the ids say 1 0 1 0, the length 1 1 1 1."""
    mask = F.padding_mask(jnp.arange(4)[None] < jnp.array([[4]]))
    np.testing.assert_array_equal(mask, np.ones((1, 1, 1, 4)))


@EVERY_BACKEND
def test_tiled_key_heads(attend):
    """Key heads that are tiled instead of repeated give 10 20 10 20 for 10 10 20 20."""
    v = jnp.array([10.0, 20.0])[None, None, :, None]
    out = attend(jnp.ones((1, 1, 4, 1)), jnp.ones((1, 1, 2, 1)), v)
    np.testing.assert_array_equal(out.ravel(), [10, 10, 20, 20])


@EVERY_BACKEND
@pytest.mark.parametrize(("scale", "weight"), [(None, 0.880797), (1.0, 0.982014), (0.25, 0.731059)])
def test_scale_of_the_model_width(attend, scale, weight):
    """Dividing by the root of the model's width 16 gives 0.731 where the head's 4 gives 0.881."""
    q = jnp.ones((1, 1, 4, 4))
    k = jnp.array([[1.0] * 4, [0.0] * 4])[None, :, None]
    out = attend(q, k, k, scale=scale)
    np.testing.assert_allclose(out, np.full((1, 1, 4, 4), weight), atol=1e-6)
    weights = F.attention_weights(q, k, scale=scale)[0, :, 0, 0]
    np.testing.assert_allclose(weights, [weight] * 4, atol=1e-6)


@EVERY_BACKEND
def test_triangle_by_index_in_a_buffer(attend, normal):
    """A triangle of the key's index lets each decoding step see the first key alone."""
    q, k, v = normal(*[(1, 4, 2, 3)] * 3)
    whole = attend(q, k, v, mask=F.causal_mask(4))
    slots = jnp.arange(4)[None]

    @quickly
    def step(t, keys, values):
        position = jnp.full((1, 1), t)
        # Slots are positions here; only those that are filled are keys.
        mask = F.visible(position, slots, key_valid=slots <= t)
        return attend(jax.lax.dynamic_slice_in_dim(q, t, 1, 1), keys, values, mask=mask)

    keys, values = jnp.zeros_like(k), jnp.zeros_like(v)
    for t in range(4):
        keys, values = keys.at[:, t].set(k[:, t]), values.at[:, t].set(v[:, t])
        np.testing.assert_allclose(step(t, keys, values)[:, 0], whole[:, t], atol=1e-6)
    first_alone = attend(q[:, 3:], k, v, mask=jnp.arange(4)[None] < 1)
    assert not np.allclose(first_alone[:, 0], whole[:, 3], atol=1e-2)
