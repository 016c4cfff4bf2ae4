"""Tests for jtransformer.data.splits, and for how examples are dealt and fitted."""

import hashlib
import json

import numpy as np
import pytest

from jtransformer.data import load
from jtransformer.data.splits import CMUDICT_SALT, part_of
from jtransformer.spec import (
    Bytes,
    Characters,
    DataSpec,
    JsonLines,
    MaskedLM,
    Seq2Seq,
    SpecError,
    TextPairs,
    Words,
)

PARTS = ("train", "validation", "test")


def texts_of(corpus):
    """Returns every example of each part as text."""
    decode = corpus.tokenizer.decode
    found = []
    for name in PARTS:
        part = getattr(corpus, name)
        found.append([decode(part.target(i)) for i in range(len(part))])
    return found


def sources_of(corpus):
    parts = [getattr(corpus, name) for name in PARTS]
    return [{part.source(i).tobytes() for i in range(len(part))} for part in parts]


def documents(path, texts, **settings):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    settings = dict(rows="padded", length=40) | settings
    return DataSpec(source=JsonLines(path=str(path)), **settings)


def pairs(path, rows, **settings):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    settings = dict(rows="padded", length=40) | settings
    return DataSpec(source=TextPairs(path=str(path)), **settings)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


TEXTS = [f"document {i}" for i in range(600)]


def test_the_split_is_the_published_one():
    """Any change of these moves words of every corpus that was ever recorded."""
    data = DataSpec(validation_fraction=0.3, test_fraction=0.3)
    words = ["", "Füße", "c a t", "😀", *(f"{i}" for i in range(40))]
    for salt in (b"", b"jtransformer cmudict 1 "):
        first = [hashlib.sha256(salt + word.encode()).digest()[0] for word in words]
        # No first byte is that of a bound, so it alone decides.
        assert not {int(0.3 * 256), int(0.6 * 256)} & set(first)
        expected = [2 if byte < 0.3 * 256 else 1 if byte < 0.6 * 256 else 0 for byte in first]
        assert [part_of(word, data, salt) for word in words] == expected
        assert len(set(expected)) == 3
    assert CMUDICT_SALT == b"jtransformer cmudict 1 "


def test_every_example_is_in_one_part(path):
    parts = texts_of(load(documents(path, TEXTS)))
    assert sorted(sum(parts, [])) == sorted(TEXTS)
    assert all(part == sorted(part, key=TEXTS.index) for part in parts)


def test_live_the_shares_are_those_asked_for(path):
    spec = documents(path, TEXTS, validation_fraction=0.3, test_fraction=0.1)
    train, validation, test = map(len, texts_of(load(spec)))
    # Three standard deviations of a binomial share.
    assert abs(validation - 180) < 3 * np.sqrt(600 * 0.3 * 0.7)
    assert abs(test - 60) < 3 * np.sqrt(600 * 0.1 * 0.9) and train + validation + test == 600


def test_copies_are_in_one_part(path):
    corpus = load(documents(path, TEXTS * 2))
    parts = list(map(set, texts_of(corpus)))
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    assert sum(map(len, texts_of(corpus))) == 1200


def test_law_no_source_is_in_two_parts(path):
    rows = [(f"word {i % 300}", f"way {i}") for i in range(900)]
    corpus = load(pairs(path, rows))
    train, validation, test = sources_of(corpus)
    assert not (train & validation or train & test or validation & test)
    assert len(train | validation | test) == 300
    assert all(len(corpus.test.references(i)) == 3 for i in range(len(corpus.test)))


def test_law_an_example_keeps_its_part(path):
    whole = load(documents(path, TEXTS))
    fewer = load(documents(path, TEXTS[::-1][:400], tokenizer=Characters()))
    for kept, part in zip(texts_of(fewer), texts_of(whole), strict=True):
        assert set(kept) == set(part) & set(TEXTS[::-1][:400])
    other = load(documents(path, TEXTS, validation_fraction=0.2))
    assert texts_of(other)[2] == texts_of(whole)[2]


def test_live_content_order_and_tokenizer_are_the_identity(path):
    made = [
        load(documents(path, texts, tokenizer=tokenizer)).sha256
        for texts in (TEXTS, TEXTS[::-1], [*TEXTS, "more"], [TEXTS[0] + TEXTS[1], *TEXTS[2:]])
        for tokenizer in (Bytes(), Characters())
    ]
    assert len(set(made)) == len(made)
    assert load(documents(path, TEXTS)).sha256 == made[0]


