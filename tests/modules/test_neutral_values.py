"""Tests that the neutral value of each field gives the plain model, bit for bit.

A parameter that only the richer model has is set to what changes nothing: zeros for biases and
tables, ones for scales.
"""

import dataclasses
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_model import B, S, T, V, needed

from jtransformer.functional import FFN_KINDS
from jtransformer.spec import (
    GATED_FFNS,
    Alibi,
    DotProduct,
    Dropout,
    Encoder,
    EncoderDecoder,
    FixedScale,
    LatentAttention,
    LayerNorm,
    LayerScale,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    NoPosition,
    NTKScaling,
    RelativeBias,
    ReZero,
    RMSNorm,
    Rope,
    Shaw,
    T5Bias,
    TokenHead,
    YarnScaling,
)

ONE = ModelSpec(vocabulary=V, width=12, layers=1, heads=3, ffn_width=8)


def of(**changes):
    return dataclasses.replace(ONE, **changes)


ROPE, NONE, ENCODER = of(position=Rope()), of(position=NoPosition()), of(stack=Encoder())
LOCAL = DotProduct(window=3, window_pattern="window,full")
LATENT = of(attention=LatentAttention(latent_width=5))
NULL = {
    "key_value_heads": (ONE, of(key_value_heads=3)),
    "head_width": (ONE, of(head_width=4)),
    "qkv_bias": (ONE, of(qkv_bias=True)),
    "attention_out_bias": (ONE, of(attention_out_bias=True)),
    "ffn_bias": (ONE, of(ffn_bias=True)),
    "final_norm": (ONE, of(final_norm=True)),
    "stream_scale": (ONE, of(stream_scale=1.0)),
    "fixed": (ONE, of(branch_scale=FixedScale(value=1.0))),
    "rezero": (ONE, of(branch_scale=ReZero())),
    "layer_scale": (ONE, of(branch_scale=LayerScale())),
    "scale": (ONE, of(attention=DotProduct(scale=0.5))),
    "window": (ONE, of(attention=DotProduct(window=T))),
    "layer norm without bias": (of(norm=LayerNorm(bias=False)), ONE),
    "value_width": (LATENT, of(attention=LatentAttention(latent_width=5, value_width=4))),
    "linear scaling": (ROPE, of(position=Rope(scaling=LinearScaling(factor=1.0)))),
    "ntk": (ROPE, of(position=Rope(scaling=NTKScaling(factor=1.0)))),
    "llama3": (ROPE, of(position=Rope(scaling=Llama3Scaling(factor=1.0)))),
    "yarn": (ROPE, of(position=Rope(scaling=YarnScaling(factor=1.0)))),
    "window_theta": tuple(
        of(layers=2, attention=LOCAL, position=Rope(theta=99.0, window_theta=theta))
        for theta in (None, 99.0)
    ),
    "rotary_fraction": (ROPE, of(position=Rope(rotary_fraction=1.0))),
    "t5_bias": (NONE, of(position=T5Bias(buckets=4, max_distance=6))),
    "relative_bias": (NONE, of(position=RelativeBias())),
    "shaw": (NONE, of(position=Shaw(values=True))),
    "token_types": (ENCODER, of(stack=Encoder(token_types=2))),
    "pooler": (ENCODER, of(stack=Encoder(pooler=True))),
    "head bias": (ONE, of(head=TokenHead(bias=True))),
    "transform_bias": (
        of(head=TokenHead(transform=True, transform_bias=False)),
        of(head=TokenHead(transform=True)),
    ),
    "source_vocabulary": (
        of(stack=EncoderDecoder(encoder_layers=1)),
        of(stack=EncoderDecoder(encoder_layers=1, source_vocabulary=V)),
    ),
}


def tokens():
    return jax.random.randint(jax.random.key(1), (B, T), 0, V)


def paths(variables):
    return {
        tuple(entry.key for entry in path)
        for path, _ in jax.tree_util.tree_leaves_with_path(variables["params"])
    }


PLAIN = {}


def plainly(run, spec, given):
    """Runs a plain model once for all cases that start from it."""
    if spec not in PLAIN:
        PLAIN[spec] = run(spec, tokens(), **given)
    return PLAIN[spec]


@pytest.mark.parametrize("name", NULL)
def test_null_the_neutral_value_is_the_plain_model(run, name):
    plain, neutral = NULL[name]
    given = needed(plain, jax.random.key(2))
    expected, variables = plainly(run, plain, given)
    known = paths(variables)

    def neutralised(names, value):
        if tuple(names) in known:
            return value
        return np.full_like(value, 1.0 if names[-1] == "scale" else 0.0)

    found, _ = run(neutral, tokens(), edit=neutralised, **given)
    np.testing.assert_array_equal(found.logits, expected.logits)


