"""Tests for jtransformer.data.objectives: dropped spans."""

import itertools

import numpy as np
import pytest

from jtransformer.data.objectives import Marks, ask_for_spans, corrupt, draw_spans
from jtransformer.spec import SpanCorruption
from jtransformer.spec.spans import SpanLengths, span_counts, span_lengths

PAD, BOS, EOS = 100, 101, 102
MARKS = Marks(PAD, BOS, EOS, np.arange(103, 203))


def uniform(*shape, seed=0):
    return np.random.default_rng(seed).random(shape)


def rebuilt(source, target):
    """Puts what was dropped back in place of its sentinel; an independent way round."""
    spans, current = {}, []
    for token in target:
        if token >= MARKS.sentinels[0]:
            current = spans.setdefault(int(token), [])
        elif token != EOS:
            current.append(int(token))
    return [t for token in source for t in spans.get(int(token), [int(token)])]


def runs_of(dropped):
    """Returns the lengths of runs, kept and dropped in turn."""
    return [len(list(group)) for _, group in itertools.groupby(dropped)]


def test_worked_example():
    """SPEC 6: `The <X> walks <Y> park`; `<X> cute dog <Y> in the <Z>` and EOS."""
    words = "The cute dog walks in the park".split()
    dropped = np.array([[False, True, True, False, True, True, False]])
    texts = np.arange(7, dtype=np.int32)[None]
    found = corrupt(texts, np.array([7]), dropped, MARKS, SpanLengths(6, 8, 2))
    name = dict(enumerate(words)) | {PAD: "PAD", BOS: "BOS", EOS: "EOS"}
    name |= {103: "<X>", 104: "<Y>", 105: "<Z>"}
    read = [" ".join(name[int(i)] for i in row[0]) for row in (found.source, found.target)]
    assert read == [
        "The <X> walks <Y> park PAD",
        "BOS <X> cute dog <Y> in the <Z> EOS",
    ]
    assert (found.source_lengths.tolist(), found.target_lengths.tolist()) == ([5], [9])
    batch = ask_for_spans(found)
    tokens, labels = ([name[int(i)] for i in row[0]] for row in (batch.tokens, batch.labels))
    assert " ".join(tokens) == "BOS <X> cute dog <Y> in the <Z>"
    assert " ".join(labels) == "<X> cute dog <Y> in the <Z> EOS"
    assert batch.weights.tolist() == [[1] * 8] and batch.valid.tolist() == [[True] * 8]
    assert batch.source_valid.tolist() == [[True] * 5 + [False]]


@pytest.mark.parametrize("density", [0.05, 0.15, 0.5, 0.7])
@pytest.mark.parametrize("mean_length", [1.0, 1.5, 3.0, 10.0])
def test_law_source_and_target_hold_the_whole_text(density, mean_length):
    B, T = 60, 30
    objective = SpanCorruption(density=density, mean_length=mean_length)
    rng = np.random.default_rng(0)
    texts, lengths = rng.integers(0, 100, (B, T), np.int32), rng.integers(0, T + 1, B)
    lengths[:2] = T
    widths = span_lengths(T, density, mean_length)
    dropped = draw_spans(lengths, T, objective, uniform(B, 2, T))
    found = corrupt(texts, lengths, dropped, MARKS, widths)
    assert found.source.shape == (B, widths.source_length)
    assert found.target.shape == (B, widths.target_length + 1)
    full = found.source_lengths[:2], found.target_lengths[:2] - 1
    assert [set(row) for row in full] == [{widths.source_length}, {widths.target_length}]
    for row, n in enumerate(lengths):
        source = found.source[row, : found.source_lengths[row]]
        target = found.target[row, : found.target_lengths[row]]
        assert rebuilt(source, target[1:]) == texts[row, :n].tolist()
        spans = span_counts(int(n), density, mean_length).spans
        own = MARKS.sentinels[: spans + 1].tolist()
        assert [t for t in target if t >= own[0]] == own and target[-1] == EOS
        assert [t for t in source if t >= own[0]] == own[:-1] and target[0] == BOS
        assert (found.source[row, len(source) :] == PAD).all()
        assert (found.target[row, len(target) :] == PAD).all()


@pytest.mark.parametrize(("density", "mean_length"), [(0.15, 3.0), (0.5, 1.0), (0.3, 2.0)])
def test_counts_are_exact_and_a_kept_run_comes_first(density, mean_length):
    objective = SpanCorruption(density=density, mean_length=mean_length)
    lengths = np.repeat(np.arange(2, 41), 20)
    dropped = draw_spans(lengths, 40, objective, uniform(len(lengths), 2, 40))
    for row, n in zip(dropped, lengths, strict=True):
        counts = span_counts(int(n), density, mean_length)
        assert not row[n:].any() and not row[0] and row.sum() == counts.dropped
        assert len(runs_of(row[:n])) == 2 * counts.spans


def test_every_way_to_cut_is_equally_likely():
    """6 tokens kept and 4 dropped in 2 spans: 5 times 3 ways."""
    lengths = np.full(15_000, 10)
    objective = SpanCorruption(density=0.4, mean_length=2.0)
    dropped = draw_spans(lengths, 10, objective, uniform(15_000, 2, 10))
    ways, counts = np.unique(dropped, axis=0, return_counts=True)
    assert len(ways) == 15
    # Binomial: 1000 expected of each, standard deviation 31.
    assert (abs(counts - 1000) < 4 * 31).all()


def test_a_text_of_one_token_stays_whole():
    objective = SpanCorruption()
    lengths = np.array([1, 0])
    dropped = draw_spans(lengths, 3, objective, uniform(2, 2, 3))
    assert not dropped.any()
    found = corrupt(np.full((2, 3), 7), lengths, dropped, MARKS, SpanLengths(4, 4, 1))
    assert found.source.tolist() == [[7, PAD, PAD, PAD], [PAD] * 4]
    assert found.target.tolist() == [[BOS, 103, EOS, PAD, PAD]] * 2


def test_eos_is_scored_and_nothing_after_it():
    lengths = np.array([6, 3])
    texts = np.zeros((2, 6), np.int32)
    objective = SpanCorruption(density=0.3)
    dropped = draw_spans(lengths, 6, objective, uniform(2, 2, 6))
    batch = ask_for_spans(corrupt(texts, lengths, dropped, MARKS, span_lengths(6, 0.3, 3.0)))
    assert batch.labels[1].tolist() == [103, 0, 104, EOS, PAD]
    assert batch.weights.tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]
    assert batch.valid[1].tolist() == [True] * 5 and batch.tokens[1, 4] == EOS


def test_live_each_knob_changes_the_spans():
    lengths, draws = np.full(5, 30), uniform(5, 2, 30)
    specs = [SpanCorruption(), SpanCorruption(density=0.3), SpanCorruption(mean_length=1.0)]
    found = {draw_spans(lengths, 30, spec, draws).tobytes() for spec in specs}
    assert len(found) == 3
