"""Tests for jtransformer.generation.text: text from tokens that are still coming."""

import pytest

from jtransformer.data.tokenizers import ByteTokenizer, WordTokenizer
from jtransformer.generation import TextStream

BYTES = ByteTokenizer()


def pieces(text, tokens, size):
    """Every piece, and what was held back at the end."""
    added = [text.add(tokens[i : i + size]) for i in range(0, len(tokens), size)]
    return [*added, text.end()]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_pieces_join_to_the_whole(size):
    whole = "a€ß😀 z\N{COMBINING ACUTE ACCENT}"
    parts = pieces(TextStream(BYTES.decode), BYTES.encode(whole), size)
    assert "".join(parts) == whole
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(parts)


def test_a_character_waits_for_all_of_its_bytes():
    assert pieces(TextStream(BYTES.decode), BYTES.encode("a€b"), 1) == ["a", "", "", "€", "b", ""]


def test_bytes_that_are_no_character_are_shown_and_hold_nothing_up():
    parts = pieces(TextStream(BYTES.decode), [0xFF, 0xFF, 0x41, 0xE2, 0x82], 1)
    assert parts == ["", "\ufffd", "\ufffdA", "", "", "\ufffd"]


def test_words_go_on_from_those_before_them():
    words = WordTokenizer(["and", "the", "word"])
    text = TextStream(words.decode, before=[1, 2])
    assert pieces(text, [0, 1], 1) == [" and", " the", ""]
