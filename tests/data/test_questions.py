"""Tests for jtransformer.data.batches: what each objective asks, for every form of rows."""

import dataclasses

import numpy as np
import pytest
from small_corpus import (
    DOCUMENTS,
    PAIRS,
    PIECES,
    corpus_of,
    drawn,
    examples_of,
    run_of,
    scored,
    stream,
)

from jtransformer.data import TrainingBatches, evaluation_batches
from jtransformer.spec import CausalLM, MaskedLM, PrefixLM, Seq2Seq, SpanCorruption

PAD, BOS, EOS = PIECES, PIECES + 1, PIECES + 2
HIDE = MaskedLM(rate=0.4, masked=1, random=0)
SPANS = SpanCorruption(density=0.4, mean_length=1.2)
RNG = np.random.default_rng(0)
# No id twice in a text, so that an id tells which token it is.
DISTINCT = [RNG.permutation(PIECES)[: RNG.integers(1, 8)].astype(np.int32) for _ in range(11)]
FORMS = {
    f"{objective.kind} {name} {rows}": (objective, dict(source=source, rows=rows, length=12))
    for objective in (CausalLM(), PrefixLM(), HIDE, SPANS, Seq2Seq())
    for name, source in (("stream", None), ("documents", DOCUMENTS), ("pairs", PAIRS))
    for rows in (("stream",) if source is None else ("padded", "packed"))
    if not (rows == "packed" and isinstance(objective, PrefixLM | SpanCorruption))
    if not (name == "pairs" and isinstance(objective, MaskedLM | SpanCorruption))
    if not (name != "pairs" and isinstance(objective, Seq2Seq))
}
EVERY_FORM = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
RANDOM = {k: v for k, v in FORMS.items() if not isinstance(v[0], CausalLM | Seq2Seq)}
RANDOM.pop("prefix_lm pairs padded")
EVERY_RANDOM_FORM = pytest.mark.parametrize("form", RANDOM.values(), ids=RANDOM)


def form_of(form, **settings):
    objective, data = form
    data = {name: value for name, value in data.items() if value is not None}
    if isinstance(objective, Seq2Seq):
        data["source_length"] = 12
    spec = run_of(objective, **data, **settings)
    if spec.data.rows == "stream":
        return spec, corpus_of(spec, stream(np.tile(np.arange(PIECES), 5)[:93]))
    sources = None
    if spec.data.has_pairs:
        sources = [np.flipud(row)[:4] for row in DISTINCT]
    return spec, corpus_of(spec, examples_of(DISTINCT, sources))


def equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def before(batch, row, column):
    """The tokens that position `column` of a row can see, its own included."""
    seen = np.arange(batch.tokens.shape[1]) <= column
    if batch.prefix_length is not None:
        prefix = np.arange(len(seen)) < batch.prefix_length[row]
        seen |= prefix if column < batch.prefix_length[row] else False
    if batch.segments is not None:
        seen &= batch.segments[row] == batch.segments[row, column]
    return batch.tokens[row][seen].tolist()


@EVERY_FORM
def test_no_label_can_be_seen_by_its_own_input(form):
    spec, corpus = form_of(form)
    for batch in [TrainingBatches(corpus, spec)[0], *evaluation_batches(corpus, "train", spec)]:
        assert batch.weights.sum() > 0
        for row, column in np.argwhere(batch.weights == 1):
            label = batch.labels[row, column]
            if isinstance(spec.objective, MaskedLM):
                # Every other token is seen, and in a text none is the label.
                near = batch.tokens[row]
                if batch.segments is not None:
                    near = near[batch.segments[row] == batch.segments[row, column]]
                assert label not in near
            elif not spec.data.has_pairs or isinstance(spec.objective, Seq2Seq):
                assert label not in before(batch, row, column)


