"""Tests for jtransformer.data.blank: a blank batch is a real one without its content."""

import jax
import numpy as np
import pytest
from small_corpus import (
    DOCUMENTS,
    PAIRS,
    TEXT,
    corpus_of,
    drawn,
    examples_of,
    run_of,
    stream,
)

from jtransformer.data import TrainingBatches, blank_batch
from jtransformer.spec import CausalLM, MaskedLM, PrefixLM, Seq2Seq, SpanCorruption

RUNS = [
    (CausalLM(), TEXT, "stream"),
    (CausalLM(), DOCUMENTS, "stream"),
    (CausalLM(), DOCUMENTS, "padded"),
    (CausalLM(), DOCUMENTS, "packed"),
    (CausalLM(), PAIRS, "padded"),
    (PrefixLM(), TEXT, "stream"),
    (PrefixLM(), PAIRS, "padded"),
    (MaskedLM(), TEXT, "stream"),
    (MaskedLM(), DOCUMENTS, "padded"),
    (MaskedLM(), DOCUMENTS, "packed"),
    (SpanCorruption(), TEXT, "stream"),
    (SpanCorruption(), DOCUMENTS, "padded"),
    (Seq2Seq(), PAIRS, "padded"),
    (Seq2Seq(), PAIRS, "packed"),
]


@pytest.mark.parametrize(("objective", "source", "rows"), RUNS)
def test_has_the_arrays_of_a_real_batch(objective, source, rows):
    spec = run_of(objective, source=source, rows=rows)
    targets, sources = drawn(0, 12, longest=3), drawn(1, 12, longest=2)
    if rows == "stream":
        part = stream(np.concatenate(targets * 4))
    else:
        part = examples_of(targets, sources if source is PAIRS else None)
    real = TrainingBatches(corpus_of(spec, part), spec)[0]

    def described(batch):
        return {name: (x.shape, x.dtype) for name, x in batch._asdict().items() if x is not None}

    assert described(blank_batch(spec)) == described(real)


def test_a_large_batch_takes_no_memory():
    batch = blank_batch(run_of(length=2**20, training=dict(batch_size=2**10)))
    assert {x.strides for x in jax.tree.leaves(batch)} == {(0, 0)}
