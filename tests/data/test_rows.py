"""Tests for jtransformer.data.rows: examples in rows, padded and packed."""

import collections

import numpy as np
import pytest
from small_corpus import DOCUMENTS, PAIRS, corpus_of, drawn, examples_of, run_of, scored, stream

from jtransformer.data import TrainingBatches, evaluation_batches
from jtransformer.data.fitting import fit
from jtransformer.data.rows import NO_ROW, OPEN_ROWS, fewest_rows, rows_of
from jtransformer.spec import CausalLM, MaskedLM, Seq2Seq, SpanCorruption, SpecError

DOCS, SOURCES = drawn(0, 40, longest=7), drawn(1, 40, longest=5)
FORMS = {
    "causal documents": (CausalLM(), dict(source=DOCUMENTS), None),
    "causal pairs": (CausalLM(), dict(source=PAIRS), SOURCES),
    "seq2seq": (Seq2Seq(), dict(source=PAIRS, source_length=14), SOURCES),
    "masked documents": (MaskedLM(), dict(source=DOCUMENTS), None),
}
EVERY_FORM = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def form_of(form, rows, **settings):
    objective, data, sources = form
    spec = run_of(objective, **(dict(rows=rows, length=15) | data | settings))
    return spec, corpus_of(spec, examples_of(DOCS, sources))


def packed_rows(form, **settings):
    spec, corpus = form_of(form, "packed", **settings)
    return rows_of(corpus.train, corpus.specials, spec, seed=0)


@EVERY_FORM
def test_packing_holds_every_example_once(form):
    rows = packed_rows(form)
    assert sorted(rows.members.flat) == list(range(40))
    assert rows.count == len(rows.members) < 30
    assert rows.members.lengths.min() >= 1


@EVERY_FORM
def test_a_packed_row_keeps_its_examples_whole_and_in_a_line(form):
    rows = packed_rows(form)
    placed = rows.place(np.arange(rows.count))
    shifts = rows.text.labels_only
    assert shifts == (not isinstance(form[0], MaskedLM))
    for row in range(rows.count):
        column = 0
        for number, example in enumerate(rows.members[row], 1):
            begin, end = rows.text.offsets[example], rows.text.offsets[example + 1]
            taken = int(end - begin) - shifts
            here = slice(column, column + taken)
            assert placed.places[row, here].tolist() == list(range(begin, begin + taken))
            assert placed.positions[row, here].tolist() == list(range(taken))
            assert set(placed.segments[row, here]) == {number}
            column += taken
        # The end of the last example may stand as an input where there is room.
        rest = placed.segments[row, column:]
        assert len(rest) == 0 or rest[0] == number * shifts and not rest[1:].any()
    np.testing.assert_array_equal(placed.valid, placed.segments > 0)


def test_source_and_target_of_a_packed_pair_have_one_number():
    rows = packed_rows(FORMS["seq2seq"])
    every = np.arange(rows.count)
    target, source = rows.place(every), rows.place_source(every)
    for row in range(rows.count):
        for number, example in enumerate(rows.members[row], 1):
            ids = rows.source.ids[source.places[row][source.segments[row] == number]]
            assert ids[:-1].tolist() == SOURCES[example].tolist()
            ids = rows.text.ids[target.places[row][target.segments[row] == number]]
            assert ids[1 : len(DOCS[example]) + 1].tolist() == DOCS[example].tolist()


@EVERY_FORM
def test_law_packed_rows_ask_what_padded_rows_ask(form):
    """Every scored label, with all that its example shows before it."""

    def asked(rows, part):
        # Whole sources are compared elsewhere; here a mask's draws would differ by row.
        spec, corpus = form_of(form, rows)
        batches = list(evaluation_batches(corpus, part, spec))
        return collections.Counter(scored(batches, "tokens", "labels"))

    if isinstance(form[0], MaskedLM):
        totals = [sum(asked(rows, "train").values()) for rows in ("padded", "packed")]
        assert totals[0] == 40 and 0 < totals[1] <= 40
        return
    assert asked("padded", "train") == asked("packed", "train")
    assert sum(asked("packed", "train").values()) == sum(len(d) + 1 for d in DOCS)


