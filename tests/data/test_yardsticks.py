"""Tests for jtransformer.data.yardsticks."""

import collections
import lzma
import math
import shutil
import subprocess

import numpy as np
import pytest

from jtransformer.data import Corpus, load, yardsticks
from jtransformer.spec import DataSpec

PLAIN = b"the cat sat on the mat; the dog sat on the log. " * 40


def corpus_of(train, validation):
    arrays = [np.frombuffer(part, np.uint8) for part in (train, validation, validation)]
    return Corpus(*arrays, sha256="")


def unigram(train, validation):
    counts = collections.Counter(train)
    losses = [-math.log((counts[byte] + 0.1) / (len(train) + 256 * 0.1)) for byte in validation[1:]]
    return math.fsum(losses) / len(losses)


def bigram(train, validation):
    counts = collections.defaultdict(collections.Counter)
    for before, after in zip(train, train[1:], strict=False):
        counts[before][after] += 1
    losses = []
    for before, after in zip(validation, validation[1:], strict=False):
        seen = counts[before]
        losses.append(-math.log((seen[after] + 0.1) / (sum(seen.values()) + 25.6)))
    return math.fsum(losses) / len(losses)


@pytest.mark.parametrize(
    ("train", "validation"),
    [
        (PLAIN, b"the dog sat on the cat"),
        (PLAIN, "the “Übung” z\xff\0".encode("latin-1", "replace")),
        (bytes(range(256)) * 3, bytes(reversed(range(256)))),
        (b"ab", b"cd"),
    ],
)
def test_match_counting_by_dicts(train, validation):
    found = yardsticks(corpus_of(train, validation))
    assert found.unigram == pytest.approx(unigram(train, validation), rel=1e-12)
    assert found.bigram == pytest.approx(bigram(train, validation), rel=1e-12)


def test_what_training_never_saw_costs_a_finite_number():
    found = yardsticks(corpus_of(PLAIN, b"\xf0\xf1\xf2\xf3"))
    assert found.bigram == pytest.approx(math.log(256))
    assert found.unigram == pytest.approx(math.log((len(PLAIN) + 25.6) / 0.1))


def test_law_uniform_noise_cannot_be_predicted():
    rng = np.random.default_rng(0)
    train, validation = (rng.integers(0, 256, 200_000, dtype=np.uint8) for _ in range(2))
    found = yardsticks(corpus_of(train.tobytes(), validation.tobytes()))
    assert found.unigram == pytest.approx(math.log(256), abs=2e-3)
    assert found.xz == pytest.approx(math.log(256), abs=2e-3)
    assert found.bigram > math.log(256)


def test_live_training_text_moves_the_first_two_alone():
    a, b = yardsticks(corpus_of(PLAIN, PLAIN[:99])), yardsticks(corpus_of(PLAIN[::-1], PLAIN[:99]))
    assert a.bigram < b.bigram and a.unigram == b.unigram and a.xz == b.xz
    assert yardsticks(corpus_of(PLAIN[:50], PLAIN[:99])).unigram != a.unigram


def test_compression_is_that_of_the_command(tmp_path):
    """`xz` may note sizes in its block header: a few bytes."""
    text = PLAIN[:1500] + np.random.default_rng(0).bytes(500)
    found = yardsticks(corpus_of(PLAIN, text)).xz * len(text) / 8 / math.log(2)
    assert found == pytest.approx(len(lzma.compress(text, preset=9)))
    if shutil.which("xz"):
        packed = subprocess.run(["xz", "-9", "-c"], input=text, capture_output=True, check=True)
        assert abs(len(packed.stdout) - found) <= 32


def test_worked_figures_of_the_embedded_text():
    """Entropies of the whole text, and `xz -9` on the validation slice, from 96 to 98 %."""
    found = yardsticks(load(DataSpec()))
    assert found.unigram == pytest.approx(3.036, abs=0.01)
    assert found.bigram == pytest.approx(2.376, abs=0.01)
    assert found.xz / math.log(2) == pytest.approx(2.635, abs=0.002)
