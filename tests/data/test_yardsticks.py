"""Tests for jtransformer.data.yardsticks."""

import collections
import dataclasses
import lzma
import math
import shutil
import subprocess

import numpy as np
import pytest
from small_corpus import DOCUMENTS, PAIRS, corpus_of, drawn, examples_of, run_of, stream

from jtransformer.data import evaluation_batches, load
from jtransformer.data import yardsticks as measured
from jtransformer.data.yardsticks import unigram_nll
from jtransformer.spec import (
    CausalLM,
    DataSpec,
    MaskedLM,
    PrefixLM,
    RunSpec,
    Seq2Seq,
    SpanCorruption,
)

PLAIN = b"the cat sat on the mat; the dog sat on the log. " * 40


def yardsticks(train, validation, **settings):
    spec = run_of(**settings)
    parts = (stream(np.frombuffer(part, np.uint8)) for part in (train, validation))
    return measured(corpus_of(spec, *parts, pieces=256), spec)


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
    found = yardsticks(train, validation)
    assert found.unigram == pytest.approx(unigram(train, validation), rel=1e-12)
    assert found.bigram == pytest.approx(bigram(train, validation), rel=1e-12)


def test_what_training_never_saw_costs_a_finite_number():
    found = yardsticks(PLAIN, b"\xf0\xf1\xf2\xf3")
    assert found.bigram == pytest.approx(math.log(256))
    assert found.unigram == pytest.approx(math.log((len(PLAIN) + 25.6) / 0.1))


def test_law_uniform_noise_cannot_be_predicted():
    rng = np.random.default_rng(0)
    train, validation = (rng.integers(0, 256, 200_000, dtype=np.uint8) for _ in range(2))
    found = yardsticks(train.tobytes(), validation.tobytes(), length=500)
    assert found.unigram == pytest.approx(math.log(256), abs=2e-3)
    assert found.xz == pytest.approx(math.log(256), abs=2e-3)
    assert found.bigram > math.log(256)


def test_live_training_text_moves_the_first_two_alone():
    a, b = yardsticks(PLAIN, PLAIN[:99]), yardsticks(PLAIN[::-1], PLAIN[:99])
    assert a.bigram < b.bigram and a.unigram == b.unigram and a.xz == b.xz
    assert yardsticks(PLAIN[:50], PLAIN[:99]).unigram != a.unigram


def test_compression_is_that_of_the_command(tmp_path):
    """`xz` may note sizes in its block header: a few bytes."""
    text = PLAIN[:1500] + np.random.default_rng(0).bytes(500)
    found = yardsticks(PLAIN, text).xz * len(text) / 8 / math.log(2)
    assert found == pytest.approx(len(lzma.compress(text, preset=9)))
    if shutil.which("xz"):
        packed = subprocess.run(["xz", "-9", "-c"], input=text, capture_output=True, check=True)
        assert abs(len(packed.stdout) - found) <= 32


def test_worked_figures_of_the_embedded_text():
    """Entropies of the whole text, and `xz -9` on the validation slice, from 96 to 98 %."""
    found = measured(load(DataSpec()), RunSpec())
    assert found.unigram == pytest.approx(3.036, abs=0.01)
    assert found.bigram == pytest.approx(2.376, abs=0.01)
    assert found.xz / math.log(2) == pytest.approx(2.635, abs=0.002)


QUESTIONS = {
    "text, hidden": (MaskedLM(), {}),
    "text after a prefix": (PrefixLM(), {}),
    "text, spans": (SpanCorruption(), dict(length=20)),
    "documents": (CausalLM(), dict(source=DOCUMENTS, rows="padded")),
    "documents, packed": (CausalLM(), dict(source=DOCUMENTS, rows="packed")),
    "documents, hidden": (MaskedLM(), dict(source=DOCUMENTS, rows="packed")),
    "pairs": (Seq2Seq(), dict(source=PAIRS, rows="padded")),
    "pairs in one row": (CausalLM(), dict(source=PAIRS, rows="padded", length=14)),
}


@pytest.mark.parametrize(("objective", "settings"), QUESTIONS.values(), ids=QUESTIONS)
def test_unigram_of_what_is_asked(objective, settings):
    """Labels of training counted one by one, on those of validation."""
    spec = run_of(objective, **settings)
    if spec.data.rows == "stream":
        parts = [stream(drawn(seed, 1, longest=300, shortest=300)[0]) for seed in (0, 1)]
    else:
        parts = [examples_of(drawn(n, 30, longest=5), drawn(n + 2, 30, longest=5)) for n in (0, 1)]
    if not spec.data.has_pairs and spec.data.rows != "stream":
        parts = [examples_of(drawn(n, 30, longest=4)) for n in (0, 1)]
    corpus = corpus_of(spec, *parts)
    counts, total, losses = collections.Counter(), 0, []
    for batch in evaluation_batches(corpus, "train", spec):
        counts.update(batch.labels[batch.weights == 1].tolist())
    size, total = corpus.specials.size, sum(counts.values())
    for batch in evaluation_batches(corpus, "validation", spec):
        for label in batch.labels[batch.weights == 1].tolist():
            losses.append(-math.log((counts[label] + 0.1) / (total + 0.1 * size)))
    assert unigram_nll(corpus, spec) == pytest.approx(math.fsum(losses) / len(losses), rel=1e-12)
    assert measured(corpus, spec) == (unigram_nll(corpus, spec), None, None)


def test_bytes_with_ends_of_documents_have_no_compressor():
    """Their ids are no bytes, and what a compressor would be given is not what is asked."""
    spec = run_of(source=DOCUMENTS)
    corpus = corpus_of(spec, stream(drawn(0, 1, longest=99, shortest=99)[0]))
    wider = dataclasses.replace(corpus.train, ids=corpus.train.ids.astype(np.int32))
    found = measured(dataclasses.replace(corpus, train=wider), spec)
    assert found.unigram > 0 and found[1:] == (None, None)
