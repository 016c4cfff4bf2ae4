"""Tests for jtransformer.generation.beams, against every continuation there is."""

import dataclasses
import itertools

import numpy as np
import pytest
from tiny_generation import SCRIPTED, TINY, drawn, full_pass, padded, scripted

from jtransformer.generation import BeamSearch, beam_search, generate

V, LIMIT, EOS, BEST = 4, 4, 2, 6
SPEC = dataclasses.replace(TINY, vocabulary=V)
VARIABLES = drawn(SPEC, deviation=0.45)
PROMPTS = [[3, 1, 0], [1]]
EVERY = 3 ** (LIMIT - 1) * V
"""No step has more continuations than this."""
PENALTIES = {
    "sum": dict(),
    "mean": dict(alpha=1.0),
    "gnmt": dict(alpha=1.0, form="gnmt"),
    "short": dict(alpha=-0.7),
}


def penalised(total, length, alpha=0.0, form="power"):
    return total / ((5 + length) / 6 if form == "gnmt" else length) ** alpha


@pytest.fixture(scope="module")
def log_probabilities():
    """Of every sequence of LIMIT tokens behind each prompt, by passes without a cache."""
    sequences = list(itertools.product(range(V), repeat=LIMIT))
    found = []
    for prompt in PROMPTS:
        logits = full_pass(SPEC, VARIABLES, [[*prompt, *rest] for rest in sequences])
        logits = logits[:, len(prompt) - 1 : -1].astype(np.float64)
        logs = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
        chosen = np.take_along_axis(logs, np.array(sequences)[..., None], axis=-1)[..., 0]
        found.append(dict(zip(sequences, chosen, strict=True)))
    return found


def ended(by_sequence, **penalty):
    """Every continuation that ends, best first: its score, its sum and its tokens."""
    sums = {}
    for sequence, logs in by_sequence.items():
        if EOS in sequence:
            length = sequence.index(EOS) + 1
            sums[sequence[:length]] = logs[:length].sum()
    scored = [(penalised(s, len(tokens), **penalty), s, tokens) for tokens, s in sums.items()]
    return sorted(scored, reverse=True)


def search(width, prompts=PROMPTS, best=1, limit=LIMIT, eos=EOS, **penalty):
    prompt, valid = padded(prompts)
    how = BeamSearch(width=width, best=best, **penalty)
    return beam_search(SPEC, VARIABLES, prompt, valid=valid, limit=limit, eos=eos, search=how)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("sum", marks=pytest.mark.slow),
        pytest.param("mean", marks=pytest.mark.slow),
        "gnmt",
        "short",
    ],
)
def test_a_wide_search_finds_the_best_of_all(log_probabilities, name):
    """Fault GEN-06: the length counts EOS and no prompt, and acts on the comparison alone."""
    out = search(EVERY, best=BEST, **PENALTIES[name])
    for row, by_sequence in enumerate(log_probabilities):
        expected = ended(by_sequence, **PENALTIES[name])[:BEST]
        for beam, (score, total, tokens) in enumerate(expected):
            assert tuple(out.tokens[row, beam, : len(tokens)].tolist()) == tokens
            assert not np.any(np.asarray(out.tokens[row, beam, len(tokens) :]))
            assert int(out.lengths[row, beam]) == len(tokens)
            np.testing.assert_allclose(float(out.sums[row, beam]), total, atol=1e-5)
            np.testing.assert_allclose(float(out.scores[row, beam]), score, atol=1e-5)
    assert np.all(out.finished)


def test_the_penalties_disagree_about_the_best(log_probabilities):
    """Else the test above would not tell one from another."""
    orders = {
        tuple(tokens for _, _, tokens in ended(log_probabilities[0], **penalty)[:BEST])
        for penalty in PENALTIES.values()
    }
    assert len(orders) == len(PENALTIES)


def test_width_one_is_greedy():
    prompt, valid = padded(PROMPTS)
    out = search(1)
    greedy = generate(SPEC, VARIABLES, prompt, valid=valid, limit=LIMIT, eos=EOS)
    np.testing.assert_array_equal(out.tokens[:, 0], greedy.tokens)
    np.testing.assert_array_equal(out.lengths[:, 0], greedy.lengths)
    np.testing.assert_array_equal(out.finished[:, 0], greedy.finished)
    sums = np.sum(greedy.log_probabilities, axis=1)
    np.testing.assert_allclose(out.sums[:, 0], sums, atol=1e-5)
    assert int(out.steps) == int(greedy.steps)


def test_sums_are_those_of_a_full_pass_with_narrow_beams_too(log_probabilities):
    """A beam that read the cache of another would be told by its sum."""
    out = search(3, best=3)
    for row, beam in np.ndindex(2, 3):
        tokens, length = out.tokens[row, beam].tolist(), int(out.lengths[row, beam])
        logs = log_probabilities[row][(*tokens[:length], *[0] * (LIMIT - length))]
        np.testing.assert_allclose(float(out.sums[row, beam]), logs[:length].sum(), atol=1e-5)


