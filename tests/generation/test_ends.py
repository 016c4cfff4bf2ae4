"""Tests for jtransformer.generation: rows that end, and when the loop stops."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_generation import SCRIPTED, scripted

from jtransformer.generation import Generator, Sampling, generate

EOS = 2
ORDER = [3, 4, 5, EOS, 7, 8, 9, 10, 6, 1, 0, 3]
CHAIN = scripted({token: {after: 1.0} for token, after in itertools.pairwise(ORDER)})
GENERATOR = Generator(model=SCRIPTED, limit=6, eos=EOS, logits=True)


def test_the_end_token_is_kept_and_padding_follows():
    """Fault GEN-01: a stream 4, 5, EOS, 7, 8 with pad 0 was returned as 4, 5, 0, 0, 0."""
    out = GENERATOR(CHAIN, [[3]])
    assert out.tokens[0].tolist() == [4, 5, EOS, 0, 0, 0]
    endless = generate(SCRIPTED, CHAIN, [[3]], limit=5)
    assert endless.tokens[0].tolist() == [4, 5, EOS, 7, 8]


def test_each_of_several_end_tokens_ends_a_row():
    out = generate(SCRIPTED, CHAIN, [[3], [7], [10]], limit=4, eos=(EOS, 9))
    assert out.tokens.tolist() == [[4, 5, EOS, 0], [8, 9, 0, 0], [6, 1, 0, 3]]
    assert out.finished.tolist() == [True, True, False]


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling()])
def test_what_is_never_chosen_is_not_drawn(sampling):
    two = scripted({3: {4: 20.0, 5: 10.0}, 4: {4: 20.0}, 5: {5: 20.0}})
    key = jax.random.key(0)
    out = generate(
        SCRIPTED, two, [[3]], limit=2, sampling=sampling, never=(4,), key=key, logits=True
    )
    assert out.tokens[0].tolist() == [5, 5]
    # What the model itself says of them stays as it is.
    assert float(out.log_probabilities[0, 0]) < float(out.log_probabilities[0, 1])
    assert np.isneginf(out.logits[0, 0, 4])


def test_a_row_that_ended_is_frozen():
    """Fault GEN-02: rows that had ended went on adding to their scores."""
    out = GENERATOR(CHAIN, [[4], [7], [5]])
    assert out.lengths.tolist() == [2, 6, 1]
    assert out.finished.tolist() == [True, False, True]
    assert out.tokens.tolist() == [[5, 2, 0, 0, 0, 0], [8, 9, 10, 6, 1, 0], [2, 0, 0, 0, 0, 0]]
    # All steps are alike sure, so that a score is its row's length times one number.
    each = float(out.log_probabilities[0, 0])
    assert each < -0.01
    sums = np.sum(out.log_probabilities, axis=1)
    np.testing.assert_allclose(sums, each * np.array([2, 6, 1]), rtol=1e-5)
    assert not np.any(np.asarray(out.logits[0, 2:])) and np.all(np.any(out.logits[1], axis=-1))


def test_the_loop_stops_when_all_rows_have_ended():
    assert int(GENERATOR(CHAIN, [[4], [3], [5]]).steps) == 3
    assert int(GENERATOR(CHAIN, [[4], [7], [5]]).steps) == 6
    at_once = GENERATOR(CHAIN, [[5], [5], [5]])
    assert int(at_once.steps) == 1 and at_once.lengths.tolist() == [1, 1, 1]


def test_an_end_token_in_the_prompt_ends_nothing():
    assert GENERATOR(CHAIN, [[EOS], [7], [EOS]]).tokens[0].tolist() == [7, 8, 9, 10, 6, 1]


@pytest.mark.parametrize("pad", [EOS, pytest.param(-1, marks=pytest.mark.slow)])
def test_padding_may_be_any_number(pad):
    out = generate(SCRIPTED, CHAIN, [[4]], limit=4, eos=EOS, pad=pad)
    assert out.tokens[0].tolist() == [5, EOS, pad, pad] and out.lengths.tolist() == [2]


def test_logits_that_are_no_numbers_are_refused():
    wrong = {"params": {**CHAIN["params"], "head": {"kernel": jnp.full((12, 11), jnp.nan)}}}
    with pytest.raises(ValueError, match=r"no token in rows \[0, 1, 2\] at steps \[0, 0, 0\]"):
        GENERATOR(wrong, [[4], [7], [5]])


def test_the_pieces_of_a_stream_end_with_their_row(key):
    sampling = Sampling(temperature=1e-3)
    generator = Generator(model=SCRIPTED, limit=6, eos=EOS, sampling=sampling)
    pieces = list(generator.stream(CHAIN, [[4], [7]], key=key))
    assert [[row.tolist() for row in piece] for piece in pieces] == [
        [[5], [8]],
        [[EOS], [9, 10, 6, 1, 0]],
    ]