@EVERY_FORM
def test_padding_and_weights_are_told_and_agree(form):
    spec, corpus = form_of(form)
    for batch in evaluation_batches(corpus, "train", spec):
        for name, value in batch._asdict().items():
            assert value is None or value.dtype.name == (
                "float32" if name == "weights" else "bool" if "valid" in name else "int32"
            )
        assert set(np.unique(batch.weights)) <= {0.0, 1.0}
        if batch.valid is not None:
            assert not batch.weights[~batch.valid].any()
            if spec.data.rows != "stream" or batch.source is not None:
                assert (batch.tokens[~batch.valid] == PAD).all()
        if spec.data.rows != "stream" and isinstance(spec.objective, CausalLM | Seq2Seq):
            assert (batch.labels[batch.weights == 0] == PAD).all()
        if batch.source is not None:
            assert not np.isin(batch.source[batch.source_valid], [PAD]).any()
        assert (batch.segments is None) == (batch.positions is None) == (spec.data.rows != "packed")


@EVERY_FORM
def test_eos_is_asked_for_once_an_example_and_nothing_after_it(form):
    spec, corpus = form_of(form)
    batches = list(evaluation_batches(corpus, "train", spec))
    asked = [label for (label,) in scored(batches, "labels")]
    if isinstance(spec.objective, MaskedLM):
        assert max(asked) < PIECES
    elif spec.data.rows == "stream":
        ends = 8 if isinstance(spec.objective, SpanCorruption) else 0
        assert asked.count(EOS) == ends
    else:
        assert asked.count(EOS) == 11
    assert not {BOS, PAD} & set(asked)
    for batch in batches:
        assert not (batch.weights[batch.tokens == EOS]).any()


@EVERY_FORM
def test_evaluation_has_one_shape_and_every_example_once(form):
    spec, corpus = form_of(form)
    batches = list(evaluation_batches(corpus, "train", spec))
    shapes = [[None if array is None else array.shape for array in batch] for batch in batches]
    assert all(shape == shapes[0] for shape in shapes)
    asked = [label for (label,) in scored(batches, "labels")]
    if spec.data.rows == "stream":
        expected = {"causal_lm": 92, "masked_lm": 7 * 5 + 4}.get(spec.objective.kind)
        assert expected is None or len(asked) == expected
    elif isinstance(spec.objective, CausalLM | Seq2Seq):
        assert sorted(asked) == sorted([*np.concatenate(DISTINCT).tolist(), *[EOS] * 11])


@EVERY_FORM
def test_null_evaluation_ignores_the_seed_and_the_rows_of_a_batch(form):
    spec, corpus = form_of(form)

    def asked(spec):
        batches = evaluation_batches(corpus, "validation", spec)
        return scored(batches, "tokens", "labels")

    other, single = (
        form_of(form, seed=5)[0],
        form_of(form, training=dict(evaluation_batch_size=1))[0],
    )
    assert asked(spec) == asked(other) == asked(single)


@EVERY_RANDOM_FORM
def test_live_the_seed_and_the_step_decide_the_questions_of_training(form):
    spec, corpus = form_of(form)
    everything = [
        TrainingBatches(corpus, dataclasses.replace(spec, seed=seed))[t]
        for seed, t in [(0, 0), (0, 0), (1, 0), (0, 40)]
    ]
    assert equal(everything[0], everything[1])
    assert not equal(everything[0], everything[2]) and not equal(everything[0], everything[3])


@EVERY_RANDOM_FORM
def test_a_row_is_asked_something_else_in_another_epoch(form):
    spec, corpus = form_of(form, training=dict(batch_size=1))
    batches = TrainingBatches(corpus, spec)
    found = set()
    for t in range(2 * batches.rows_per_epoch):
        found.add(b"".join(array.tobytes() for array in batches[t] if array is not None))
    assert len(found) > batches.rows_per_epoch


@EVERY_FORM
def test_law_no_arm_sees_other_data_than_its_neighbour(form):
    spec, corpus = form_of(form)
    wider = dataclasses.replace(spec, model=dataclasses.replace(spec.model, width=16, layers=1))
    steps = dataclasses.replace(spec, training=dataclasses.replace(spec.training, steps=70))
    own = TrainingBatches(corpus, spec)[3]
    for arm in (wider, steps):
        assert equal(own, TrainingBatches(corpus, arm)[3])