def test_identity_tells_pairs_apart_that_read_alike(path):
    rows = [(f"a{i}", "bc") for i in range(400)]
    other = [(f"a{i}b", "c") for i in range(400)]
    assert load(pairs(path, rows)).sha256 != load(pairs(path, other)).sha256


def test_documents_in_a_stream_end_with_eos(path):
    texts = [f"{i}" * (1 + i % 3) for i in range(400)]
    corpus = load(documents(path, texts, rows="stream", length=4))
    examples = load(documents(path, texts))
    assert corpus.specials.eos == 256 and corpus.specials.size == 257
    for name in PARTS:
        part, rows = getattr(corpus, name), getattr(examples, name)
        expected = [[*rows.target(i).tolist(), 256] for i in range(len(rows))]
        assert part.ids.tolist() == sum(expected, []) and part.ids.dtype == np.int32


def test_error_a_stream_that_is_too_short(path):
    with pytest.raises(SpecError, match="needs 1001 tokens in every part of the source, but val"):
        load(documents(path, TEXTS, rows="stream", length=1000))


def test_both_sides_of_pairs_share_one_tokenizer(path):
    rows = [(f"s{i % 10}", f"t{i % 7}") for i in range(600)]
    rows += [(f"x{i}", "t0") for i in range(300)]
    corpus = load(pairs(path, rows, tokenizer=Words(), source_length=9), Seq2Seq())
    assert corpus.source_tokenizer is corpus.tokenizer
    known = set(corpus.tokenizer.state["words"])
    assert {"t0", "t6"} <= known and known & {"s0", "s9"}
    # Sources of other parts are not learned from.
    assert len(known) < 10 + 7 + 300
    assert corpus.specials.pad == len(known) + 1


@pytest.mark.parametrize("texts", [[], ["only one"], ["same"] * 500])
def test_error_a_part_without_an_example(path, texts):
    with pytest.raises(SpecError) as caught:
        load(documents(path, texts))
    assert str(caught.value).startswith("data.source.kind = 'json_lines' leaves ")
    assert f"(it has {len(texts)}, and 0 were skipped)" in str(caught.value)


def test_live_examples_that_are_too_long_are_refused_skipped_or_cut(path):
    texts = [*TEXTS, "x" * 40, "y" * 50]
    with pytest.raises(SpecError) as caught:
        load(documents(path, texts))
    assert str(caught.value) == (
        "data.length = 40, but 2 of 602 examples take more tokens, up to 51 (number 602); use 51, "
        "or data.too_long='skip' or 'cut'."
    )
    skipped = load(documents(path, texts, too_long="skip"))
    assert skipped.report == (0, 2, 0) and sorted(sum(texts_of(skipped), [])) == sorted(TEXTS)
    cut = load(documents(path, texts, too_long="cut"))
    assert cut.report == (0, 0, 2) and sorted(sum(texts_of(cut), [])) == sorted(texts)


def test_null_what_fits_is_the_same_however_the_rest_is_treated(path):
    made = [load(documents(path, TEXTS, too_long=way)) for way in ("refuse", "skip", "cut")]
    assert len({corpus.sha256 for corpus in made}) == 1
    assert all(corpus.report == (0, 0, 0) for corpus in made)
    assert texts_of(made[0]) == texts_of(made[1]) == texts_of(made[2])


def test_live_the_objective_decides_what_fits(path):
    texts = [*TEXTS, "x" * 39]
    assert load(documents(path, texts)).report == (0, 0, 0)
    with pytest.raises(SpecError, match="up to 41 .number 601.; use 41"):
        load(documents(path, texts), MaskedLM())


def test_error_sources_that_are_too_long(path):
    rows = [(f"{i:9}", "t" * 3) for i in range(300)]
    assert load(pairs(path, rows, source_length=10), Seq2Seq()).report == (0, 0, 0)
    with pytest.raises(SpecError) as caught:
        load(pairs(path, rows, source_length=9), Seq2Seq())
    assert str(caught.value).startswith(
        "data.source_length = 9, but 300 of 300 examples take more tokens, up to 10 (number "
    )


def test_error_nothing_is_left_when_all_are_skipped(path):
    with pytest.raises(SpecError, match="'skip' leaves train without an example"):
        load(documents(path, TEXTS, length=3, too_long="skip"))
    rows = [(f"{i:9}", "t") for i in range(300)]
    with pytest.raises(SpecError, match=r"all \d+ .* data.length=40 or data.source_length=5; use"):
        load(pairs(path, rows, source_length=5, too_long="skip"), Seq2Seq())