def test_packing_is_tight_and_never_over_full():
    sizes = np.random.default_rng(3).integers(1, 30, 3000)
    spec = run_of(MaskedLM(), source=DOCUMENTS, rows="packed", length=64)
    part = examples_of([np.zeros(n, np.int32) for n in sizes])
    rows = rows_of(part, corpus_of(spec, part).specials, spec, seed=0)
    filled = [sum(sizes[rows.members[row]] + 2) for row in range(rows.count)]
    assert max(filled) <= 64
    fewest = fewest_rows(part, spec)
    assert fewest == -(-int((sizes + 2).sum()) // 64) <= rows.count <= 1.02 * fewest + 2


def test_packing_keeps_few_rows_open():
    """One long example a row leaves no room; the last rows alone are searched."""
    part = examples_of([np.zeros(n, np.int32) for n in [1] + [8] * (OPEN_ROWS + 1) + [1]])
    spec = run_of(MaskedLM(), source=DOCUMENTS, rows="packed", length=10)
    rows = rows_of(part, corpus_of(spec, part).specials, spec)
    assert rows.members[0].tolist() == [0]
    assert rows.members[rows.count - 1].tolist() == [OPEN_ROWS + 2]


def test_live_the_seed_decides_who_is_packed_together():
    spec, corpus = form_of(FORMS["causal documents"], "packed")
    packed = [
        rows_of(corpus.train, corpus.specials, spec, seed=seed).members.flat.tobytes()
        for seed in (0, 1, 0, None)
    ]
    assert packed[0] == packed[2] and len(set(packed)) == 3


def test_evaluation_keeps_the_order_of_the_examples():
    spec, corpus = form_of(FORMS["causal documents"], "packed")
    rows = rows_of(corpus.train, corpus.specials, spec)
    assert [row[0] for row in (rows.members[r] for r in range(rows.count))] == sorted(
        rows.members[r][0] for r in range(rows.count)
    )


@pytest.mark.parametrize("rows", ["padded", "packed"])
def test_every_epoch_visits_every_row_once_in_its_own_order(rows):
    spec, corpus = form_of(FORMS["causal documents"], rows)
    batches = TrainingBatches(corpus, spec)
    count = batches.rows_per_epoch
    assert batches.examples_per_epoch == 40
    steps = -(-3 * count // 3)
    read = [tuple(row) for t in range(steps) for row in batches[t].tokens]
    epochs = [read[i * count : (i + 1) * count] for i in range(3)]
    expected = collections.Counter(epochs[0])
    assert all(collections.Counter(epoch) == expected for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("rows", ["padded", "packed"])
def test_batch_is_a_function_of_spec_seed_and_index(rows):
    spec, corpus = form_of(FORMS["seq2seq"], rows)
    one, other = TrainingBatches(corpus, spec), TrainingBatches(corpus, spec)
    backwards = [other[t] for t in reversed(range(9))][::-1]
    for t in range(9):
        for a, b in zip(one[t], backwards[t], strict=True):
            np.testing.assert_array_equal(a, b)


def cut(objective, targets, sources=None, *, rows="padded", **data):
    source = DOCUMENTS if sources is None else PAIRS
    spec = run_of(objective, source=source, rows=rows, too_long="cut", **data)
    part = examples_of(*([np.asarray(x, np.int32) for x in xs] for xs in (targets, sources) if xs))
    return next(evaluation_batches(corpus_of(spec, part), "train", spec))


@pytest.mark.parametrize("rows", ["padded", "packed"])
def test_a_cut_text_has_no_end(rows):
    """Its EOS would teach the model to stop in the middle."""
    batch = cut(CausalLM(), [range(10), [7, 8]], rows=rows, length=4)
    assert batch.tokens[0].tolist() == [21, 0, 1, 2] and batch.labels[0].tolist() == [0, 1, 2, 3]
    assert batch.labels[1].tolist() == [7, 8, 22, 20]
    assert batch.weights.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


def test_a_cut_pair_loses_the_ends_of_both():
    batch = cut(Seq2Seq(), [range(10)], [range(10, 20)], length=4, source_length=3)
    assert batch.source.tolist() == [[10, 11, 12]] and batch.labels.tolist() == [[0, 1, 2, 3]]


def test_a_source_that_fills_the_row_leaves_nothing_to_ask_for():
    part = examples_of([np.array([0, 1], np.int32)] * 3, [np.full(5 - i, 2 + i) for i in range(3)])
    spec = run_of(CausalLM(), source=PAIRS, rows="padded", too_long="cut", length=5)
    (kept, *_), report = fit([part] * 3, [np.arange(3)] * 3, spec.data, spec.objective)
    assert report.too_long == 3 and report.cut == 6
    batch = next(evaluation_batches(corpus_of(spec, kept), "train", spec))
    assert batch.tokens.tolist() == [[3, 3, 3, 3, 21], [4, 4, 4, 21, 0]]
    assert batch.labels[batch.weights == 1].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("objective", "source", "length"), [(CausalLM(), PAIRS, 3), (MaskedLM(), DOCUMENTS, 1)]
)
def test_error_a_cut_that_leaves_nothing_to_ask_for(objective, source, length):
    rows = [np.zeros(3, np.int32)]
    part = examples_of(rows, rows if source == PAIRS else None)
    spec = run_of(objective, source=source, rows="padded", too_long="cut", length=length)
    with pytest.raises(SpecError, match="= 'cut' leaves train without an example, as all 1 are"):
        fit([part] * 3, [np.arange(1)] * 3, spec.data, spec.objective)


@pytest.mark.parametrize(
    ("objective", "kept"),
    # A masked text has its beginning in the row; what a span drops stands in the target.
    [(MaskedLM(masked=0, random=0), 3), (SpanCorruption(density=0.5), 4)],
)
def test_other_objectives_cut_the_end_too(objective, kept):
    batch = cut(objective, [range(10)], length=4)
    seen = batch.tokens if batch.source is None else np.append(batch.source, batch.labels)
    assert {token for token in seen.ravel().tolist() if token < 10} == set(range(kept))


def test_a_row_of_nothing():
    for rows in (packed_rows(FORMS["seq2seq"]), rows_of(stream(range(9)), None, run_of())):
        placed = rows.place(np.array([NO_ROW, 0]))
        assert not placed.valid[0].any() and placed.valid[1].any()
        assert (placed.places[0] >= len(rows.text.ids)).all()