def test_worked_two_samples():
    """What may be read as a key and what is scored are two different arrays."""
    words = "I gave her a book she smiled".split()
    ids = {word: i for i, word in enumerate(words)}
    texts = ["I gave her a book", "she smiled"]
    targets = [np.array([ids[word] for word in text.split()], np.int32) for text in texts]
    spec = run_of(Seq2Seq(), source=PAIRS, rows="padded", length=6, source_length=6)
    corpus = corpus_of(spec, examples_of(targets, [np.arange(5), np.arange(1)]))
    (batch,) = evaluation_batches(corpus, "train", spec)
    name = dict(enumerate(words)) | {PAD: "PAD", BOS: "BOS", EOS: "EOS"}
    assert [[name[int(i)] for i in row] for row in batch.tokens] == [
        ["BOS", "I", "gave", "her", "a", "book"],
        ["BOS", "she", "smiled", "EOS", "PAD", "PAD"],
    ]
    assert batch.valid.tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]
    assert batch.weights.tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]
    assert batch.source_valid.tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]]
    assert batch.weights.sum() == 9
    assert [name[int(i)] for i in batch.labels[0]] == [*texts[0].split(), "EOS"]


def test_a_pair_in_one_row_is_its_source_a_separator_and_its_target():
    for objective in (CausalLM(), PrefixLM()):
        spec = run_of(objective, source=PAIRS, rows="padded", length=7)
        corpus = corpus_of(spec, examples_of([np.array([7, 8])], [np.array([4, 5, 6])]))
        (batch,) = evaluation_batches(corpus, "train", spec)
        assert batch.tokens.tolist() == [[4, 5, 6, BOS, 7, 8, EOS]]
        assert batch.labels[batch.weights == 1].tolist() == [7, 8, EOS]
        assert batch.weights.tolist() == [[0, 0, 0, 1, 1, 1, 0]]
    assert batch.prefix_length.tolist() == [4]


def test_specials_within_a_text_are_never_hidden():
    """Documents of a stream end in EOS."""
    spec = run_of(MaskedLM(rate=1), length=5, source=DOCUMENTS)
    eos, mask = PIECES, PIECES + 1
    corpus = corpus_of(spec, stream([1, 2, eos, 3, 4, 5, eos, 6, eos, 7]))
    assert (corpus.specials.eos, corpus.specials.mask) == (eos, mask)
    (batch,) = evaluation_batches(corpus, "train", spec)
    assert batch.weights.sum() == 7 and not batch.weights[batch.labels == eos].any()


def test_training_rows_of_a_text_need_no_word_on_what_is_real():
    for name, form in FORMS.items():
        spec, corpus = form_of(form)
        batch = TrainingBatches(corpus, spec)[0]
        assert (batch.valid is None) == ("stream" in name)
        if batch.source is not None:
            assert (batch.source_valid is None) == ("stream" in name)


def test_an_encoder_is_told_where_a_text_ends():
    """93 tokens are 7 rows of 12 and one of 9; a third batch of 3 has one row of nothing."""
    expected = {"masked_lm": ("valid", [12, 9, 0]), "span_corruption": ("source_valid", [11, 8, 0])}
    for kind, (field, real) in expected.items():
        form = FORMS[f"{kind} stream stream"]
        spec, corpus = form_of(form, training=dict(evaluation_batch_size=3))
        *_, last = evaluation_batches(corpus, "train", spec)
        assert getattr(last, field).sum(axis=1).tolist() == real
        assert (last.weights.sum(axis=1) > 0).tolist() == [True, True, False]


def test_documents_of_one_token_and_of_none():
    texts = [np.array([3], np.int32), np.zeros(0, np.int32)]
    for objective in (CausalLM(), MaskedLM(), SpanCorruption()):
        spec = run_of(objective, source=DOCUMENTS, rows="padded")
        (batch,) = evaluation_batches(corpus_of(spec, examples_of(texts)), "train", spec)
        expected = {"causal_lm": [2, 1], "masked_lm": [1, 0], "span_corruption": [2, 2]}
        assert batch.weights.sum(axis=1).tolist() == expected[objective.kind]


def test_live_a_longer_part_of_a_corpus_is_another_one():
    spec = run_of()
    corpus = corpus_of(spec, stream(drawn(0, 1, longest=50, shortest=50)[0]), stream(range(20)))
    sums = {part: len(scored(evaluation_batches(corpus, part, spec), "labels")) for part in
            ("train", "validation", "test")}  # fmt: skip
    assert sums == {"train": 49, "validation": 19, "test": 19}
