"""Tests for jtransformer.generation: one cached step after another equals a pass over it all."""

import dataclasses
import inspect

import jax
import numpy as np
import pytest
from tiny_generation import SCRIPTED, TINY, V, drawn, full_pass, padded, scripted

from jtransformer.generation import GREEDY, Generator, Sampling, generate
from jtransformer.generation.generator import _generated
from jtransformer.spec import DotProduct, EncoderDecoder, Learned, PrefixDecoder, Rope, T5Bias

LIMIT = 5
TOLERANCE = 1e-5
PROMPTS = [[3, 1, 4, 1], [5], [9, 2, 6]]
SOURCES = [[5, 8, 9, 7], [9, 3], [2, 3, 8]]
MODELS = {
    "decoder": TINY,
    "grouped rope": dataclasses.replace(
        TINY, heads=4, key_value_heads=2, head_width=2, position=Rope()
    ),
    "window": dataclasses.replace(
        TINY, layers=2, attention=DotProduct(window=2, window_pattern="window,full")
    ),
    "learned": dataclasses.replace(TINY, position=Learned(max_length=4 + LIMIT - 1)),
    "scanned": dataclasses.replace(TINY, layers=2, scan_layers=True),
    # One layer would show the last token of the prefix all of it in any case.
    "prefix": dataclasses.replace(TINY, layers=2, stack=PrefixDecoder()),
    "encoder-decoder": dataclasses.replace(
        TINY, stack=EncoderDecoder(encoder_layers=1), position=T5Bias(buckets=4, max_distance=6)
    ),
}


def ragged(rows):
    """Pads on the left, on the right and on both sides."""
    tokens, valid = padded(rows)
    for row, shift in enumerate((0, 1, 1)):
        tokens[row], valid[row] = np.roll(tokens[row], shift), np.roll(valid[row], shift)
    # What padding holds does not matter.
    return np.where(valid, tokens, 7), valid


def sources(spec):
    if not spec.has_encoder:
        return {}
    source, source_valid = padded(SOURCES)
    return {"source": source, "source_valid": source_valid}


def whole(rows, out):
    """The prompts and what was added to them, but for the last token, which nothing reads."""
    return [[*row, *map(int, added)][:-1] for row, added in zip(rows, out.tokens, strict=True)]


OFTEN = ("window", "prefix", "encoder-decoder")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.slow) for name in MODELS],
)
def test_greedy_on_ragged_prompts_is_the_argmax_of_full_passes(name):
    spec = MODELS[name]
    variables = drawn(spec)
    prompt, valid = ragged(PROMPTS)
    given = sources(spec)
    out = generate(spec, variables, prompt, valid=valid, limit=LIMIT, logits=True, **given)
    if isinstance(spec.stack, PrefixDecoder):
        given = {"prefix_length": np.array([len(row) for row in PROMPTS], np.int32)}
    expected = full_pass(spec, variables, whole(PROMPTS, out), **given)
    for row, tokens in enumerate(PROMPTS):
        logits = expected[row, len(tokens) - 1 :][:LIMIT]
        np.testing.assert_allclose(out.logits[row], logits, atol=TOLERANCE)
        np.testing.assert_array_equal(out.tokens[row], np.argmax(logits, axis=1))
        chosen = np.max(logits, axis=1) - np.log(np.sum(np.exp(logits), axis=1))
        np.testing.assert_allclose(out.log_probabilities[row], chosen, atol=TOLERANCE)
    assert np.ptp(out.logits[:, 0], axis=0).max() > 0.1, "rows that cannot be told apart"
    assert list(out.lengths) == [LIMIT] * 3 and int(out.steps) == LIMIT
    assert not np.any(out.finished)


def test_a_row_of_a_ragged_batch_is_the_row_alone(tiny):
    generator = Generator(model=TINY, limit=LIMIT, logits=True)
    prompt, valid = ragged(PROMPTS)
    together = generator(tiny, prompt, valid=valid)
    alone = generator(tiny, [PROMPTS[2]])
    np.testing.assert_array_equal(together.tokens[2], alone.tokens[0])
    np.testing.assert_allclose(together.logits[2], alone.logits[0], atol=TOLERANCE)


WARM = Generator(model=TINY, limit=LIMIT, sampling=Sampling(temperature=2.0))