def test_null_a_scale_less_one_is_the_scale(run):
    def less_one(names, value):
        return value - 1 if names[-1] == "scale" else value

    expected, _ = run(of(norm=RMSNorm()), tokens())
    found, _ = run(of(norm=RMSNorm(unit_offset=True)), tokens(), edit=less_one)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-6)


def test_null_a_norm_of_what_is_normed_is_the_first_norm(run):
    """Up to epsilon, which is why it can be left out; in the other layers it may not."""

    def plain(names, value):
        return np.ones_like(value) if names[-1] == "scale" else value

    normed = of(layers=2, embedding_norm=True, norm=RMSNorm(epsilon=1e-9))
    expected, _ = run(normed, tokens(), edit=plain)
    found, variables = run(dataclasses.replace(normed, first_norm=False), tokens(), edit=plain)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-5)
    held = {layer: sorted(variables["params"][layer]) for layer in ("layer_0", "layer_1")}
    assert held["layer_1"] == sorted([*held["layer_0"], "attention_norm_in"])


def test_null_a_head_whose_rows_of_the_out_matrix_are_zero_is_off(run):
    def without_head_1(names, value):
        if names[-2:] != ["out", "kernel"] or "attention" not in names:
            return value
        return value * (np.arange(3) != 1)[:, None, None].astype(np.float32)

    expected, _ = run(ONE, tokens(), edit=without_head_1)
    found, _ = run(of(attention=DotProduct(heads_off="0.1")), tokens())
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-6)


def test_null_dropout_without_a_key_is_none(run):
    rates = Dropout(embedding=0.3, attention=0.3, ffn=0.3, residual=0.3)
    expected, _ = run(ONE, tokens())
    found, _ = run(of(dropout=rates), tokens())
    np.testing.assert_array_equal(found.logits, expected.logits)
    keyed, _ = run(ONE, tokens(), key=jax.random.key(1))
    np.testing.assert_array_equal(keyed.logits, expected.logits)


def test_null_two_tables_with_the_same_rows_are_a_shared_one(run):
    shared = of(stack=EncoderDecoder(encoder_layers=1))
    own = of(stack=EncoderDecoder(encoder_layers=1, share_embedding=False))
    rows = {}

    def same(names, value):
        return rows.setdefault("rows", value) if names[-1] == "table" else value

    given = needed(shared, jax.random.key(2))
    expected, _ = run(shared, tokens(), edit=same, **given)
    found, _ = run(own, tokens(), edit=same, **given)
    np.testing.assert_array_equal(found.logits, expected.logits)


def test_null_arguments_that_say_what_is_so_anyway(run):
    counted = jnp.tile(jnp.arange(T)[None], (B, 1))
    for spec in (ONE, ENCODER, of(position=Alibi())):
        expected, _ = run(spec, tokens())
        found, _ = run(
            spec,
            tokens(),
            positions=counted,
            valid=jnp.ones((B, T), bool),
            segments=jnp.zeros((B, T), jnp.int32),
        )
        np.testing.assert_array_equal(found.logits, expected.logits)
    typed = of(stack=Encoder(token_types=2))
    expected, _ = run(typed, tokens())
    found, _ = run(typed, tokens(), token_types=jnp.zeros((B, T), jnp.int32))
    np.testing.assert_array_equal(found.logits, expected.logits)
    other, _ = run(typed, tokens(), token_types=jnp.ones((B, T), jnp.int32))
    assert not np.allclose(other.logits, expected.logits, atol=1e-3)


def test_null_rows_of_the_table_given_as_embeddings_are_the_tokens(run):
    spec = of(stack=EncoderDecoder(encoder_layers=1), scale_embedding=True)
    source = jax.random.randint(jax.random.key(2), (B, S), 0, V)
    expected, variables = run(spec, tokens(), source=source)
    table = variables["params"]["embedding"]["table"]
    found, _ = run(spec, None, embeddings=table[tokens()], source_embeddings=table[source])
    np.testing.assert_array_equal(found.logits, expected.logits)
    other, _ = run(spec, None, embeddings=2 * table[tokens()], source_embeddings=table[source])
    assert not np.allclose(other.logits, expected.logits, atol=1e-3)


def test_spec_and_functions_agree_on_which_networks_have_a_gate():
    names = typing.get_args(typing.get_type_hints(ModelSpec)["ffn"])
    assert set(names) == set(FFN_KINDS)
    assert {name for name in names if FFN_KINDS[name].gated} == set(GATED_FFNS)


def test_live_the_same_numbers_in_other_heads_are_another_model(run):
    def flat(names, value):
        numbers = np.random.default_rng(len(names)).normal(size=value.size)
        return np.asarray(numbers.reshape(value.shape), np.float32)

    tokens = jax.random.randint(jax.random.key(1), (2, T), 0, V)
    ours, theirs = (run(of(heads=heads), tokens, edit=flat)[0].logits for heads in (3, 4))
    assert not np.allclose(ours, theirs, atol=1e-3)