@pytest.mark.slow
def test_without_an_end_token_all_are_cut_off_by_the_limit(log_probabilities):
    out = search(EVERY, best=2, eos=None)
    for row, by_sequence in enumerate(log_probabilities):
        sums = sorted(((logs.sum(), tokens) for tokens, logs in by_sequence.items()), reverse=True)
        for beam in range(2):
            assert tuple(out.tokens[row, beam].tolist()) == sums[beam][1]
    assert not np.any(out.finished) and np.all(np.asarray(out.lengths) == LIMIT)


def test_where_too_few_end_the_cut_off_ones_follow_them(log_probabilities):
    out = search(V, best=V, limit=1)
    for row, by_sequence in enumerate(log_probabilities):
        first = {tokens[0]: logs[0] for tokens, logs in by_sequence.items()}
        others = sorted((t for t in range(V) if t != EOS), key=lambda t: -first[t])
        assert out.tokens[row, :, 0].tolist() == [EOS, *others]
        assert out.finished[row].tolist() == [True, False, False, False]


@pytest.mark.slow
def test_where_there_are_too_few_continuations_the_rest_is_empty():
    more = search(V + 2, best=V + 2, limit=1)
    assert more.lengths[0].tolist() == [1] * V + [0, 0]
    assert np.all(np.isneginf(more.scores[:, V:]))


LIKELY_END = scripted({3: {EOS: 2.4, 4: 1.9}, 4: {5: 4.0}, 5: {6: 4.0}, 6: {EOS: 4.0}})
"""Behind 3 the end is likelier than 4, which leads to a later end without fail."""


@pytest.mark.parametrize(
    ("penalty", "tokens", "steps"), [(dict(), [EOS], 1), (dict(alpha=1.0), [4, 5, 6, EOS], 4)]
)
def test_a_search_stops_when_no_beam_can_do_better_and_not_before(penalty, tokens, steps):
    """Fault GEN-06: the bound is the present sum, for an alpha above 0 over the greatest length."""
    how = BeamSearch(width=2, **penalty)
    out = beam_search(SCRIPTED, LIKELY_END, [[3]], limit=5, eos=EOS, search=how)
    assert out.tokens[0, 0, : len(tokens)].tolist() == tokens
    assert int(out.lengths[0, 0]) == len(tokens) and int(out.steps) == steps


def test_an_end_that_is_not_among_the_best_of_the_width_is_none():
    """Else width 1 would find the end behind 3, which is likelier than all that greedy finds."""
    forks = scripted({3: {4: 2.0, EOS: 2.6}, 4: {5: 2.0, 6: 1.9}, 5: {EOS: 4.0}, 6: {EOS: 4.0}})
    how = dict(limit=5, eos=EOS)
    one, two = (
        beam_search(SCRIPTED, forks, [[3]], search=BeamSearch(width=width), **how)
        for width in (1, 2)
    )
    greedy = generate(SCRIPTED, forks, [[3]], **how)
    assert one.tokens[0, 0].tolist() == greedy.tokens[0].tolist() == [4, 5, EOS, 0, 0]
    assert two.tokens[0, 0].tolist() == [EOS, 0, 0, 0, 0]
    assert float(two.sums[0, 0]) > float(one.sums[0, 0])


def test_several_end_tokens_and_tokens_that_are_never_chosen(log_probabilities):
    ends, never = (EOS, 1), (0,)
    prompt, valid = padded(PROMPTS)
    how = BeamSearch(width=EVERY, best=BEST)
    options = dict(valid=valid, limit=LIMIT, eos=ends, never=never, search=how)
    found = beam_search(SPEC, VARIABLES, prompt, **options)
    for row, by_sequence in enumerate(log_probabilities):
        sums = {}
        for sequence, logs in by_sequence.items():
            stops = [place for place, token in enumerate(sequence) if token in ends]
            if stops and not set(sequence[: stops[0]]) & set(never):
                sums[sequence[: stops[0] + 1]] = logs[: stops[0] + 1].sum()
        best = sorted(sums.values(), reverse=True)[:BEST]
        np.testing.assert_allclose(found.sums[row, : len(best)], best, atol=1e-5)


def test_ends_of_one_beam_leave_room_for_what_goes_on():
    """Two ends are the two best of a beam; a search that keeps twice its width loses the rest."""
    chain = scripted({3: {EOS: 0.5, 1: 0.3, 4: 0.2}, 4: {5: 1.0}, 5: {6: 1.0}, 6: {EOS: 1.0}})
    how = BeamSearch(width=1, alpha=1.0)
    found = beam_search(SCRIPTED, chain, [[3]], limit=6, eos=(EOS, 1), search=how)
    assert found.tokens[0, 0, :4].tolist() == [4, 5, 6, EOS]