def test_a_draw_depends_on_key_row_number_and_step_alone(tiny, key):
    prompt = np.array([[3, 1], [4, 1], [5, 9]], np.int32)
    first = np.asarray(WARM(tiny, prompt, key=key).tokens)
    np.testing.assert_array_equal(WARM(tiny, prompt, key=key).tokens, first)
    others = WARM(tiny, [[8, 8], [4, 1], [0, 2]], key=key).tokens
    np.testing.assert_array_equal(others[1], first[1])
    moved = WARM(tiny, prompt[::-1].copy(), key=key, rows=[2, 1, 0]).tokens
    np.testing.assert_array_equal(moved, first[::-1])
    alone = WARM(tiny, prompt[2:], key=key, rows=[2]).tokens
    np.testing.assert_array_equal(alone[0], first[2])
    assert np.any(WARM(tiny, prompt, key=jax.random.key(1)).tokens != first)
    assert np.any(WARM(tiny, prompt, key=key, rows=[3, 4, 5]).tokens != first)
    same = np.asarray(WARM(tiny, [[3, 1]] * 3, key=key).tokens)
    assert len({*map(tuple, same.tolist())}) > 1, "rows share their draws"


def test_every_step_and_row_has_a_draw_of_its_own(key):
    """From tokens that are all alike probable, so that nothing but the draws differs."""
    generator = Generator(model=SCRIPTED, limit=12, sampling=Sampling())
    tokens = np.asarray(generator(scripted({}), [[3], [3]], key=key).tokens)
    assert min(len({*row}) for row in tokens.tolist()) > 5
    assert np.mean(tokens[0] == tokens[1]) < 0.5


def test_legacy_keys_draw_as_typed_ones(tiny):
    prompt = [[3, 1], [4, 1], [5, 9]]
    np.testing.assert_array_equal(
        WARM(tiny, prompt, key=jax.random.PRNGKey(7)).tokens,
        WARM(tiny, prompt, key=jax.random.key(7)).tokens,
    )


def test_log_probabilities_are_the_models_own_whatever_the_temperature(tiny, key):
    prompt = [[3, 1], [4, 1], [5, 9]]
    out = WARM(tiny, prompt, key=key)
    logits = full_pass(TINY, tiny, whole(prompt, out))[:, 1:]
    logs = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    chosen = np.take_along_axis(logs, np.asarray(out.tokens)[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(out.log_probabilities, chosen, atol=TOLERANCE)
    assert out.logits is None


@pytest.mark.parametrize(
    "change",
    [
        dict(top_k=1),
        pytest.param(dict(top_p=0.01), marks=pytest.mark.slow),
        pytest.param(dict(min_p=1.0), marks=pytest.mark.slow),
    ],
)
def test_live_every_filter_at_its_end_is_greedy(tiny, key, change):
    hot = Generator(model=TINY, limit=LIMIT, sampling=Sampling(temperature=2.0, **change))
    prompt = [[3, 1], [4, 1], [5, 9]]
    greedy = generate(TINY, tiny, prompt, limit=LIMIT, sampling=GREEDY)
    np.testing.assert_array_equal(hot(tiny, prompt, key=key).tokens, greedy.tokens)
    assert np.any(np.asarray(WARM(tiny, prompt, key=key).tokens) != np.asarray(greedy.tokens))


@pytest.mark.slow
def test_null_filters_that_keep_all_change_nothing(tiny, key):
    kept = Sampling(temperature=2.0, top_k=V, top_p=1.0, min_p=0.0)
    prompt = [[3, 1], [4, 1], [5, 9]]
    out = generate(TINY, tiny, prompt, limit=LIMIT, sampling=kept, key=key)
    np.testing.assert_array_equal(out.tokens, WARM(tiny, prompt, key=key).tokens)


@pytest.mark.parametrize("limit", [pytest.param(1, marks=pytest.mark.slow), 20])
def test_a_stream_gives_the_tokens_of_a_call(tiny, key, limit):
    prompt, settings = [[3, 1], [4, 1]], dict(limit=limit, sampling=Sampling(), eos=6)
    pieces = list(Generator(model=TINY, **settings).stream(tiny, prompt, key=key))
    out = generate(TINY, tiny, prompt, key=key, **settings)
    for row in range(2):
        joined = np.concatenate([piece[row] for piece in pieces])
        np.testing.assert_array_equal(joined, out.tokens[row, : out.lengths[row]])
    assert [len(row) for row in pieces[0]] == [1, 1], "the first token waits for no other"


def test_equal_generators_share_what_was_compiled(tiny):
    generator = Generator(model=TINY, limit=LIMIT, logits=True)
    generator(tiny, [PROMPTS[2]])
    before = _generated._cache_size()
    generator(tiny, [[1, 2, 3]])
    Generator(model=dataclasses.replace(TINY), limit=LIMIT, logits=True)(tiny, [[4, 2, 3]])
    assert _generated._cache_size() == before
    Generator(model=TINY, limit=LIMIT + 1, logits=True)(tiny, [[4, 2, 3]])
    assert _generated._cache_size() == before + 1


def test_generate_and_a_generator_have_the_same_defaults():
    options = inspect.signature(generate).parameters
    fields = {field.name: field for field in dataclasses.fields(Generator)}
    assert fields.keys() <= options.keys()
    defaults = {name: fields[name].default for name in fields.keys() - {"model", "limit"}}
    assert {name: options[name].default for name in defaults} == defaults
