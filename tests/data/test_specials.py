"""Tests for jtransformer.data.specials and layout."""

import itertools

import numpy as np
import pytest

from jtransformer.data import Specials, specials
from jtransformer.data.layout import fits, tokens_of_row
from jtransformer.spec import (
    CausalLM,
    DataSpec,
    JsonLines,
    Kjv,
    MaskedLM,
    PrefixLM,
    Seq2Seq,
    SpanCorruption,
    SpecError,
    TextPairs,
)
from jtransformer.spec.spans import span_lengths

DOCUMENTS, PAIRS = JsonLines(path="x"), TextPairs(path="x")
SPANS = SpanCorruption(density=0.2, mean_length=2.0)
P = 100


def names(source, rows, objective, length=20):
    made = specials(P, DataSpec(source=source, rows=rows, length=length), objective)
    single = [name for name in ("pad", "bos", "eos", "mask") if getattr(made, name) is not None]
    return single, len(made.sentinels)


@pytest.mark.parametrize(
    ("source", "rows", "objective", "single"),
    [
        (Kjv(), "stream", CausalLM(), []),
        (Kjv(), "stream", PrefixLM(), []),
        (Kjv(), "stream", MaskedLM(), ["mask"]),
        (DOCUMENTS, "stream", CausalLM(), ["eos"]),
        (DOCUMENTS, "stream", MaskedLM(), ["eos", "mask"]),
        (DOCUMENTS, "padded", CausalLM(), ["pad", "bos", "eos"]),
        (DOCUMENTS, "packed", CausalLM(), ["pad", "bos", "eos"]),
        (DOCUMENTS, "packed", MaskedLM(), ["pad", "bos", "eos", "mask"]),
        (PAIRS, "padded", PrefixLM(), ["pad", "bos", "eos"]),
        (PAIRS, "packed", Seq2Seq(), ["pad", "bos", "eos"]),
    ],
)
def test_only_those_that_are_needed_exist(source, rows, objective, single):
    assert names(source, rows, objective) == (single, 0)


@pytest.mark.parametrize(("source", "rows"), [(Kjv(), "stream"), (DOCUMENTS, "padded")])
def test_a_sentinel_for_every_span_and_a_last_one(source, rows):
    single, sentinels = names(source, rows, SPANS)
    assert single == ["pad", "bos", "eos"]
    # A fifth of 20 tokens in spans of two are two spans.
    assert sentinels == span_lengths(20, 0.2, 2.0).spans + 1 == 3
    assert names(source, rows, SPANS, length=40)[1] == 5


def test_ids_lie_behind_the_pieces_in_order():
    data = DataSpec(source=DOCUMENTS, rows="padded", length=20)
    made = specials(P, data, SPANS)
    assert (made.pad, made.bos, made.eos, made.mask) == (100, 101, 102, None)
    assert made.sentinels == (103, 104, 105) and made.size == 106
    assert specials(P, data, MaskedLM()).mask == 103
    assert specials(256, DataSpec(), CausalLM()) == Specials(pieces=256)
    assert specials(256, DataSpec(), CausalLM()).size == 256


def test_error_special_tokens_that_are_one_token():
    """MASK-08: padding that is also the end would hide the end of every text."""
    for ids in itertools.product([2, 3, 8, 9], repeat=2):
        if ids != (8, 9):
            with pytest.raises(ValueError, match="must be the ids behind the pieces"):
                Specials(pieces=8, pad=ids[0], eos=ids[1])
    assert Specials(pieces=8, pad=8, eos=9).size == 10


def test_error_special_tokens_that_are_pieces_of_text():
    for wrong in (dict(mask=7), dict(sentinels=(8, 10)), dict(sentinels=(9, 8))):
        with pytest.raises(ValueError, match="number them on from 8"):
            Specials(pieces=8, **wrong)


def test_error_spans_that_are_all_of_a_row():
    with pytest.raises(SpecError, match="density"):
        specials(P, DataSpec(length=2), SpanCorruption(density=0.9))


TARGETS, SOURCES = np.array([0, 3, 5]), np.array([4, 4, 1])


@pytest.mark.parametrize(
    ("objective", "sources", "target", "source"),
    [
        (CausalLM(), None, [1, 4, 6], None),
        (PrefixLM(), None, [1, 4, 6], None),
        (CausalLM(), SOURCES, [5, 8, 7], None),
        (PrefixLM(), SOURCES, [5, 8, 7], None),
        (Seq2Seq(), SOURCES, [1, 4, 6], [5, 5, 2]),
        (MaskedLM(), None, [2, 5, 7], None),
        (SPANS, None, [0, 3, 5], None),
    ],
)
def test_tokens_of_a_row(objective, sources, target, source):
    found = tokens_of_row(TARGETS, sources, objective)
    assert found[0].tolist() == target
    assert (found[1] if found[1] is None else found[1].tolist()) == source


@pytest.mark.parametrize("length", [3, 4, 5, 6])
def test_live_an_example_fits_up_to_the_length(length):
    data = DataSpec(source=DOCUMENTS, rows="padded", length=length)
    assert fits(TARGETS, None, data, CausalLM()).tolist() == [True, length >= 4, length >= 6]
    assert fits(TARGETS, None, data, MaskedLM()).tolist() == [True, length >= 5, False]


def test_live_a_source_has_a_bound_of_its_own():
    for source_length, expected in ((1, [False] * 3), (2, [False, False, True]), (5, [True] * 3)):
        data = DataSpec(source=PAIRS, rows="padded", length=6, source_length=source_length)
        assert fits(TARGETS, SOURCES, data, Seq2Seq()).tolist() == expected
