"""Tests of encoders, prefix decoders and models of two stacks: who sees whom."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import quickly
from tiny_model import (
    BASE,
    STACKS,
    B,
    S,
    T,
    V,
    changed,
    drawn,
    model_of,
    needed,
    tokens_of,
)

from jtransformer.modules import build
from jtransformer.spec import Alibi, DotProduct, Encoder, EncoderDecoder, NoPosition

ALL, ALL_SOURCE = jnp.ones((B, T), bool), jnp.ones((B, S), bool)
TWO = ["encoder_decoder", "two_scanned"]


def moved(spec, key, at, **given):
    """Says which logits move with the token at a position."""
    variables, tokens = drawn(spec), tokens_of(key)
    given = needed(spec, key) | {"valid": ALL} | given
    apply = model_of(spec).apply
    before = apply(variables, tokens, **given).logits
    after = apply(variables, tokens.at[:, at].set((tokens[:, at] + 1) % V), **given).logits
    return np.any(np.asarray(before != after), axis=(0, 2)).tolist()


def test_every_token_of_an_encoder_reaches_every_other(key):
    assert moved(STACKS["encoder"], key, T - 1) == [True] * T
    assert moved(STACKS["encoder"], key, 0) == [True] * T


def test_a_window_of_an_encoder_looks_both_ways(key):
    spec = changed(stack=Encoder(), layers=1, attention=DotProduct(window=2), position=Alibi())
    assert moved(spec, key, 3) == [False, False, True, True, True, False, False]


@pytest.mark.parametrize(
    ("at", "expected"),
    [(2, [True] * T), (3, [False] * 3 + [True] * 4), (0, [True] * T)],
)
def test_a_prefix_sees_itself_and_the_rest_looks_back(key, at, expected):
    assert moved(STACKS["prefix_decoder"], key, at) == expected


def test_null_a_prefix_of_none_is_a_decoder(key):
    spec = STACKS["prefix_decoder"]
    decoder = changed(stack=BASE.stack)
    prefix = changed(decoder, stack=spec.stack)
    variables, tokens = drawn(decoder), tokens_of(key)
    np.testing.assert_array_equal(
        model_of(prefix).apply(variables, tokens, prefix_length=0).logits,
        model_of(decoder).apply(variables, tokens).logits,
    )


def test_live_each_row_has_a_prefix_of_its_own(key):
    spec = STACKS["prefix_decoder"]
    variables, tokens = drawn(spec), tokens_of(key)
    apply = model_of(spec).apply
    one, two = (apply(variables, tokens, prefix_length=length).logits for length in (2, 5))
    both = apply(variables, tokens, prefix_length=jnp.array([2, 5])).logits
    np.testing.assert_allclose(both[0], one[0], atol=1e-6)
    np.testing.assert_allclose(both[1], two[1], atol=1e-6)
    assert not np.allclose(one, two, atol=1e-4)


@pytest.mark.parametrize("name", TWO)
def test_a_target_is_causal_and_reads_the_whole_source(key, name):
    spec = STACKS[name]
    assert moved(spec, key, 4) == [False] * 4 + [True] * 3
    variables, tokens = drawn(spec), tokens_of(key)
    source = needed(spec, key)["source"]
    apply = model_of(spec).apply
    before = apply(variables, tokens, source=source, valid=ALL)
    for s in (0, S - 1):
        other = source.at[:, s].set((source[:, s] + 1) % V)
        after = apply(variables, tokens, source=other, valid=ALL)
        assert np.all(np.any(np.asarray(after.logits != before.logits), axis=(0, 2)))
        # The first state of the source moves with its last token: the encoder is not causal.
        assert not np.allclose(after.memory[:, 0], before.memory[:, 0])


@pytest.mark.parametrize("name", TWO)
def test_padding_of_source_and_target_does_not_matter(key, name):
    """The padding of a target has no part in the mask of its cross-attention."""
    spec = STACKS[name]
    variables, tokens = drawn(spec), tokens_of(key)
    source = needed(spec, key)["source"]
    valid = jnp.arange(T)[None] < jnp.array([[T], [4]])
    source_valid = jnp.arange(S)[None] < jnp.array([[S], [2]])
    apply = quickly(build(spec).apply)

    def logits(tokens, source):
        given = dict(valid=valid, source=source, source_valid=source_valid)
        return apply(variables, tokens, **given).logits

    before = logits(tokens, source)
    other = logits(tokens.at[1, 4:].set(1), source.at[1, 2:].set(1))
    np.testing.assert_array_equal(other[0], before[0])
    np.testing.assert_array_equal(other[1, :4], before[1, :4])
    alone = model_of(spec).apply(variables, tokens[1:, :4], source=source[1:, :2]).logits
    np.testing.assert_allclose(before[1:, :4], alone, atol=1e-5)


def test_packed_pairs_read_their_own_source(key):
    spec = STACKS["encoder_decoder"]
    variables, tokens = drawn(spec), tokens_of(key)
    source = needed(spec, key)["source"]
    packed = model_of(spec).apply(
        variables,
        tokens,
        source=source,
        segments=jnp.array([[0, 0, 0, 1, 1, 1, 1]] * B),
        positions=jnp.array([[0, 1, 2, 0, 1, 2, 3]] * B),
        source_segments=jnp.array([[0, 0, 1, 1, 1]] * B),
        source_positions=jnp.array([[0, 1, 0, 1, 2]] * B),
    )
    apply = model_of(spec).apply
    first = apply(variables, tokens[:, :3], source=source[:, :2]).logits
    second = apply(variables, tokens[:, 3:], source=source[:, 2:]).logits
    np.testing.assert_allclose(packed.logits, jnp.concatenate([first, second], 1), atol=1e-5)


def test_without_the_out_matrix_of_cross_attention_the_source_does_not_matter(key):
    spec = STACKS["encoder_decoder"]

    def silenced(path, leaf):
        names = [entry.key for entry in path]
        return jnp.zeros_like(leaf) if names[-3:-1] == ["cross_attention", "out"] else leaf

    variables = jax.tree_util.tree_map_with_path(silenced, drawn(spec))
    source = needed(spec, key)["source"]
    outs = [
        model_of(spec).apply(variables, tokens_of(key), source=x, valid=ALL).logits
        for x in (source, (source + 1) % V)
    ]
    np.testing.assert_array_equal(*outs)


def test_every_decoder_layer_reads_the_normed_memory_by_its_own_matrices(key):
    spec = changed(stack=EncoderDecoder(encoder_layers=1))
    tree = drawn(spec)["params"]
    for layer in ("layer_0", "layer_1"):
        cross = tree["decoder"][layer]["cross_attention"]
        assert set(cross) == {"query", "key", "value", "out"}
        # Pre-LN: the query side alone is normed, the memory left through the final norm.
        assert set(tree["decoder"][layer]) == {
            "attention", "attention_norm_in", "cross_attention", "cross_attention_norm_in",
            "ffn", "ffn_norm_in",
        }  # fmt: skip
    assert set(tree) == {"embedding", "encoder", "decoder"}
    normed = drawn(STACKS["encoder_decoder"])["params"]["decoder"]["layer_0"]
    assert {"query_norm", "key_norm"} <= set(normed["cross_attention"]) & set(normed["attention"])
    source = needed(spec, key)["source"]
    apply = model_of(spec).apply
    names = ("encoder/final_norm",)
    out = apply({"params": tree}, tokens_of(key), source=source, intermediates=names)
    np.testing.assert_array_equal(out.memory, out.intermediates["encoder/final_norm"])


def test_swapping_tokens_swaps_states_without_positions_and_a_mean_does_not_notice(key):
    spec = changed(stack=Encoder(), position=NoPosition())
    variables, tokens = drawn(spec), tokens_of(key)
    order = jnp.array([3, 1, 0, 2, 6, 5, 4])
    apply = model_of(spec).apply
    ours, theirs = apply(variables, tokens).hidden, apply(variables, tokens[:, order]).hidden
    np.testing.assert_allclose(theirs, ours[:, order], atol=1e-5)
    np.testing.assert_allclose(theirs.mean(1), ours.mean(1), atol=1e-5)


@pytest.mark.parametrize("name", STACKS)
def test_every_parameter_of_a_stack_receives_a_gradient(key, name):
    spec = STACKS[name]
    given = needed(spec, key)

    def loss(variables):
        out = build(spec).apply(variables, tokens_of(key), **given)
        pooled = 0.0 if out.pooled is None else jnp.sum(out.pooled**2)
        return jnp.mean(out.logits**2) + pooled

    for path, gradient in jax.tree_util.tree_leaves_with_path(quickly(jax.grad(loss))(drawn(spec))):
        assert float(jnp.max(jnp.abs(gradient))) > 1e-7, path
