"""Tests for jtransformer.functional.sampling."""

import functools
from inspect import unwrap  # Reaches the function behind the tests' shape checker.

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quickly import at_once, quickly

from jtransformer.functional import sampling
from jtransformer.functional.sampling import emit, length_normalised

sample = at_once(sampling.sample)
sampling_log_probabilities = at_once(sampling.sampling_log_probabilities)
INF = np.inf


def of_probabilities(*probabilities, dtype=jnp.float32):
    with np.errstate(divide="ignore"):
        return jnp.asarray(np.log(probabilities), dtype)


def kept(logits, **options):
    return np.flatnonzero(np.asarray(sampling_log_probabilities(logits, **options)) > -INF).tolist()


def test_temperature_zero_takes_the_most_probable_token():
    """Divided by 0, these logits give token 0."""
    assert sample(None, jnp.array([1.0, 2.0]), temperature=0.0) == 1


@pytest.mark.parametrize("options", [dict(temperature=0.0), dict(top_k=1), dict(top_p=0.0)])
def test_greedy_takes_the_first_of_equals_and_needs_no_luck(options):
    logits = jnp.array([[0.0, 3.0, 1.0, 3.0], [2.0, 2.0, 2.0, 2.0], [-INF, -1.0, -INF, -1.0]])
    for seed in range(5):
        drawn = sample(jax.random.key(seed), logits, **options)
        np.testing.assert_array_equal(drawn, [1, 0, 1])
        assert drawn.dtype == jnp.int32
    expected = np.where(np.eye(4)[[1, 0, 1]] == 1, 0.0, -INF)
    np.testing.assert_array_equal(sampling_log_probabilities(logits, **options), expected)


def test_a_low_temperature_tends_to_greedy_without_overflow():
    logits = jnp.array([1e30, 3e38, -3e38, 0.0])
    for temperature in (1e-3, 1e-30, 1e-45):
        np.testing.assert_array_equal(
            sampling_log_probabilities(logits, temperature=temperature), [-INF, 0.0, -INF, -INF]
        )


TIES = of_probabilities(0.2, 0.4, 0.2, 0.2)


@pytest.mark.parametrize(
    ("logits", "options", "tokens"),
    [
        # Exactly k: of the three that tie for the second place, the first.
        (TIES, dict(top_k=2), [0, 1]),
        (TIES, dict(top_k=3), [0, 1, 2]),
        (TIES, dict(top_k=4), [0, 1, 2, 3]),
        (TIES, dict(top_k=400), [0, 1, 2, 3]),
        # The smallest set that reaches p, at its boundaries and a little beyond them.
        (TIES, dict(top_p=0.4), [1]),
        (TIES, dict(top_p=0.401), [0, 1]),
        (TIES, dict(top_p=0.6), [0, 1]),
        (TIES, dict(top_p=0.601), [0, 1, 2]),
        (TIES, dict(top_p=0.8), [0, 1, 2]),
        (TIES, dict(top_p=0.9), [0, 1, 2, 3]),
        (TIES, dict(top_p=1e-9), [1]),
        (of_probabilities(0.25, 0.25, 0.25, 0.25), dict(top_p=0.5), [0, 1]),
        (of_probabilities(0.5, 0.25, 0.125, 0.125), dict(top_p=0.75), [0, 1]),
        (of_probabilities(0.1, 0.2, 0.3, 0.4), dict(top_p=0.7), [2, 3]),
        (of_probabilities(0.1, 0.2, 0.3, 0.4), dict(top_p=0.9), [1, 2, 3]),
        # In float32 these sums and ratios miss their bounds by a rounding or two.
        (of_probabilities(0.15, 0.35, 0.3, 0.2), dict(top_p=0.85), [1, 2, 3]),
        (of_probabilities(0.05, 0.45, 0.3, 0.2), dict(top_p=0.75), [1, 2]),
        (of_probabilities(0.15, 0.35, 0.3, 0.2), dict(min_p=4 / 7), [1, 2, 3]),
        # At least so many times as probable as the most probable one.
        (TIES, dict(min_p=0.5), [0, 1, 2, 3]),
        (TIES, dict(min_p=0.501), [1]),
        (of_probabilities(0.1, 0.2, 0.3, 0.4), dict(min_p=0.75), [2, 3]),
        (of_probabilities(0.1, 0.4, 0.1, 0.4), dict(min_p=1.0), [1, 3]),
        # Each on what the one before has left: of 0.4 and 0.3 the first has 4/7.
        (of_probabilities(0.1, 0.2, 0.3, 0.4), dict(top_k=2, top_p=0.571), [3]),
        (of_probabilities(0.1, 0.2, 0.3, 0.4), dict(top_k=2, top_p=0.572), [2, 3]),
        # The temperature comes first: squared, the last one has 16/30.
        (of_probabilities(0.1, 0.2, 0.3, 0.4), dict(temperature=0.5, top_p=0.53), [3]),
        (of_probabilities(0.1, 0.2, 0.3, 0.4), dict(temperature=0.5, top_p=0.54), [2, 3]),
        (of_probabilities(0.1, 0.2, 0.3, 0.4), dict(temperature=0.5, min_p=0.25), [1, 2, 3]),
        (of_probabilities(0.1, 0.2, 0.3, 0.4), dict(top_k=3, min_p=0.75), [2, 3]),
        (of_probabilities(0.5, 0.0, 0.5, 0.0), dict(top_k=3), [0, 2]),
        (of_probabilities(0.5, 0.0, 0.5, 0.0), dict(top_p=0.99), [0, 2]),
    ],
)
def test_which_tokens_are_kept(logits, options, tokens):
    assert kept(logits, **options) == tokens
    assert kept(logits + 5, **options) == tokens
    total = jnp.exp(sampling_log_probabilities(logits, **options)).sum()
    np.testing.assert_allclose(total, 1, rtol=1e-6)


