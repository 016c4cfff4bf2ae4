"""Tests for jtransformer.data.corpus."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from jtransformer.data import (
    Corpus,
    TrainingBatches,
    check_batch,
    count_windows,
    evaluation_batches,
    load,
)
from jtransformer.spec import DataSpec, SpecError, TextFile

T, B = 5, 3
TEXT = np.random.default_rng(0).integers(0, 256, 613, dtype=np.uint8)


def spec_of(path, **settings):
    settings = dict(length=T, validation_fraction=0.1, test_fraction=0.05) | settings
    return DataSpec(source=TextFile(path=str(path)), **settings)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(TEXT.tobytes())
    return path


@pytest.fixture
def corpus(path):
    return load(spec_of(path))


def counting(windows, length=T):
    """A corpus in which a window's first byte is its number."""
    train = np.repeat(np.arange(windows, dtype=np.uint8), length)
    return Corpus(np.append(train, np.uint8(0)), TEXT[:50], TEXT[:50], "")


def visited(batches, steps):
    return np.concatenate([batches[t].tokens[:, 0] for t in range(steps)]).tolist()


@pytest.mark.parametrize("fractions", [(0.1, 0.05), (0.02, 0.02), (0.3, 0.49), (0.49, 0.49)])
@pytest.mark.parametrize("size", [600, 601, 613])
def test_split_is_contiguous_and_complete(tmp_path, fractions, size):
    path = tmp_path / "text"
    path.write_bytes(TEXT[:size].tobytes())
    validation, test = fractions
    corpus = load(spec_of(path, validation_fraction=validation, test_fraction=test))
    parts = (corpus.train, corpus.validation, corpus.test)
    np.testing.assert_array_equal(np.concatenate(parts), TEXT[:size])
    assert (len(parts[1]), len(parts[2])) == (int(size * validation), int(size * test))
    assert {part.dtype for part in parts} == {np.dtype(np.uint8)}


def test_split_does_not_depend_on_the_length(path, corpus):
    longer = load(spec_of(path, length=T + 3))
    np.testing.assert_array_equal(longer.validation, corpus.validation)
    assert longer.sha256 == corpus.sha256


def test_live_identity_follows_the_content_alone(path, tmp_path, corpus):
    other = tmp_path / "other"
    other.write_bytes(TEXT.tobytes())
    assert load(spec_of(other)).sha256 == corpus.sha256
    other.write_bytes(TEXT[:-1].tobytes())
    assert load(spec_of(other)).sha256 != corpus.sha256


@pytest.mark.parametrize(
    ("size", "settings", "part", "has"),
    [
        (0, {}, "train", 0),
        (1, {}, "train", 1),
        (59, {}, "validation", 5),
        (100, {}, "test", 5),
        (613, dict(length=61), "validation", 61),
        (613, dict(length=10**12), "train", 522),
    ],
)
def test_error_a_part_shorter_than_one_sequence(tmp_path, size, settings, part, has):
    path = tmp_path / "text"
    path.write_bytes(TEXT[:size].tobytes())
    spec = spec_of(path, **settings)
    with pytest.raises(SpecError) as caught:
        load(spec)
    assert str(caught.value) == (
        f"data.length = {spec.length} needs {spec.length + 1} bytes in every part of the text, but "
        f"{part} has {has} of {size}; give a longer text or a shorter length."
    )


