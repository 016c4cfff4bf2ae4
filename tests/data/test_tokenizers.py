"""Tests for jtransformer.data.tokenizers: bytes, characters, words, and saved tokenizers."""

import json
import re

import numpy as np
import pytest

from jtransformer.data import load_tokenizer, save_tokenizer
from jtransformer.data.sources import read_text
from jtransformer.data.tokenizers import (
    ByteTokenizer,
    CharacterTokenizer,
    WordTokenizer,
    encode_all,
    make_tokenizer,
)
from jtransformer.spec import Bytes, Characters, Kjv, Trained, Words

TEXTS = ["the cat", "sat on the mat\n", "Füße 😀", ""]
LEARNED = [*TEXTS, *read_text(Kjv())[:4_000].tobytes().decode().splitlines(keepends=True)]
SPECS = [
    Bytes(),
    Characters(),
    Words(),
    Trained(pieces=259),
    Trained(algorithm="unigram", pieces=259),
]


def random_text(seed, length=200):
    """Draws from all of Unicode, surrogates left out, which are no characters."""
    codes = np.random.default_rng(seed).integers(0, 0x110000 - 0x800, length)
    return "".join(chr(code + 0x800 * (code >= 0xD800)) for code in codes.tolist())


def test_bytes_are_those_of_utf8():
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode("Fuß")
    assert ids.tolist() == list("Fuß".encode()) and ids.dtype == np.int32
    assert tokenizer.pieces == 256
    assert tokenizer.decode(ids[:3]) == "Fu\ufffd"


@pytest.mark.parametrize("seed", range(5))
def test_law_bytes_come_back_exactly(seed):
    text = random_text(seed) + "\0\r\n\ufeff \t"
    assert ByteTokenizer().decode(ByteTokenizer().encode(text)) == text


def test_characters_are_in_order_of_their_code():
    tokenizer = make_tokenizer(Characters(), ["ba", "b😀a\n"])
    assert tokenizer.state["characters"] == "\nab😀" and tokenizer.pieces == 5
    assert tokenizer.encode("ab\n😀zA\U0010ffff").tolist() == [1, 2, 0, 3, 4, 4, 4]
    assert tokenizer.decode([1, 4, 3]) == "a\ufffd😀"


@pytest.mark.parametrize("seed", range(3))
def test_law_known_characters_come_back_exactly(seed):
    text = random_text(seed)
    tokenizer = make_tokenizer(Characters(), [text])
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text and ids.max() < tokenizer.pieces - 1


def test_words_are_what_lies_between_single_spaces():
    tokenizer = make_tokenizer(Words(), ["b a", "a\nc  b"])
    assert tokenizer.state["words"] == ["", "a", "a\nc", "b"] and tokenizer.pieces == 5
    assert tokenizer.encode("b  a\nc d").tolist() == [3, 0, 2, 4]
    assert tokenizer.decode([3, 0, 2, 4]) == "b  a\nc \ufffd"
    assert tokenizer.encode("").shape == (0,)


@pytest.mark.parametrize("text", ["b a", "a\nc  b", " b", "b ", "  ", ""])
def test_law_known_words_come_back_exactly(text):
    tokenizer = make_tokenizer(Words(), ["b a", "a\nc  b"])
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("tokenizer", "known", "text"), [(ByteTokenizer(), 97, "a"), (CharacterTokenizer("ab"), 1, "b")]
)
def test_ids_that_are_no_text_are_left_out(tokenizer, known, text):
    assert tokenizer.decode([known, tokenizer.pieces, -1, 10**9]) == text
    assert tokenizer.decode(np.zeros((0,), np.int32)) == ""


def test_a_tokenizer_that_has_learned_nothing_knows_nothing():
    for spec, unknown in ((Characters(), 4), (Words(), 2)):
        tokenizer = make_tokenizer(spec, [])
        assert tokenizer.encode("ab c").tolist() == [0] * unknown and tokenizer.pieces == 1


def test_error_half_a_surrogate_pair_is_no_text():
    for tokenizer in (ByteTokenizer(), CharacterTokenizer("ab")):
        with pytest.raises(UnicodeEncodeError):
            tokenizer.encode("\ud800")


@pytest.mark.parametrize("spec", SPECS)
def test_a_saved_tokenizer_comes_back(tmp_path, spec):
    tokenizer = make_tokenizer(spec, LEARNED)
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
    loaded = load_tokenizer(str(tmp_path / "tokenizer.json"))
    assert (loaded.sha256, loaded.pieces) == (tokenizer.sha256, tokenizer.pieces)
    for text in [*TEXTS, "never seen: ∀"]:
        np.testing.assert_array_equal(loaded.encode(text), tokenizer.encode(text))
        assert loaded.encode(text).dtype == np.int32
        assert loaded.decode(loaded.encode(text)) == tokenizer.decode(tokenizer.encode(text))


def test_live_hashes_tell_tokenizers_apart():
    made = [make_tokenizer(spec, LEARNED) for spec in SPECS]
    made += [CharacterTokenizer("a"), WordTokenizer(["a"]), WordTokenizer(["a", "b"])]
    hashes = [tokenizer.sha256 for tokenizer in made]
    assert len(set(hashes)) == len(hashes) == 8
    assert all(re.fullmatch("[0-9a-f]{64}", found) for found in hashes)


@pytest.mark.parametrize("spec", SPECS)
def test_null_many_texts_are_encoded_as_each(spec):
    tokenizer = make_tokenizer(spec, LEARNED)
    ragged = encode_all(tokenizer, TEXTS)
    for i, text in enumerate(TEXTS):
        np.testing.assert_array_equal(ragged[i], tokenizer.encode(text))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "null",
        "[" * 100_000,
        '{"sha256": "0", "state": {}}',
        '{"sha256": "0", "state": {"kind": "bytes"}}',
    ],
)
def test_error_a_file_that_holds_no_saved_tokenizer(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="tokenizer .*; write it again"):
        load_tokenizer(path)


def test_error_a_saved_tokenizer_that_was_changed(tmp_path):
    path = tmp_path / "tokenizer.json"
    save_tokenizer(CharacterTokenizer("abc"), path)
    path.write_text(path.read_text().replace("abc", "abd"))
    with pytest.raises(ValueError, match="another tokenizer .* than it says .*it was changed"):
        load_tokenizer(path)


def test_error_a_kind_of_another_version(tmp_path):
    from jtransformer.data.library import state_sha256

    state = {"kind": "morse"}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"sha256": state_sha256(state), "state": state}))
    with pytest.raises(ValueError, match="unknown kind 'morse'"):
        load_tokenizer(path)
