"""Tests for jtransformer.data.batches: windows of one text, order, shares and refusals."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from small_corpus import DOCUMENTS, PAIRS, corpus_of, drawn, examples_of, run_of, stream

from jtransformer.data import (
    TrainingBatches,
    check_batch,
    evaluation_batches,
    load,
)
from jtransformer.data.rows import fewest_rows
from jtransformer.spec import (
    DataSpec,
    Learned,
    MaskedLM,
    RunSpec,
    Seq2Seq,
    SpanCorruption,
    SpecError,
    TextFile,
    TrainingSpec,
)

T, B = 5, 3
TEXT = np.random.default_rng(0).integers(0, 256, 613, dtype=np.uint8)
PARTS = stream(TEXT[:522]), stream(TEXT[522:583])


def text_run(seed=0, *, length=T, batch_size=B, evaluation_batch_size=B):
    training = dict(batch_size=batch_size, evaluation_batch_size=evaluation_batch_size)
    return run_of(length=length, seed=seed, training=training)


def text_corpus(train=PARTS[0], validation=PARTS[1]):
    return corpus_of(text_run(), train, validation, pieces=256)


def training(corpus=None, seed=0, **settings):
    return TrainingBatches(corpus or text_corpus(), text_run(seed, **settings))


def evaluated(part, length, batch_size):
    spec = text_run(length=length, evaluation_batch_size=batch_size)
    return list(evaluation_batches(text_corpus(PARTS[0], stream(part)), "validation", spec))


def counting(windows, length=T):
    """A corpus in which a window's first byte is its number."""
    train = np.repeat(np.arange(windows, dtype=np.uint8), length)
    return text_corpus(stream(np.append(train, np.uint8(0))))


def visited(batches, steps):
    return np.concatenate([batches[t].tokens[:, 0] for t in range(steps)]).tolist()


def digest(batches):
    arrays = [array for b in batches for array in (b.tokens, b.labels, b.weights)]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


def test_the_batches_of_record():
    """Those of the first release, on which published results rest."""
    batches = training()
    assert digest(batches[t] for t in range(100)) == "3efe436f725b36a4"
    assert digest(training(seed=4)[t] for t in (0, 1, 50, 999)) == "9cb79c73a21285ff"
    assert digest(evaluated(TEXT[522:583], T, B)) == "48868951b1a23c96"
    assert digest(evaluated(TEXT[583:], T, 64)) == "23a8cc90a840e339"


