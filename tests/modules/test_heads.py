"""Heads: which states they read, what is pooled, and in which shape they answer."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly
from tiny_model import BASE, B, T, V, changed, drawn, model_of, tokens_of

from jtransformer.modules import build
from jtransformer.modules.heads import pool
from jtransformer.spec import Classifier, Embedder, Encoder, Tagger, TokenHead

ENCODER = changed(stack=Encoder())
VALID = jnp.array([[False, True, True, True, False, False, False], [True] * T])


def answer(spec, key, **given):
    return model_of(spec).apply(drawn(spec), tokens_of(key), **given)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [("first", [1.0, 0.0]), ("last", [3.0, 6.0]), ("mean", [2.0, 3.0]), ("max", [3.0, 6.0])],
)
def test_padding_is_never_pooled(pooling, expected):
    hidden = jnp.tile(jnp.arange(T, dtype=jnp.float32)[None, :, None], (B, 1, 4))
    pooled = quickly(pool, static_argnums=2)(hidden, VALID, pooling)
    np.testing.assert_allclose(pooled, np.tile(np.array(expected)[:, None], (1, 4)))


@pytest.mark.parametrize("pooling", ["first", "last", "mean", "max"])
def test_a_row_without_a_token_pools_to_zeros_with_finite_gradients(pooling):
    hidden = jnp.ones((B, T, 4)) - 3
    valid = jnp.array([[False] * T, [True] * T])

    def total(hidden):
        pooled = pool(hidden, valid, pooling)
        return jnp.sum(pooled[1]), pooled

    gradient, pooled = quickly(jax.grad(total, has_aux=True))(hidden)
    np.testing.assert_array_equal(pooled[0], 0)
    np.testing.assert_allclose(pooled[1], -2)
    np.testing.assert_array_equal(gradient[0], 0)


def test_every_row_has_everything_without_padding(key):
    hidden = jax.random.normal(key, (B, T, 4))
    for pooling, expected in (
        ("first", hidden[:, 0]),
        ("last", hidden[:, -1]),
        ("mean", hidden.mean(1)),
        ("max", hidden.max(1)),
    ):
        np.testing.assert_allclose(pool(hidden, None, pooling), expected, atol=1e-6)


@pytest.mark.parametrize("pooling", ["first", "last", "mean", "max"])
def test_a_classifier_reads_the_pooled_state_and_no_padding(key, pooling):
    spec = changed(ENCODER, head=Classifier(classes=4, pooling=pooling))
    out = answer(spec, key, valid=VALID)
    head = drawn(spec)["params"]["head"]
    expected = pool(out.hidden, VALID, pooling) @ head["kernel"] + head["bias"][None]
    np.testing.assert_allclose(out.logits, expected, atol=1e-5)
    assert out.logits.shape == (B, 4)
    other = tokens_of(key).at[0, 4:].set(2).at[0, 0].set(2)
    moved = model_of(spec).apply(drawn(spec), other, valid=VALID)
    np.testing.assert_array_equal(moved.logits, out.logits)


def test_a_tagger_scores_every_position(key):
    spec = changed(ENCODER, head=Tagger(classes=4))
    out = answer(spec, key)
    head = drawn(spec)["params"]["head"]
    assert out.logits.shape == (B, T, 4) and out.pooled is None
    expected = out.hidden @ head["kernel"] + head["bias"][None, None]
    np.testing.assert_allclose(out.logits, expected, atol=1e-5)


def test_an_embedder_returns_one_vector_of_length_one(key):
    spec = changed(ENCODER, head=Embedder(embedding_width=5))
    out = answer(spec, key, valid=VALID)
    assert out.logits is None and out.pooled.shape == (B, 5)
    np.testing.assert_allclose(jnp.sum(out.pooled**2, axis=-1), 1, atol=1e-6)
    plain = answer(changed(ENCODER, head=Embedder(unit_length=False)), key, valid=VALID)
    np.testing.assert_allclose(plain.pooled, pool(plain.hidden, VALID, "mean"), atol=1e-6)


def test_a_pooler_is_a_tanh_layer_on_the_first_token(key):
    for head in (TokenHead(), Classifier(pooling="first")):
        spec = changed(stack=Encoder(pooler=True), head=head)
        out = answer(spec, key, valid=VALID)
        parameters = drawn(spec)["params"]
        first = jnp.stack([out.hidden[0, 1], out.hidden[1, 0]])
        dense = parameters["pooler"]
        expected = np.tanh(first @ dense["kernel"] + dense["bias"][None])
        np.testing.assert_allclose(out.pooled, expected, atol=1e-5)
    scores = expected @ parameters["head"]["kernel"] + parameters["head"]["bias"][None]
    np.testing.assert_allclose(out.logits, scores, atol=1e-5)


def test_the_head_of_masked_models_is_dense_gelu_norm_and_the_tied_matrix_with_a_bias(key):
    spec = changed(ENCODER, head=TokenHead(transform=True, bias=True))
    out = answer(spec, key)
    tree = jax.tree.map(lambda x: np.asarray(x, np.float64), drawn(spec)["params"])
    h = np.asarray(out.hidden, np.float64)
    h = h @ tree["head_transform"]["kernel"] + tree["head_transform"]["bias"]
    h = h * 0.5 * (1 + np.vectorize(math.erf)(h / 2**0.5))
    h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5)
    h = h * tree["head_norm"]["scale"] + tree["head_norm"]["bias"]
    expected = h @ tree["embedding"]["table"].T + tree["head"]["bias"]
    np.testing.assert_allclose(out.logits, expected, atol=1e-4)


def test_scale_down_is_a_factor_of_the_logits_by_the_width(key):
    """The fault of a tied T5 without it: the ratio is 4 at width 16."""
    spec = changed(width=16, heads=4, head=TokenHead(scale_down=True))
    down, plain = answer(spec, key), answer(changed(width=16, heads=4), key)
    np.testing.assert_allclose(plain.logits, 4 * down.logits, rtol=1e-5)


def test_a_soft_cap_bounds_the_logits(key):
    capped, plain = answer(changed(head=TokenHead(soft_cap=0.5)), key), answer(BASE, key)
    np.testing.assert_allclose(capped.logits, 0.5 * np.tanh(plain.logits / 0.5), atol=1e-6)


def test_hidden_is_what_the_head_reads(key):
    out = answer(BASE, key)
    table = drawn(BASE)["params"]["embedding"]["table"]
    np.testing.assert_allclose(out.logits, out.hidden @ table.T, atol=1e-5)
    assert out.pooled is None and out.memory is None and out.cache is None
    assert out.intermediates == {} and out.logits.shape == (B, T, V)


@pytest.mark.parametrize("head", [Classifier(), Embedder(embedding_width=5), Tagger()], ids=str)
def test_every_parameter_under_other_heads_receives_a_gradient(key, head):
    spec = changed(ENCODER, head=head, layers=1)

    def loss(variables):
        out = build(spec).apply(variables, tokens_of(key), valid=VALID)
        scores = out.pooled if out.logits is None else out.logits
        return jnp.sum(scores * jnp.cos(jnp.arange(scores.size)).reshape(scores.shape))

    for path, gradient in jax.tree_util.tree_leaves_with_path(quickly(jax.grad(loss))(drawn(spec))):
        assert float(jnp.max(jnp.abs(gradient))) > 1e-7, path
