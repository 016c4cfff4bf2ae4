"""Tests for jtransformer.functional.attention."""

import functools
import math
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jtransformer.functional.attention import attention_weights, dot_product_attention
from jtransformer.functional.masks import causal_mask, padding_mask

B, T, S, N, K, H, Hv = 2, 3, 5, 6, 2, 4, 7


@pytest.fixture
def make(normal):
    """Draws queries, keys and values."""
    return lambda K=K, S=S: normal((B, T, N, H), (B, S, K, H), (B, S, K, Hv))


def reference(q, k, v, mask=None, bias=None, scale=None, soft_cap=None):
    """One score, one row, one head after the other, in float64; returns weights and output."""
    q, k, v = (np.asarray(each, np.float64) for each in (q, k, v))
    (B, T, N, H), (_, S, K, _) = q.shape, k.shape
    shape = (B, N, T, S)
    mask = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape)
    bias = np.zeros(shape) if bias is None else np.broadcast_to(np.asarray(bias, float), shape)
    weights, out = np.zeros(shape), np.zeros((B, T, N, v.shape[-1]))
    for b, n, t in np.ndindex(B, N, T):
        group = n // (N // K)
        exponentials = {}
        for s in range(S):
            score = sum(q[b, t, n] * k[b, s, group]) * (H**-0.5 if scale is None else scale)
            if soft_cap is not None:
                score = soft_cap * math.tanh(score / soft_cap)
            if mask[b, n, t, s]:
                exponentials[s] = math.exp(score + bias[b, n, t, s])
        for s, exponential in exponentials.items():
            weights[b, n, t, s] = exponential / sum(exponentials.values())
            out[b, t, n] += weights[b, n, t, s] * v[b, s, group]
    return weights, out


RANDOM = np.random.default_rng(0)
CASES = {
    "plain": {},
    "causal": dict(mask=causal_mask(T, S)),
    "two axes": dict(mask=jnp.array(RANDOM.random((T, S)) < 0.5)),
    "full mask": dict(mask=jnp.array(RANDOM.random((B, N, T, S)) < 0.5)),
    "head mask": dict(mask=jnp.array(RANDOM.random((1, N, 1, S)) < 0.7)),
    "padding": dict(mask=padding_mask(jnp.arange(S)[None] < jnp.array([[3], [5]]))),
    "bias": dict(bias=jnp.array(RANDOM.normal(size=(1, N, T, S)), jnp.float32)),
    "scale": dict(scale=1.5),
    "soft cap": dict(soft_cap=0.7),
    "all": dict(
        mask=causal_mask(T, S),
        bias=jnp.array(RANDOM.normal(size=(T, S)), jnp.float32),
        scale=2.0,
        soft_cap=3.0,
    ),
}


# Every option with grouped heads, and every grouping with all options.
@pytest.mark.parametrize(
    ("name", "heads"), [(name, K) for name in CASES] + [("all", heads) for heads in (1, 3, 6)]
)
def test_matches_loops(make, name, heads):
    q, k, v = make(K=heads)
    weights, out = reference(q, k, v, **CASES[name])
    found_weights = jax.jit(functools.partial(attention_weights, **CASES[name]))(q, k)
    np.testing.assert_allclose(found_weights, weights, atol=1e-6)
    found = jax.jit(functools.partial(dot_product_attention, **CASES[name]))(q, k, v)
    np.testing.assert_allclose(found, out, atol=3e-6)


@pytest.mark.usefixtures("float64")
def test_worked_two_queries(golden):
    figures = golden("two_query_attention")
    q, k, v = (jnp.array(figures[name])[None, :, None] for name in "qkv")
    for scale, name in ((None, "scaled"), (1.0, "unscaled")):
        weights = attention_weights(q, k, scale=scale)[0, 0]
        np.testing.assert_allclose(weights, figures[f"{name}_weights"], atol=1e-14)
        out = dot_product_attention(q, k, v, scale=scale)[0, :, 0]
        np.testing.assert_allclose(out, figures[f"{name}_out"], atol=1e-14)