def test_the_batches_of_record_of_the_embedded_text():
    corpus = load(DataSpec())
    expected = {
        (0, 64, 16): ("2167f57bec380c28", "9f0304800ed80f36", "98f1ec7679fbb124"),
        (7, 256, 8): ("198d68efe57d642f", "9ed17a1cef8c2454", "e9bc1470a704918a"),
    }
    for (seed, length, size), hashes in expected.items():
        spec = RunSpec(
            data=DataSpec(length=length), training=TrainingSpec(batch_size=size), seed=seed
        )
        batches = TrainingBatches(corpus, spec)
        windows = batches.rows_per_epoch
        groups = (0, 1), (windows // size,), (10_000,)
        assert tuple(digest(batches[t] for t in group) for group in groups) == hashes
    whole = list(evaluation_batches(corpus, "validation", RunSpec()))
    assert (len(whole), digest(whole)) == (21, "240e209ba3249110")


@pytest.mark.parametrize("length", [1, 2, 5, 7])
def test_windows_are_those_that_fit(length):
    for size in range(length + 1, 40):
        fitting = [s for s in range(0, size, length) if s + length + 1 <= size]
        assert fewest_rows(stream(TEXT[:size]), text_run(length=length)) == len(fitting)


def test_batches_have_one_form():
    for batch in [training()[0], training()[999], *evaluated(TEXT[:61], T, B)]:
        arrays = batch[:3]
        assert {array.shape for array in arrays} == {(B, T)} and set(batch[3:]) == {None}
        assert [array.dtype.name for array in arrays] == ["int32", "int32", "float32"]


def test_training_weights_are_all_one():
    batches = training(seed=1)
    assert all((batches[t].weights == 1).all() for t in range(80))


def test_labels_follow_their_tokens():
    batch = training()[0]
    np.testing.assert_array_equal(batch.tokens[:, 1:], batch.labels[:, :-1])
    pairs = set(zip(TEXT[:521].tolist(), TEXT[1:522].tolist(), strict=True))
    last = batch.tokens[:, -1].tolist(), batch.labels[:, -1].tolist()
    assert set(zip(*last, strict=True)) <= pairs


def test_every_epoch_visits_every_window_once_in_its_own_order():
    windows = 30
    batches = training(counting(windows))
    assert batches.rows_per_epoch == batches.examples_per_epoch == windows
    order = visited(batches, 4 * windows // B)
    epochs = [tuple(order[i : i + windows]) for i in range(0, len(order), windows)]
    assert all(sorted(epoch) == list(range(windows)) for epoch in epochs)
    assert len({*epochs, tuple(range(windows))}) == 5


def test_a_batch_may_reach_into_the_next_epoch():
    windows = 31
    order = visited(training(counting(windows)), 2 * windows)
    for epoch in range(6):
        assert sorted(order[epoch * windows : (epoch + 1) * windows]) == list(range(windows))


def test_windows_are_cut_where_the_split_says():
    starts = {TEXT[s : s + T].tobytes() for s in range(0, 522 - T, T)}
    batches = training(seed=3)
    seen = {row.astype(np.uint8).tobytes() for t in range(80) for row in batches[t].tokens}
    assert seen == starts


def test_batch_is_a_function_of_spec_seed_and_index():
    """CKPT-10: a run that was interrupted twice sees what an undisturbed one sees."""
    once = training(seed=7)
    steps = 2 * once.rows_per_epoch // B + 5
    whole = [once[t][:3] for t in range(steps)]
    for start, stop in [(0, steps - 9), (steps - 9, steps - 4), (steps - 4, steps)]:
        life = training(seed=7)
        for t in range(start, stop):
            np.testing.assert_array_equal(life[t][:3], whole[t])
    backwards = [once[t][:3] for t in reversed(range(steps))]
    np.testing.assert_array_equal(backwards[::-1], whole)
    assert not np.array_equal(whole[-1][0], whole[0][0])


def test_the_same_batches_in_another_process(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(TEXT.tobytes())
    code = (
        "import sys, hashlib; from jtransformer.data import *; from jtransformer.spec import *\n"
        f"data = DataSpec(source=TextFile(path=sys.argv[1]), length={T}, validation_fraction=0.1)\n"
        f"spec = RunSpec(data=data, training=TrainingSpec(batch_size={B}), seed=11)\n"
        "batches = TrainingBatches(load(data), spec)\n"
        "print(hashlib.sha256(b''.join(batches[t].tokens.tobytes() for t in (0, 50))).hexdigest())"
    )
    command = [sys.executable, "-c", code, str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    data = DataSpec(source=TextFile(path=str(path)), length=T, validation_fraction=0.1)
    spec = RunSpec(data=data, training=TrainingSpec(batch_size=B), seed=11)
    batches = TrainingBatches(load(data), spec)
    own = b"".join(batches[t].tokens.tobytes() for t in (0, 50))
    assert found == hashlib.sha256(own).hexdigest()


def test_live_seeds_order_differently():
    seeds = (0, 1, 2, 2**31 - 1)
    assert len({tuple(visited(training(counting(30), seed), 10)) for seed in seeds}) == 4


def test_null_seed_repeated():
    assert visited(training(counting(30), 4), 40) == visited(training(counting(30), 4), 40)


@pytest.mark.parametrize("size", [2, 5, 6, 7, 10, 11, 15, 16, 31, 46, 61])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_evaluation_scores_every_byte_but_the_first_once(size, batch_size):
    batches = evaluated(np.arange(size), T, batch_size)
    assert {batch.tokens.shape for batch in batches} == {(min(batch_size, -(-(size - 1) // T)), T)}
    scored = np.concatenate([batch.labels[batch.weights == 1] for batch in batches])
    assert scored.tolist() == list(range(1, size))
    before = np.concatenate([batch.tokens[batch.weights == 1] for batch in batches])
    assert before.tolist() == list(range(size - 1))
    weights = np.concatenate([batch.weights.ravel() for batch in batches])
    assert set(weights.tolist()) <= {0.0, 1.0} and weights.sum() == size - 1


def test_error_fewer_windows_than_a_batch():
    windows = (522 - 1) // T
    check_batch(text_corpus(), text_run(batch_size=windows))
    with pytest.raises(SpecError) as caught:
        check_batch(text_corpus(), text_run(batch_size=windows + 1))
    assert str(caught.value).startswith(
        f"training.batch_size = {windows + 1} sequences of {T} tokens are more than the training "
        f"part holds ({windows} sequences in 522 tokens); use a smaller batch"
    )


@pytest.mark.parametrize("rows", ["padded", "packed"])
def test_error_fewer_rows_than_a_batch(rows):
    part = examples_of(drawn(0, 20, longest=4))
    form = dict(source=DOCUMENTS, rows=rows, length=10)
    spec = run_of(**form)
    held = TrainingBatches(corpus_of(spec, part), spec).rows_per_epoch
    assert held == 20 if rows == "padded" else held < 10
    for size in (held, held + 1):
        sized = run_of(**form, training=dict(batch_size=size))
        if size == held:
            check_batch(corpus_of(spec, part), sized)
            continue
        with pytest.raises(SpecError, match=rf"\({held} sequences in 20 examples\)"):
            check_batch(corpus_of(spec, part), sized)


@pytest.mark.parametrize(
    ("objective", "settings", "needed"),
    [
        (None, dict(source=DOCUMENTS, rows="padded"), 259),
        (MaskedLM(), {}, 257),
        (MaskedLM(), dict(source=DOCUMENTS, rows="packed"), 260),
        (Seq2Seq(), dict(source=PAIRS, rows="padded"), 259),
        (SpanCorruption(), dict(length=40), 256 + 3 + 3),
    ],
)
def test_error_a_model_without_the_special_tokens(objective, settings, needed):
    part = stream(TEXT)
    if "source" in settings:
        part = examples_of(drawn(0, 9, longest=3), drawn(1, 9, longest=3))
    for vocabulary in (needed, needed - 1):
        spec = run_of(objective, vocabulary=vocabulary, **settings)
        corpus = corpus_of(spec, part, pieces=256)
        if vocabulary == needed:
            check_batch(corpus, spec)
            continue
        with pytest.raises(SpecError) as caught:
            check_batch(corpus, spec)
        assert str(caught.value) == (
            f"model.vocabulary must be at least {needed} for 256 pieces of text and "
            f"{needed - 256} special tokens, got {needed - 1}; use {needed}."
        )


def test_error_positions_that_do_not_reach_a_corrupted_row():
    short, enough = (
        run_of(
            SpanCorruption(density=0.5, mean_length=1.0), length=10, position=Learned(max_length=n)
        )
        for n in (11, 12)
    )
    corpus = corpus_of(enough, stream(TEXT % 20))
    check_batch(corpus, enough)
    with pytest.raises(SpecError, match="10 tokens of source and 12 of target; use at least 12"):
        check_batch(corpus, short)


def test_importing_the_package_does_not_import_grain():
    code = "import sys, jtransformer.data; sys.exit('grain' in sys.modules or 'jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
