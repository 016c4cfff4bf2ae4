"""Tests for jtransformer.data.metrics."""

import sys

import numpy as np
import pytest

from jtransformer.data import bleu, chrf, error_rates, exact_match
from jtransformer.data.metrics import edit_distance
from jtransformer.spec import SpecError


def recursive(a, b):
    """The definition, without a table."""
    if not a or not b:
        return len(a) + len(b)
    if a[0] == b[0]:
        return recursive(a[1:], b[1:])
    return 1 + min(recursive(a[1:], b), recursive(a, b[1:]), recursive(a[1:], b[1:]))


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        ("", "", 0),
        ("abc", "", 3),
        ("", "ab", 2),
        ("kitten", "sitting", 3),
        ("intention", "execution", 5),
        ("abc", "abc", 0),
        ("ab", "ba", 2),
    ],
)
def test_edit_distances_that_are_known(a, b, distance):
    assert edit_distance(a, b) == edit_distance(list(b), list(a)) == distance


def test_edit_distance_is_that_of_the_definition():
    generator = np.random.default_rng(0)
    for _ in range(100):
        a, b = (generator.integers(0, 3, generator.integers(0, 6)).tolist() for _ in range(2))
        assert edit_distance(a, b) == recursive(a, b)


def test_error_rates_of_a_worked_example():
    found = ["K AE T".split(), "D AO".split(), "HH AH L OW W".split(), []]
    references = [
        ["K AE T".split()],
        ["D AO G".split(), "D AA G".split()],
        ["HH EH L OW".split(), "HH AH L OW".split()],
        ["AH".split()],
    ]
    rates = error_rates(found, references)
    assert rates == (3 / 11, 3 / 4, 3, 11, 4)
    assert rates.phoneme == 3 / 11 and rates.word == 3 / 4


def test_live_every_reference_is_looked_at():
    found, right, wrong = [list("abc")], list("abc"), list("xyz")
    assert error_rates(found, [[wrong, right]]).word == 0
    assert error_rates(found, [[right, wrong]]).phoneme == 0
    assert error_rates(found, [[wrong]]).phoneme == 1


def test_of_two_that_are_equally_near_the_longer_counts():
    rates = error_rates([list("abc")], [[list("ab"), list("abcd")]])
    assert (rates.edits, rates.phonemes) == (1, 4)
    assert rates == error_rates([list("abc")], [[list("abcd"), list("ab")]])


def test_a_rate_may_exceed_one():
    assert error_rates([list("abcdef")], [[["x"]]]).phoneme == 6


def test_rates_are_pooled_over_words_not_averaged():
    found, references = [["a"], list("bbbb")], [[["x"]], [list("bbbb")]]
    assert error_rates(found, references).phoneme == 1 / 5


def test_exact_matches():
    assert exact_match(["a", "b", "c", "d"], [["a"], ["x", "b"], ["C"], ["d", "e"]]) == 3 / 4
    assert exact_match([[1, 2]], [[[1, 2]]]) == 1 and exact_match([[1]], [[[1, 2]]]) == 0


HYPOTHESES = ["the cat sat on the mat today", "a dog barked at the old man"]
RIGHT = [["the cat sat on the mat"], ["a dog barked at an old man", "the dog barked at him"]]


def test_bleu_of_a_worked_example():
    """12 of 14 words match, 9 of 12 pairs, 6 of 10 triples, 4 of 8 fours; nothing is short."""
    score = bleu(HYPOTHESES, [["the cat sat on the mat"], ["a dog barked at an old man"]])
    matches = np.array([12, 9, 6, 4]) / np.array([14, 12, 10, 8])
    assert score.value == pytest.approx(100 * np.exp(np.log(matches).mean()), rel=1e-12)


def test_live_more_references_and_what_the_signature_says():
    one = bleu(HYPOTHESES, [["the cat sat on the mat"], ["a dog barked at an old man"]])
    more = bleu(HYPOTHESES, RIGHT)
    assert "nrefs:1" in one.signature and "nrefs:var" in more.signature
    for part in ("case:mixed", "tok:13a", "smooth:exp", "version:"):
        assert part in more.signature
    assert chrf(HYPOTHESES, RIGHT).value >= chrf(HYPOTHESES, [r[:1] for r in RIGHT]).value
    assert "nc:6|nw:0" in chrf(HYPOTHESES, RIGHT).signature


@pytest.mark.parametrize("score", [bleu, chrf])
def test_null_a_perfect_answer_scores_everything(score):
    assert score(HYPOTHESES, [[text] for text in HYPOTHESES]).value == pytest.approx(100)
    assert score(["völlig anders"], [["quite unlike it"]]).value < 20


def test_chrf_is_that_of_its_definition():
    """Popović 2015: F2 of the mean precision and recall of 1 to 6 characters, no spaces."""
    found, right = "abcabcab", "abcbca"

    def grams(text, n):
        return [text[i : i + n] for i in range(len(text) - n + 1)]

    scores = []
    for n in range(1, 7):
        a, b = grams(found, n), grams(right, n)
        hits = sum(min(a.count(gram), b.count(gram)) for gram in set(a))
        scores.append((hits / len(a), hits / len(b)))
    precision, recall = np.mean(scores, axis=0)
    expected = 100 * 5 * precision * recall / (4 * precision + recall)
    assert chrf([found], [[right]]).value == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("metric", [error_rates, exact_match, bleu, chrf])
def test_error_answers_that_cannot_be_scored(metric):
    with pytest.raises(ValueError, match="same number of entries, got 1 and 2"):
        metric(["a"], [["a"], ["b"]])
    with pytest.raises(ValueError, match="found must have an entry, got none"):
        metric([], [])
    with pytest.raises(ValueError, match=r"got \[\] for entry 1"):
        metric(["a", "b"], [["a"], []])
    with pytest.raises(ValueError, match="a list of right answers for each entry, got 'ab'"):
        metric(["ab"], ["ab"])


def test_error_references_without_a_phoneme():
    with pytest.raises(ValueError, match="at least one phoneme"):
        error_rates([["a"]], [[[]]])


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_error_without_the_package(monkeypatch, metric):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(SpecError, match=r"sacrebleu; pip install 'jtransformer\[data\]'\.$"):
        metric(["a"], [["a"]])
