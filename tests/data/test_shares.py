"""Tests for jtransformer.data.shares: what each of several processes reads of a batch."""

import numpy as np
import pytest
from small_corpus import corpus_of, run_of, stream

from jtransformer.data import Share, TrainingBatches, evaluation_batches
from jtransformer.spec import MaskedLM, PrefixLM, SpanCorruption

T = 5
TEXT = np.random.default_rng(0).integers(0, 256, 613, dtype=np.uint8)
FIVE = dict(length=T, training=dict(batch_size=5))
OBJECTIVES = {
    "causal": run_of(**FIVE),
    "prefix": run_of(PrefixLM(), **FIVE),
    "masked": run_of(MaskedLM(rate=0.5), **FIVE),
    "spans": run_of(SpanCorruption(density=0.4), **FIVE),
}


CUTS = [
    ([(0,)], 1, 1),
    ([(0,), (1,)], 2, 2),
    ([(0,), (1,), (2,)], 3, 6),
    ([(n,) for n in range(8)], 8, 8),
    # As the chips of two hosts stand in the order of a mesh.
    ([(0, 2), (1, 3)], 4, 4),
]


@pytest.mark.parametrize("spec", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize(("blocks", "of", "multiple"), CUTS)
def test_processes_have_the_rows_of_the_batch_between_them(spec, blocks, of, multiple):
    """CKPT-11: whatever their number, in any step, each row exactly once and in its place."""
    corpus = corpus_of(spec, stream(TEXT[:200] % 20))
    shares = [Share(own, of, multiple) for own in blocks]
    own = [TrainingBatches(corpus, spec, share) for share in shares]
    whole = TrainingBatches(corpus, spec)
    wholes = [whole[0], whole[17], *evaluation_batches(corpus, "validation", spec)]
    parts = [[each[t] for each in own] for t in (0, 17)]
    parts += zip(*[evaluation_batches(corpus, "validation", spec, s) for s in shares], strict=True)
    for batch, divided in zip(wholes, parts, strict=True):
        size = len(batch.tokens)
        rows = np.concatenate([share.rows(size) for share in shares])
        assert len(rows) == -(-size // multiple) * multiple
        assert sorted(rows[rows >= 0]) == list(range(size))
        found = [None if x[0] is None else np.concatenate(x) for x in zip(*divided, strict=True)]
        for array, other in zip(batch, found, strict=True):
            expected = None if array is None else array[rows[rows >= 0]]
            np.testing.assert_array_equal(None if other is None else other[rows >= 0], expected)
        assert found[2][rows < 0].sum() == 0


@pytest.mark.parametrize("spec", OBJECTIVES.values(), ids=OBJECTIVES)
def test_a_process_does_not_read_the_rows_of_the_others(spec):
    """CKPT-11: with every token of another's rows replaced, what it has is the same to the bit."""
    tokens = TEXT[:200] % 20
    share = Share((1,), 3, 6)
    batches = TrainingBatches(corpus_of(spec, stream(tokens)), spec, share)
    is_row = share.rows(5) >= 0
    for t in (0, 3):
        own = [batches._order[5 * t + n] for n in share.rows(5)[is_row]]
        assert 0 < len(own) < 5
        spoilt = (tokens + 1) % 20
        for row in own:
            read = slice(row * T, row * T + T + 1)
            spoilt[read] = tokens[read]
        other = corpus_of(spec, stream(spoilt))
        found = TrainingBatches(other, spec, share)[t]
        for array, again in zip(batches[t], found, strict=True):
            if array is not None:
                np.testing.assert_array_equal(again[is_row], array[is_row])
        whole = TrainingBatches(corpus_of(spec, stream(tokens)), spec)[t].tokens
        assert (whole != TrainingBatches(other, spec)[t].tokens).any()


def test_error_no_such_share():
    for blocks, of in (((2,), 2), ((-1,), 2), ((), 2), ((0,), 0)):
        with pytest.raises(ValueError, match=f"got blocks=.*, of={of}"):
            Share(blocks, of, of)
    with pytest.raises(ValueError, match="got multiple=3, of=2; use 4"):
        Share((0,), 2, 3)