def one_query(scores, values, **options):
    """Attention of a single query with these scores on keys of width 1."""
    k = jnp.array(scores, jnp.float32)[None, :, None, None]
    v = jnp.array(values, jnp.float32)[None, :, None, None]
    return dot_product_attention(jnp.ones((1, 1, 1, 1)), k, v, **options).item()


def test_a_mask_acts_before_the_softmax(golden):
    figures = golden("masks")["mask_forms"]
    mask = jnp.array([figures["visible"]])
    assert one_query(figures["scores"], figures["values"], mask=mask) == figures["right"]


def test_true_means_may_look():
    q = jnp.array([1.0, 0.0])[None, None, None]
    k = jnp.array([[1.0, 0.0], [0.0, 1.0]])[None, :, None]
    v = jnp.array([[1.0], [10.0]])[None, :, None]
    assert dot_product_attention(q, k, v, mask=jnp.array([[True, False]])).item() == 1.0


def test_source_padding_is_invisible_to_cross_attention():
    assert one_query([0, 0], [1, 100]) == 50.5
    assert one_query([0, 0], [1, 100], mask=jnp.array([[True, False]])) == 1.0


def test_hidden_keys_have_weight_exactly_zero_however_high_their_score():
    weights = attention_weights(
        jnp.ones((1, 1, 1, 1)),
        jnp.array([20_000.0, 0.0])[None, :, None, None],
        mask=jnp.array([[False, True]]),
    )
    np.testing.assert_array_equal(weights.ravel(), [0, 1])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_a_hidden_key_is_felt_by_no_bit(make, dtype):
    q, k, v = (each.astype(dtype) for each in make())
    mask = padding_mask(jnp.arange(S)[None] < 3)
    out = dot_product_attention(q, k, v, mask=mask)
    assert out.dtype == dtype
    changed = [each.at[:, 3:].set(1000) for each in (k, v)]
    np.testing.assert_array_equal(dot_product_attention(q, *changed, mask=mask), out)


def test_head_width_scales_and_width_of_the_model_does_not():
    q = jnp.ones((1, 1, 4, 4))  # D = N·H = 16
    k = jnp.array([[1.0] * 4, [0.0] * 4])[None, :, None]
    weights = attention_weights(q, k)
    np.testing.assert_allclose(weights[0, 3, 0], [0.880797, 0.119203], atol=1e-6)
    np.testing.assert_allclose(attention_weights(q, k, scale=1.0)[0, 0, 0, 0], 0.982014, atol=1e-6)


def test_query_heads_of_a_group_are_neighbours():
    q, k = jnp.ones((1, 1, 4, 1)), jnp.ones((1, 1, 2, 1))
    v = jnp.array([10.0, 20.0])[None, None, :, None]
    np.testing.assert_array_equal(dot_product_attention(q, k, v).ravel(), [10, 10, 20, 20])


