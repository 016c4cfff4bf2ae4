"""Calls that a model cannot answer are refused by one sentence that says what to do."""

import jax.numpy as jnp
import pytest
from tiny_model import BASE, STACKS, B, S, T, changed, drawn, tokens_of

from jtransformer.modules import build
from jtransformer.modules.inputs import Call, check_call
from jtransformer.spec import Classifier, Encoder, Learned, LinearAttention, PrefixDecoder

ENCODER, PREFIX = changed(stack=Encoder()), changed(stack=PrefixDecoder())
TWO = STACKS["encoder_decoder"]
SOURCE = jnp.zeros((B, S), jnp.int32)
SEGMENTS = jnp.zeros((B, T), jnp.int32)
ROWS = jnp.zeros((B, T, BASE.width))


def call(spec, tokens, **given):
    return build(spec).apply(drawn(spec), tokens, **given)


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        (BASE, {"prefix_length": 2}, "prefix_length belongs to stack.kind 'prefix_decoder'"),
        (PREFIX, {}, "needs prefix_length, got None"),
        (PREFIX, {"prefix_length": T + 1}, f"must lie in 0 … T, got prefix_length={T + 1}, T={T}"),
        (PREFIX, {"prefix_length": jnp.array([1, -1])}, r"got prefix_length=\[1, -1\]"),
        (TWO, {}, "reads a source, got source=None"),
        (BASE, {"source": SOURCE}, "source belongs to a model with an encoder of its own"),
        (ENCODER, {"source_valid": SOURCE == 0}, "source_valid belongs to a model with an encoder"),
        (
            TWO,
            {"source": SOURCE, "source_embeddings": jnp.zeros((B, S, BASE.width))},
            "either source or source_embeddings, got both",
        ),
        (TWO, {"source": SOURCE, "segments": SEGMENTS}, "got source_segments=None; give both"),
        (
            changed(attention=LinearAttention()),
            {"segments": SEGMENTS},
            "linear attention has one state for all",
        ),
        (
            changed(ENCODER, head=Classifier()),
            {"segments": SEGMENTS},
            "one answer for a whole row, got segments",
        ),
        (BASE, {"token_types": SEGMENTS}, "token_types belong to an encoder with a table"),
        (ENCODER, {"token_types": SEGMENTS}, "set stack.encoder.token_types"),
        (BASE, {"embeddings": ROWS}, "either tokens or embeddings, got both"),
    ],
)
def test_error_arguments_that_do_not_fit_the_model(key, spec, given, message):
    with pytest.raises(ValueError, match=message):
        call(spec, tokens_of(key), **given)


def test_error_a_source_of_other_rows(key):
    # Where shapes are not checked by their annotations, as in the tests.
    call = Call(**dict.fromkeys(Call._fields) | {"tokens": tokens_of(key), "source": SOURCE[:1]})
    with pytest.raises(ValueError, match="must have the same rows, got 1 and 2"):
        check_call(TWO, call)


def test_error_neither_tokens_nor_embeddings():
    with pytest.raises(ValueError, match="either tokens or embeddings, got neither"):
        call(BASE, None)


def test_error_embeddings_of_another_width():
    with pytest.raises(ValueError, match="embeddings.shape=.*use width=12"):
        call(BASE, None, embeddings=ROWS[:, :, :5])


def test_error_more_tokens_than_learned_positions():
    """The fault of a table that is clamped: its rows end with max_length, wherever they begin."""
    spec = changed(position=Learned(max_length=T, first=2))
    assert drawn(spec)["params"]["position"]["table"].shape[0] == T + 2
    call(spec, jnp.zeros((1, T), jnp.int32))
    with pytest.raises(ValueError, match=f"{T + 1} tokens are more than position.max_length={T}"):
        call(spec, jnp.zeros((1, T + 1), jnp.int32))


def test_error_more_tokens_of_a_source_than_learned_positions():
    # As many as the target and the source of `drawn` have, which draws the parameters.
    spec = changed(stack=TWO.stack, position=Learned(max_length=T))
    tokens = jnp.zeros((B, T), jnp.int32)
    with pytest.raises(ValueError, match=f"{T + 1} tokens are more than"):
        call(spec, tokens, source=jnp.zeros((B, T + 1), jnp.int32))


def test_error_ids_beyond_a_table(key):
    with pytest.raises(ValueError, match="Ids must lie in 0 … 10"):
        call(BASE, tokens_of(key).at[0, 0].set(11))
    spec = changed(position=Learned(max_length=T))
    with pytest.raises(ValueError, match="Ids must lie in 0 … 6"):
        call(spec, tokens_of(key), positions=jnp.full((1, T), T))