def test_top_p_one_keeps_what_rounding_would_lose():
    logits = jnp.array([0.0, -40.0, -80.0, -90.0])
    assert kept(logits, top_p=1.0) == [0, 1, 2, 3]
    assert kept(logits, top_p=0.999) == [0]


def test_null_no_filter_is_the_softmax(key, normal):
    (logits,) = normal((3, 4))
    plain, drawn = sampling_log_probabilities(logits), sample(key, logits)
    np.testing.assert_allclose(plain, jax.nn.log_softmax(logits), rtol=1e-5)
    for neutral in (dict(top_k=4), dict(top_p=1.0), dict(min_p=0.0), dict(temperature=1.0)):
        np.testing.assert_array_equal(sampling_log_probabilities(logits, **neutral), plain)
        np.testing.assert_array_equal(sample(key, logits, **neutral), drawn)


def test_a_row_without_a_distribution_gives_no_token(key):
    logits = jnp.array([[-INF] * 4, [0.0, jnp.nan, 1.0, 2.0], [INF, 0.0, -INF, 1.0]])
    for options in ({}, dict(temperature=0.0), dict(top_k=2, top_p=0.5, min_p=0.5)):
        np.testing.assert_array_equal(sample(key, logits, **options), [-1, -1, -1])
        found = np.asarray(sampling_log_probabilities(logits, **options))
        np.testing.assert_array_equal(found[0], [-INF] * 4)
        assert np.isnan(found[1:]).all()


def test_a_token_that_cannot_be_drawn_has_a_constant_logarithm(normal):
    (logits,) = normal((3, 4))
    logits = logits.at[0, 1].set(-INF).at[2].set(-INF)
    function = functools.partial(sampling_log_probabilities, top_k=3)

    @quickly
    def derivatives(logits, along):
        backward = jax.vjp(function, logits)[1](jnp.ones((3, 4)))[0]
        return *jax.jvp(function, (logits,), (along,)), backward

    along = np.ones((3, 4), np.float32)
    along[:, 0] = 3
    out, forward, backward = (np.asarray(x) for x in derivatives(logits, along))
    np.testing.assert_array_equal(forward[out == -INF], 0.0)
    assert (np.abs(forward[0][out[0] > -INF]) > 0.1).all()
    assert np.isfinite(backward).all()
    np.testing.assert_array_equal(backward[0, 1], 0.0)
    np.testing.assert_array_equal(backward[2], np.zeros(4))


DRAWS = 20_000


@at_once
def draw_many(key, logits, **options):
    return sampling.sample(key, jnp.broadcast_to(logits, (DRAWS, 9)), **options)


UNEVEN = of_probabilities(0.28, 0.02, 0.0, 0.2, 0.15, 0.05, 0.12, 0.1, 0.08)


@pytest.mark.parametrize(
    "options",
    [
        {},
        dict(temperature=1.7),
        dict(temperature=0.6, top_k=5),
        dict(top_p=0.8),
        dict(min_p=0.2),
        dict(temperature=0.9, top_k=6, top_p=0.9, min_p=0.05),
    ],
)
def test_draws_follow_the_distribution(key, options):
    """Chi-square against the exact probabilities; 29.6 is its 1 - 1e-4 point for 7 degrees."""
    counts = np.bincount(draw_many(key, UNEVEN, **options), minlength=9)
    probabilities = np.exp(np.asarray(sampling_log_probabilities(UNEVEN, **options), np.float64))
    expected, possible = DRAWS * probabilities, probabilities > 0
    assert counts[~possible].sum() == 0
    assert ((counts - expected)[possible] ** 2 / expected[possible]).sum() < 29.6


def test_live_key_and_options_change_the_draws():
    logits = jnp.asarray(np.tile(np.log([0.4, 0.3, 0.2, 0.1]), (3, 1)), jnp.float32)

    def draws(seed, **options):
        keys = [jax.random.fold_in(jax.random.key(seed), n) for n in range(12)]
        return np.stack([sample(key, logits, **options) for key in keys])

    plain = draws(0)
    np.testing.assert_array_equal(draws(0), plain)
    assert (draws(1) != plain).any()
    for change in (dict(temperature=5.0), dict(top_k=2), dict(top_p=0.5), dict(min_p=0.5)):
        assert (draws(0, **change) != plain).any()


