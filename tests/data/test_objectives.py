"""Tests for jtransformer.data.objectives: shift, prefixes and masks."""

import numpy as np
import pytest

from jtransformer.data.objectives import after_prefix, mask_tokens, prefix_lengths, shift
from jtransformer.spec import MaskedLM, PrefixLM

PIECES, MASK = 50, 53
HALF = PrefixLM(smallest_prefix=0.25, largest_prefix=0.75)


def uniform(*shape, seed=0):
    return np.random.default_rng(seed).random(shape)


def test_labels_are_the_tokens_shifted_once():
    """LOSS-07: 5 6 7 8 gives the inputs 5 6 7 and the labels 6 7 8."""
    found = shift(np.array([5, 6, 7, 8], np.uint8), None, np.arange(3)[None])
    assert found.tokens.tolist() == [[5, 6, 7]] and found.labels.tolist() == [[6, 7, 8]]
    assert found.weights.tolist() == [[1, 1, 1]]
    assert [array.dtype.name for array in found] == ["int32", "int32", "float32"]


def test_what_lies_beyond_the_end_is_not_scored():
    found = shift(np.array([5, 6, 7, 8]), None, np.array([[2, 3, 4, 9]]))
    assert found.weights.tolist() == [[1, 0, 0, 0]]
    assert found.labels[0, 0] == 8


def test_a_token_is_scored_as_a_label_and_not_as_an_input():
    ids, asked = np.array([9, 1, 2, 9, 3]), np.array([False, True, True, False, True])
    found = shift(ids, asked, np.arange(4)[None])
    assert found.weights.tolist() == [[1, 1, 0, 1]]
    assert found.labels[found.weights == 1].tolist() == [1, 2, 3]


def test_worked_prefix_of_three():
    """A text of 6 tokens with a prefix of 3 has 5 pairs, of which 2, 3 and 4 are scored."""
    pairs = shift(np.arange(6), None, np.arange(5)[None])
    weights = after_prefix(pairs.weights, np.array([3]))
    assert weights.tolist() == [[0, 0, 1, 1, 1]]
    assert pairs.labels[weights == 1].tolist() == [3, 4, 5]


@pytest.mark.parametrize("prefix", range(1, 7))
def test_law_no_scored_label_lies_in_its_own_prefix(prefix):
    ids = np.arange(7)
    pairs = shift(ids, None, np.arange(6)[None])
    weights = after_prefix(pairs.weights, np.array([prefix]))
    assert pairs.labels[weights == 1].tolist() == ids[prefix:].tolist()


def test_null_a_prefix_of_one_token_is_causal():
    weights = np.array([[1, 1, 0, 1]], np.float32)
    np.testing.assert_array_equal(after_prefix(weights, np.array([1])), weights)


def test_prefixes_are_uniform_between_their_bounds():
    found = prefix_lengths(np.full(50_000, 40.0), HALF, uniform(50_000))
    counts = np.bincount(found)
    assert found.min() == 10 and found.max() == 30 and found.dtype == np.int32
    # Binomial: 2381 expected of each, standard deviation 48.
    assert (abs(counts[10:] - 50_000 / 21) < 4 * 48).all()


@pytest.mark.parametrize("pairs", range(1, 12))
def test_law_a_prefix_leaves_something_to_score(pairs):
    objective = PrefixLM(smallest_prefix=0.001, largest_prefix=0.999)
    draws = np.append(uniform(200), [0.0, np.nextafter(1, 0)])
    found = prefix_lengths(np.full(202, pairs), objective, draws)
    assert found.min() >= 1 and found.max() <= pairs
    assert after_prefix(np.ones((202, pairs)), found).sum(axis=1).min() >= 1


def test_live_bounds_of_the_prefix():
    draws, pairs = uniform(100), np.full(100, 40)
    found = {
        prefix_lengths(pairs, PrefixLM(smallest_prefix=a, largest_prefix=b), draws).tobytes()
        for a, b in [(0.25, 0.75), (0.5, 0.75), (0.25, 0.5)]
    }
    assert len(found) == 3
    fixed = prefix_lengths(pairs, PrefixLM(smallest_prefix=0.5, largest_prefix=0.5), draws)
    assert set(fixed) == {20}