def test_a_part_of_exactly_one_sequence_is_enough(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(TEXT[:120].tobytes())
    corpus = load(spec_of(path))
    assert len(corpus.test) == T + 1
    assert sum(batch.weights.sum() for batch in evaluation_batches(corpus.test, T, B)) == T


@pytest.mark.parametrize("length", [1, 2, 5, 7])
def test_windows_are_those_that_fit(length):
    for size in range(length + 1, 40):
        fitting = [s for s in range(0, size, length) if s + length + 1 <= size]
        assert count_windows(TEXT[:size], length) == len(fitting)


def test_error_fewer_windows_than_a_batch(corpus, path):
    windows = (len(corpus.train) - 1) // T
    check_batch(corpus, spec_of(path), windows)
    with pytest.raises(SpecError) as caught:
        check_batch(corpus, spec_of(path), windows + 1)
    assert str(caught.value).startswith(
        f"training.batch_size = {windows + 1} sequences of {T} tokens are more than the training "
        f"text holds ({windows} sequences in {len(corpus.train)} bytes); use a smaller batch"
    )


def test_labels_are_the_tokens_shifted_once(corpus, path):
    """LOSS-07: 5 6 7 8 gives the inputs 5 6 7 and the labels 6 7 8."""
    part = np.array([5, 6, 7, 8], np.uint8)
    (batch,) = evaluation_batches(part, 3, 1)
    assert (batch.tokens.tolist(), batch.labels.tolist()) == ([[5, 6, 7]], [[6, 7, 8]])
    assert batch.weights.tolist() == [[1, 1, 1]]
    batch = TrainingBatches(corpus, spec_of(path), B, seed=0)[0]
    np.testing.assert_array_equal(batch.tokens[:, 1:], batch.labels[:, :-1])
    pairs = set(zip(corpus.train[:-1].tolist(), corpus.train[1:].tolist(), strict=True))
    assert (
        set(zip(batch.tokens[:, -1].tolist(), batch.labels[:, -1].tolist(), strict=True)) <= pairs
    )


def test_batches_have_one_form(corpus, path):
    batches = [TrainingBatches(corpus, spec_of(path), B, seed=0)[t] for t in (0, 999)]
    batches += evaluation_batches(corpus.validation, T, B)
    for batch in batches:
        assert {array.shape for array in batch} == {(B, T)}
        assert [array.dtype.name for array in batch] == ["int32", "int32", "float32"]


def test_training_weights_are_all_one(corpus, path):
    batches = TrainingBatches(corpus, spec_of(path), B, seed=1)
    assert all((batches[t].weights == 1).all() for t in range(80))


def test_every_epoch_visits_every_window_once_in_its_own_order(path):
    windows = 30
    batches = TrainingBatches(counting(windows), spec_of(path), B, seed=0)
    order = visited(batches, 4 * windows // B)
    epochs = [tuple(order[i : i + windows]) for i in range(0, len(order), windows)]
    assert all(sorted(epoch) == list(range(windows)) for epoch in epochs)
    assert len({*epochs, tuple(range(windows))}) == 5


def test_a_batch_may_reach_into_the_next_epoch(path):
    windows = 31
    batches = TrainingBatches(counting(windows), spec_of(path), B, seed=0)
    order = visited(batches, 2 * windows)
    for epoch in range(6):
        assert sorted(order[epoch * windows : (epoch + 1) * windows]) == list(range(windows))


def test_windows_are_cut_where_the_split_says(corpus, path):
    starts = {corpus.train[s : s + T].tobytes() for s in range(0, len(corpus.train) - T, T)}
    batches = TrainingBatches(corpus, spec_of(path), B, seed=3)
    seen = {row.astype(np.uint8).tobytes() for t in range(80) for row in batches[t].tokens}
    assert seen == starts


def test_batch_is_a_function_of_spec_seed_and_index(corpus, path):
    """CKPT-10: a run that was interrupted twice sees what an undisturbed one sees."""
    steps = 2 * count_windows(corpus.train, T) // B + 5
    once = TrainingBatches(corpus, spec_of(path), B, seed=7)
    whole = [once[t] for t in range(steps)]
    for start, stop in [(0, steps - 9), (steps - 9, steps - 4), (steps - 4, steps)]:
        life = TrainingBatches(corpus, spec_of(path), B, seed=7)
        for t in range(start, stop):
            np.testing.assert_array_equal(life[t], whole[t])
    backwards = [once[t] for t in reversed(range(steps))]
    np.testing.assert_array_equal(backwards[::-1], whole)
    assert not np.array_equal(whole[-1].tokens, whole[0].tokens)


def test_the_same_batches_in_another_process(path):
    code = (
        "import sys, hashlib; from jtransformer.data import *; from jtransformer.spec import *\n"
        f"spec = DataSpec(source=TextFile(path=sys.argv[1]), length={T}, validation_fraction=0.1,"
        f" test_fraction=0.05)\nbatches = TrainingBatches(load(spec), spec, {B}, 11)\n"
        "print(hashlib.sha256(b''.join(batches[t].tokens.tobytes() for t in (0, 50))).hexdigest())"
    )
    command = [sys.executable, "-c", code, str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    batches = TrainingBatches(load(spec_of(path)), spec_of(path), B, 11)
    own = b"".join(batches[t].tokens.tobytes() for t in (0, 50))
    assert found == hashlib.sha256(own).hexdigest()


def test_live_seeds_order_differently(path):
    orders = {
        tuple(visited(TrainingBatches(counting(30), spec_of(path), B, seed=seed), 10))
        for seed in (0, 1, 2, 2**31 - 1)
    }
    assert len(orders) == 4


def test_null_seed_repeated(path):
    a, b = (TrainingBatches(counting(30), spec_of(path), B, seed=4) for _ in range(2))
    assert visited(a, 40) == visited(b, 40)


@pytest.mark.parametrize("size", [2, 5, 6, 7, 10, 11, 15, 16, 31, 46, 61])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_evaluation_scores_every_byte_but_the_first_once(size, batch_size):
    part = np.arange(size, dtype=np.uint8)
    batches = list(evaluation_batches(part, T, batch_size))
    assert {batch.tokens.shape for batch in batches} == {(min(batch_size, -(-(size - 1) // T)), T)}
    scored = np.concatenate([batch.labels[batch.weights == 1] for batch in batches])
    assert scored.tolist() == list(range(1, size))
    before = np.concatenate([batch.tokens[batch.weights == 1] for batch in batches])
    assert before.tolist() == list(range(size - 1))
    weights = np.concatenate([batch.weights.ravel() for batch in batches])
    assert set(weights.tolist()) <= {0.0, 1.0} and weights.sum() == size - 1


def test_law_evaluation_does_not_depend_on_the_batch_size():
    def scored(batch_size):
        batches = list(evaluation_batches(TEXT[:100], T, batch_size))
        return [np.concatenate([array[b.weights == 1] for b in batches for array in [b.labels]])]

    for batch_size in (2, 7, 100):
        np.testing.assert_array_equal(scored(batch_size), scored(1))


def test_importing_the_package_does_not_import_grain():
    code = "import sys, jtransformer.data; sys.exit('grain' in sys.modules or 'jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