def test_draws_of_one_row_each_do_not_depend_on_the_batch(key, normal):
    (logits,) = normal((3, 4))
    keys = jax.random.split(key, 3)
    mapped = quickly(jax.vmap(sample))(keys, logits)
    assert mapped.tolist() == [int(sample(*pair)) for pair in zip(keys, logits, strict=True)]


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_low_precision_is_raised(dtype):
    """In bfloat16 a sum over 1000 equal tokens stalls at 256 of them, and top-p keeps too many."""
    logits = jnp.zeros(1000, dtype)
    found = sampling_log_probabilities(logits, top_p=0.9)
    assert found.dtype == jnp.float32
    assert (found > -jnp.inf).sum() == 900
    np.testing.assert_allclose(found[0], -np.log(900), rtol=1e-6)


def test_emit_keeps_the_end_token_and_pads_behind_it():
    """Marked as finished before the token is chosen, the end token itself would be lost."""
    finished, out = jnp.array([False]), []
    for token in (4, 5, 2, 7, 8):
        step = emit(jnp.array([token]), finished, eos=2, pad=0)
        finished = step.finished
        out.append(int(step.tokens[0]))
    assert out == [4, 5, 2, 0, 0]
    assert step.tokens.dtype == jnp.int32


@pytest.mark.parametrize("pad", [0, 2])
def test_finished_rows_stand_still(pad):
    """Row A ends with its second token, row B with its fifth; each costs one nat."""
    stream = jnp.array([[4, 5], [2, 5], [5, 7], [5, 7], [2, 2], [5, 5]])

    def step(carry, sampled):
        finished, lengths, scores = carry
        emitted = emit(sampled, finished, eos=2, pad=pad)
        lengths = lengths + emitted.counted.astype(int)
        scores = scores + jnp.where(emitted.counted, -1.0, 0.0)
        return (emitted.finished, lengths, scores), emitted.tokens

    start = (jnp.array([False, False]), jnp.zeros(2, int), jnp.zeros(2))
    (finished, lengths, scores), tokens = jax.lax.scan(step, start, stream)
    assert finished.all()
    assert lengths.tolist() == [2, 5]
    assert scores.tolist() == [-2.0, -5.0]
    assert tokens[:, 0].tolist() == [4, 2, pad, pad, pad, pad]
    assert tokens[:, 1].tolist() == [5, 5, 7, 7, 2, pad]


def test_length_penalties_choose_different_winners():
    score = functools.partial(length_normalised, jnp.array([-4.0, -3.0]), jnp.array([4, 2]))
    np.testing.assert_array_equal(score(alpha=0.0), [-4.0, -3.0])
    np.testing.assert_allclose(score(alpha=1.0), [-1.0, -1.5], rtol=1e-6)
    np.testing.assert_allclose(score(alpha=1.0, form="gnmt"), [-2.666667, -2.571429], rtol=1e-6)
    half = length_normalised(jnp.array([-4.0], jnp.bfloat16), jnp.array([4]), alpha=1.0)
    assert half.dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(temperature=-1.0), "temperature must be finite and at least 0, got temperature=-1.0"),
        (dict(temperature=np.nan), "got temperature=nan"),
        (dict(temperature=np.inf), "got temperature=inf"),
        (dict(top_k=0), "top_k must be at least 1, got top_k=0"),
        (dict(top_p=1.1), r"top_p must lie in \[0, 1\], got top_p=1.1"),
        (dict(top_p=np.nan), r"top_p must lie in \[0, 1\], got top_p=nan"),
        (dict(min_p=-0.1), r"min_p must lie in \[0, 1\], got min_p=-0.1"),
    ],
)
def test_options_out_of_range_are_named(key, options, message):
    for function in (functools.partial(sample, key), sampling_log_probabilities):
        with pytest.raises(ValueError, match=message):
            function(jnp.ones((2, 3)), **options)


def test_errors_of_the_others():
    with pytest.raises(ValueError, match="sample needs a key, got key=None, temperature=0.5"):
        sample(None, jnp.ones(3), temperature=0.5)
    sums, lengths = jnp.ones(2), jnp.ones(2, int)
    with pytest.raises(ValueError, match="alpha must be finite, got alpha=inf"):
        length_normalised(sums, lengths, alpha=np.inf)
    with pytest.raises(ValueError, match="Unknown form 'mean'; use 'power' or 'gnmt'"):
        unwrap(length_normalised)(sums, lengths, alpha=1.0, form="mean")
    with pytest.raises(ValueError, match="floating-point array is needed, got dtype=int32"):
        unwrap(sampling_log_probabilities)(jnp.ones(3, int))