def masked(objective, rows=4, width=40, *, eligible=None, seed=0, tokens=None):
    if tokens is None:
        tokens = np.random.default_rng(seed + 1).integers(0, PIECES, (rows, width), np.int32)
    if eligible is None:
        eligible = np.ones(tokens.shape, bool)
    draws = uniform(len(tokens), 3, tokens.shape[1], seed=seed)
    found = mask_tokens(tokens, eligible, objective, (MASK, PIECES), draws)
    assert [array.dtype.name for array in found] == ["int32", "int32", "float32"]
    np.testing.assert_array_equal(found.labels, tokens)
    return tokens, found, found.weights == 1


@pytest.mark.parametrize(
    ("rate", "available", "expected"),
    [(0.15, 40, 6), (0.15, 3, 1), (0.15, 1, 1), (0.15, 17, 3), (0.4, 4, 2), (1.0, 9, 9)],
)
def test_number_of_targets_is_exact(rate, available, expected):
    eligible = np.tile(np.arange(40) < available, (3, 1))
    _, _, target = masked(MaskedLM(rate=rate), 3, eligible=eligible)
    assert target.sum(axis=1).tolist() == [expected] * 3


def test_what_is_special_or_padding_is_never_a_target_and_never_changed():
    eligible = np.random.default_rng(5).random((200, 40)) < 0.3
    tokens, found, target = masked(MaskedLM(rate=0.5), 200, eligible=eligible)
    assert not (target & ~eligible).any()
    np.testing.assert_array_equal(found.tokens[~target], tokens[~target])


def test_a_row_without_real_tokens_has_weight_zero():
    eligible = np.array([[False] * 40, [True] * 40])
    tokens, found, target = masked(MaskedLM(), 2, eligible=eligible)
    assert target.sum(axis=1).tolist() == [0, 6]
    np.testing.assert_array_equal(found.tokens[0], tokens[0])


def test_a_row_of_one_token_hides_it():
    _, found, target = masked(MaskedLM(masked=1, random=0), 3, 1)
    assert target.all() and (found.tokens == MASK).all()


def test_every_place_is_a_target_equally_often():
    _, _, target = masked(MaskedLM(rate=0.2), 20_000, 10)
    # Binomial: 4000 expected of each, standard deviation 57.
    assert (abs(target.sum(axis=0) - 4000) < 4 * 57).all()
    # Sets, not neighbours: each of the 45 pairs of places is drawn equally often.
    pairs = (target[:, :, None] & target[:, None]).sum(axis=0)[np.triu_indices(10, 1)]
    assert (abs(pairs - 20_000 / 45) < 4.5 * 21).all()


def test_shares_of_what_targets_show():
    tokens, found, target = masked(MaskedLM(rate=0.5), 4000)
    shown, own = found.tokens[target], tokens[target]
    total = len(shown)
    assert shown.max() == MASK and not np.isin(shown, [50, 51, 52]).any()
    # A random piece is the token's own once in 50.
    for share, of in [(0.8, shown == MASK), (0.1 + 0.1 / 50, shown == own)]:
        assert abs(of.mean() - share) < 4 * (share * (1 - share) / total) ** 0.5
    replaced = shown[(shown != MASK) & (shown != own)]
    counts = np.bincount(replaced, minlength=PIECES)
    assert (abs(counts - len(replaced) / PIECES) < 5 * (len(replaced) / PIECES) ** 0.5).all()


@pytest.mark.parametrize(
    ("settings", "holds"),
    [
        (dict(masked=1, random=0), lambda shown, own: (shown == MASK).all()),
        (dict(masked=0, random=0), lambda shown, own: (shown == own).all()),
        (
            dict(masked=0, random=1),
            lambda shown, own: (shown < PIECES).all() and (shown != own).any(),
        ),
        (
            dict(masked=0.9, random=0.1),
            lambda shown, own: ((shown == MASK) | (shown < PIECES)).all(),
        ),
    ],
)
def test_live_shares_at_their_ends(settings, holds):
    tokens, found, target = masked(MaskedLM(rate=0.5, **settings), 50)
    assert holds(found.tokens[target], tokens[target])


def test_live_each_draw_decides_alone():
    """Which are targets follows from the first row of draws, what they show from the others."""
    objective, draws = MaskedLM(rate=0.5), uniform(4, 3, 40)
    tokens = np.zeros((4, 40), np.int32)
    eligible = np.ones((4, 40), bool)
    base = mask_tokens(tokens, eligible, objective, (MASK, PIECES), draws)
    for changed in range(3):
        other = draws.copy()
        other[:, changed] = uniform(4, 40, seed=9)
        found = mask_tokens(tokens, eligible, objective, (MASK, PIECES), other)
        assert (changed == 0) == (found.weights != base.weights).any()
        assert (found.tokens != base.tokens).any()