def test_grouped_heads_equal_repeated_ones(make):
    q, k, v = make()
    repeated = [jnp.repeat(each, N // K, axis=2) for each in (k, v)]
    grouped = dot_product_attention(q, k, v)
    np.testing.assert_allclose(grouped, dot_product_attention(q, *repeated), atol=1e-6)


def test_a_query_that_sees_nothing_gets_zeros_and_sends_none(make):
    arrays = make()
    mask = jnp.ones((T, S), bool).at[1].set(False)

    def out(q, k, v):
        return dot_product_attention(q, k, v, mask=mask)

    np.testing.assert_array_equal(out(*arrays)[:, 1], jnp.zeros((B, N, Hv)))
    assert (attention_weights(*arrays[:2], mask=mask)[:, :, 1] == 0).all()
    assert (jnp.abs(out(*arrays)[:, 0]) > 0).all()
    blind = jax.grad(lambda *a: out(*a)[:, 1].sum(), argnums=(0, 1, 2))(*arrays)
    assert all((gradient == 0).all() for gradient in blind)
    whole = jax.grad(lambda *a: jnp.sum(out(*a) ** 2), argnums=(0, 1, 2))(*arrays)
    assert all(jnp.isfinite(gradient).all() for gradient in whole)
    assert (whole[0][:, 1] == 0).all()
    forward = jax.jvp(out, tuple(arrays), tuple(arrays))[1]
    assert jnp.isfinite(forward).all()


def test_gradient_around_a_row_that_sees_nothing():
    x = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    mask = jnp.array([[False, False], [True, True]])

    def loss(w):
        projected = (x @ w)[None, :, None]
        out = dot_product_attention(projected, x[None, :, None], projected, mask=mask, scale=1.0)
        return out[0, 1].sum()

    expected = [[2.985212, 2.985212], [4.112159, 4.112159]]
    np.testing.assert_allclose(jax.grad(loss)(0.1 * jnp.eye(2)), expected, atol=1e-5)


def test_a_bias_of_minus_infinity_hides_too(make):
    q, k, v = make()
    mask = causal_mask(T, S).at[..., 1, :].set(False)
    hiding = jnp.where(mask, 0, -jnp.inf)
    masked = dot_product_attention(q, k, v, mask=mask)
    np.testing.assert_allclose(dot_product_attention(q, k, v, bias=hiding), masked, atol=1e-6)
    gradient = jax.grad(lambda q: dot_product_attention(q, k, v, bias=hiding).sum())(q)
    assert jnp.isfinite(gradient).all()


def test_no_keys_give_zeros(make):
    q, k, v = make(S=0)
    np.testing.assert_array_equal(dot_product_attention(q, k, v), jnp.zeros((B, T, N, Hv)))


def test_zero_one_masks_are_refused():
    q = jnp.ones((1, 1, 1, 1))
    k = jnp.zeros((1, 2, 1, 1))
    for function, arrays in ((dot_product_attention, (q, k, k)), (attention_weights, (q, k))):
        with pytest.raises(ValueError, match="boolean.*dtype=float32.*as bias"):
            unwrap(function)(*arrays, mask=jnp.array([[1.0, 0.0]]))
    weights = attention_weights(q, k, bias=jnp.array([[1.0, 0.0]])).ravel()
    np.testing.assert_allclose(weights, [0.731059, 0.268941], atol=1e-6)


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (
            ((1, 2, 6, 4), (1, 3, 4, 4), (1, 3, 4, 4)),
            {},
            r"N=6, K=4; use a K out of \[1, 2, 3, 6\]",
        ),
        (((1, 2, 6, 4), (1, 3, 2, 5), (1, 3, 2, 4)), {}, r"k.shape=\(1, 3, 2, 5\)"),
        (((2, 2, 6, 4), (1, 3, 2, 4), (1, 3, 2, 4)), {}, r"q.shape=\(2, 2, 6, 4\)"),
        (((1, 2, 6, 4), (1, 3, 2, 4), (1, 4, 2, 4)), {}, r"v.shape=\(1, 4, 2, 4\)"),
        (None, dict(mask=jnp.ones((3, 2), bool)), r"mask.shape=\(3, 2\) for B, N, T, S = "),
        (None, dict(mask=jnp.ones((1, 2, 3), bool)), r"mask.shape=\(1, 2, 3\)"),
        (None, dict(bias=jnp.ones((2, 1, 2, 3))), r"bias.shape=\(2, 1, 2, 3\)"),
        (None, dict(soft_cap=0.0), "soft_cap must be positive, got 0.0"),
        (None, dict(dropout_rate=1.0), "rate=1.0"),
    ],
)
def test_wrong_arguments_are_named(shapes, options, message):
    shapes = shapes or ((1, 2, 6, 4), (1, 3, 2, 4), (1, 3, 2, 4))
    with pytest.raises(ValueError, match=message):
        unwrap(dot_product_attention)(*(jnp.ones(shape) for shape in shapes), **options)
