"""Tests for jtransformer.data.library: pieces that are learned or read from a file."""

import json
import subprocess
import sys

import numpy as np
import pytest

from jtransformer.data import load
from jtransformer.data.library import LibraryTokenizer, read_tokenizer, train_tokenizer
from jtransformer.data.sources import read_text
from jtransformer.spec import DataSpec, Kjv, SpecError, TextFile, TokenizerFile, Trained

BPE, UNIGRAM = Trained(pieces=300), Trained(algorithm="unigram", pieces=300)


def bible(size):
    return read_text(Kjv())[:size].tobytes().decode()


TEXTS = bible(8_000).splitlines(keepends=True)


def wordpiece(**settings):
    """A tokenizer.json with special tokens, a template, cutting and padding."""
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "the": 3, "cat": 4, "##s": 5, "[": 6, "]": 7}
    special = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    cls = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": {
            "direction": "Right",
            "max_length": 2,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": {
            "strategy": {"Fixed": 9},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "added_tokens": [
            {"id": i, "content": t} | special for t, i in list(vocabulary.items())[:3]
        ],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [cls, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    } | settings


def file_of(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@pytest.mark.parametrize("spec", [BPE, UNIGRAM])
@pytest.mark.parametrize("seed", range(3))
def test_law_any_text_comes_back_exactly(spec, seed):
    tokenizer = train_tokenizer(spec, TEXTS)
    for text in [
        "",
        " ",
        "\n\n  \t\0\r\n",
        "the cat",
        random_text(seed),
        "\ufeff a\u0301 <0x0A> Ġ",
    ]:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert ids.dtype == np.int32 and (ids < tokenizer.pieces).all() and (ids >= 0).all()


@pytest.mark.parametrize("spec", [BPE, UNIGRAM])
def test_pieces_are_as_many_as_asked_and_shorter_than_bytes(spec):
    tokenizer = train_tokenizer(spec, TEXTS)
    assert tokenizer.pieces == 300
    text = "In the beginning God created the heaven and the earth."
    assert len(tokenizer.encode(text)) < 0.6 * len(text)


# The last one has about all pieces that there are, and so the rarest ones.
@pytest.mark.parametrize("spec", [BPE, UNIGRAM, Trained(algorithm="unigram", pieces=800)])
def test_law_training_twice_gives_the_same(spec):
    text = bible(40_000)
    made = [train_tokenizer(spec, [text]) for _ in range(3)]
    made.append(train_tokenizer(spec, text.splitlines(keepends=True)))
    assert len({tokenizer.sha256 for tokenizer in made}) == 1
    assert made[0].sha256 != train_tokenizer(spec, [text[:30_000]]).sha256


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_law_another_process_learns_the_same(tmp_path, algorithm):
    path = tmp_path / "text"
    path.write_text(bible(30_000))
    code = (
        "import sys; from jtransformer.data import load; from jtransformer.spec import *\n"
        "spec = DataSpec(source=TextFile(path=sys.argv[1]), length=8, "
        f"tokenizer=Trained(pieces=320, algorithm={algorithm!r}))\nprint(load(spec).sha256)"
    )
    command = [sys.executable, "-c", code, str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    tokenizer = Trained(pieces=320, algorithm=algorithm)
    own = load(DataSpec(source=TextFile(path=str(path)), length=8, tokenizer=tokenizer))
    assert found == own.sha256


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [300, 1024, 4096])
def test_law_a_long_text_gives_the_same_too(pieces):
    spec, text = Trained(algorithm="unigram", pieces=pieces), bible(1_000_000)
    assert len({train_tokenizer(spec, [text]).sha256 for _ in range(3)}) == 1


def test_live_the_algorithm_and_the_number_of_pieces():
    specs = [BPE, UNIGRAM, Trained(pieces=301), Trained(algorithm="unigram", pieces=301)]
    made = [train_tokenizer(spec, TEXTS) for spec in specs]
    assert len({tokenizer.sha256 for tokenizer in made}) == 4
    assert [tokenizer.pieces for tokenizer in made] == [300, 300, 301, 301]


def test_live_the_training_part_alone_is_learned_from(tmp_path):
    path, spec = tmp_path / "text", Trained(pieces=260)
    data = DataSpec(source=TextFile(path=str(path)), length=2, tokenizer=spec, test_fraction=0.2)
    path.write_text("abcd bcda " * 80)
    before = load(data).tokenizer.sha256
    path.write_text("abcd bcda " * 64 + "efgh fghe " * 16)
    assert load(data).tokenizer.sha256 == before
    path.write_text("efgh fghe " * 16 + "abcd bcda " * 64)
    assert load(data).tokenizer.sha256 != before


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_error_more_pieces_than_the_text_has(algorithm):
    with pytest.raises(SpecError) as caught:
        train_tokenizer(Trained(algorithm=algorithm, pieces=5000), TEXTS[:20])
    assert str(caught.value).startswith(
        "data.tokenizer.trained.pieces = 5000, but the training part has "
    )
    found = int(str(caught.value).split("use at most ")[1].split()[0])
    assert train_tokenizer(Trained(algorithm=algorithm, pieces=found), TEXTS[:20]).pieces == found


def test_a_file_adds_no_special_token_and_neither_cuts_nor_pads(tmp_path):
    tokenizer = read_tokenizer(file_of(tmp_path / "t.json", wordpiece()))
    assert tokenizer.pieces == 8
    assert tokenizer.encode("The cats the").tolist() == [3, 4, 5, 3]
    assert tokenizer.decode([3, 4, 5, 3]) == "the cats the"
    assert tokenizer.decode([2, 3, 0, 8, -1]) == "the"


def test_a_text_that_spells_a_special_token_is_text(tmp_path):
    """Otherwise a document could end its own row, or hide what follows."""
    tokenizer = read_tokenizer(file_of(tmp_path / "t.json", wordpiece()))
    ids = tokenizer.encode("the [CLS] [PAD]").tolist()
    assert ids[0] == 3 and 2 not in ids and 0 not in ids


def test_a_file_with_dropped_merges_encodes_alike_every_time(tmp_path):
    settings = train_tokenizer(BPE, TEXTS).state["tokenizer"]
    dropping = settings | {"model": settings["model"] | {"dropout": 0.5}}
    tokenizer = read_tokenizer(file_of(tmp_path / "t.json", dropping))
    found = {tokenizer.encode("in the beginning").tobytes() for _ in range(20)}
    assert len(found) == 1


def test_null_a_learned_tokenizer_read_as_a_file_is_the_same(tmp_path):
    learned = train_tokenizer(UNIGRAM, TEXTS)
    read = read_tokenizer(file_of(tmp_path / "t.json", learned.state["tokenizer"]))
    assert read.sha256 == learned.sha256


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Expecting value"),
        ("not json", "Expecting value"),
        ("[]", "it is no JSON object"),
        ("{}", ""),
        ('{"model": 1}', ""),
        (json.dumps({"sha256": "", "state": {}}), ""),
        (wordpiece(model={"type": "nothing"}), ""),
        ("[" * 100_000, ""),
        (wordpiece(added_tokens=[], model={"type": "BPE", "vocab": {}, "merges": []}), "no pieces"),
    ],
)
def test_error_a_file_that_is_no_tokenizer(tmp_path, content, reason):
    path = file_of(tmp_path / "t.json", content)
    with pytest.raises(SpecError) as caught:
        read_tokenizer(path)
    assert str(caught.value).startswith(
        f"data.tokenizer.file.path = {path!r} is no tokenizer.json ("
    )
    assert reason in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "reason"), [("missing", "No such file"), (".", "directory"), ("/dev/zero", "device")]
)
def test_error_files_that_cannot_be_read(tmp_path, monkeypatch, path, reason):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match=f"data.tokenizer.file.path = '{path}' cannot be read"):
        read_tokenizer(path)


def test_error_a_file_without_an_unknown_token():
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}
    tokenizer = LibraryTokenizer(wordpiece(model=model, added_tokens=[], post_processor=None))
    assert tokenizer.encode("a a").tolist() == [0, 0]
    with pytest.raises(SpecError, match="cannot encode a text .*; give another file"):
        tokenizer.encode("a b")


@pytest.mark.parametrize("spec", [BPE, TokenizerFile(path="x")])
def test_error_without_the_package(monkeypatch, tmp_path, spec):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    path = tmp_path / "text"
    path.write_text("abcd" * 200)
    spec = TokenizerFile(path=file_of(tmp_path / "t.json", wordpiece())) if spec != BPE else spec
    with pytest.raises(SpecError) as caught:
        load(DataSpec(source=TextFile(path=str(path)), tokenizer=spec, length=8))
    assert str(caught.value) == (
        "data.tokenizer.kind needs the package tokenizers; pip install 'jtransformer[data]'."
    )


def random_text(seed):
    codes = np.random.default_rng(seed).integers(0, 0x110000 - 0x800, 200)
    return "".join(chr(code + 0x800 * (code >= 0xD800)) for code in codes.tolist())
