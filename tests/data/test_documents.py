"""Tests for jtransformer.data.documents and reading: files of one example a line."""

import json

import pytest

from jtransformer.data import load
from jtransformer.data.documents import read_lines
from jtransformer.data.reading import read_examples
from jtransformer.data.sources import Example, Fault
from jtransformer.spec import DataSpec, JsonLines, Kjv, SpecError, TextFile, TextPairs


def lines_of(path, content, source=None):
    path.write_bytes(content)
    return list(read_lines(source or TextPairs(path=str(path))))


def documents_of(path, content, **settings):
    return lines_of(path, content, JsonLines(path=str(path), **settings))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


PAIRS = [Example(1, "ein Hund", "a dog"), Example(2, "Füße", "feet")]


@pytest.mark.parametrize(
    "content",
    [
        "ein Hund\ta dog\nFüße\tfeet\n",
        "ein Hund\ta dog\r\nFüße\tfeet\r\n",
        "ein Hund\ta dog\nFüße\tfeet",
        "\ufeffein Hund\ta dog\nFüße\tfeet\n",
        "\ufeffein Hund\ta dog\r\nFüße\tfeet",
    ],
)
def test_null_line_ends_and_a_byte_order_mark_are_no_text(path, content):
    assert lines_of(path, content.encode()) == PAIRS


def test_only_the_ends_of_lines_end_lines(path):
    content = "a\u2028b\x0b\x0c\ra\tc\u0085 \n".encode()
    assert lines_of(path, content) == [Example(1, "a\u2028b\x0b\x0c\ra", "c\u0085 ")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "is empty"),
        (b"\r", "is empty"),
        (b"no tab", "has 0 tabs instead of one"),
        (b"a\tb\tc", "has 2 tabs instead of one"),
        (b"\tb", "has an empty 'source'"),
        (b"a\t", "has an empty 'target'"),
        (b"a\tb\xff", "is not UTF-8 (byte 4 of the line)"),
        (b"a\tb\xc3", "is not UTF-8 (byte 4 of the line)"),
        (b"a\t\xed\xa0\x80", "is not UTF-8 (byte 3 of the line)"),
        (b"a\0\tb", "holds a NUL byte"),
        ("a\tb".encode("utf-16-le"), "holds a NUL byte"),
    ],
)
def test_pairs_that_are_none_are_told_by_number(path, line, reason):
    found = lines_of(path, b"a\tb\n" + line + b"\na\tc\n")
    assert found == [Example(1, "a", "b"), Fault(2, reason), Example(3, "a", "c")]


def test_a_truncated_last_line_is_seen(path):
    assert lines_of(path, b"a\tb\na")[-1] == Fault(2, "has 0 tabs instead of one")
    assert documents_of(path, b'{"text": "a"}\n{"text": "b')[-1].number == 2


def test_documents_and_pairs_of_json(path):
    rows = [{"text": "a\tb\n\0", "x": 1}, {"text": "Füße 😀", "x": None}]
    content = "".join(json.dumps(row) + "\r\n" for row in rows).encode()
    found = [Example(1, None, "a\tb\n\0"), Example(2, None, "Füße 😀")]
    assert documents_of(path, content) == found
    content = b'{"de": "Hund", "en": "dog"}'
    pair = documents_of(path, content, field="en", source_field="de")
    assert pair == [Example(1, "Hund", "dog")]
    assert documents_of(path, content, field="de") == [Example(1, None, "Hund")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "is empty"),
        (b"{", "is no JSON (Expecting property name"),
        (b"{'text': 'a'}", "is no JSON (Expecting property name"),
        (b'{"text": "a"} {}', "is no JSON (Extra data"),
        (b'{"text": "a\x01"}', "is no JSON (Invalid control character"),
        (b'{"text": "\0"}', "holds a NUL byte"),
        (b"[" * 100_000, "is no JSON ("),
        (b'{"n": ' + b"9" * 5000 + b"}", "is no JSON (Exceeds the limit"),
        (b"[1]", "is a JSON list instead of an object"),
        (b'"text"', "is a JSON str instead of an object"),
        (b"null", "is a JSON NoneType instead of an object"),
        (b"{}", "has no field 'text' (it has "),
        (b'{"Text": "a", "b": 1}', "has no field 'text' (it has 'Text', 'b')"),
        (b'{"text": null}', "has a field 'text' that is null instead of a string"),
        (b'{"text": 1}', "has a field 'text' that is int instead of a string"),
        (b'{"text": ["a"]}', "has a field 'text' that is list instead of a string"),
        (b'{"text": ""}', "has an empty 'text'"),
        (b'{"text": "\\ud800"}', "has half a surrogate pair in 'text'"),
        (b'{"text": "\xff"}', "is not UTF-8 (byte 11 of the line)"),
    ],
)
def test_documents_that_are_none_are_told_by_number(path, line, reason):
    found = documents_of(path, b'{"text": "a"}\n' + line + b'\n{"text": "b"}\n')
    assert [entry.number for entry in found] == [1, 2, 3]
    assert isinstance(found[1], Fault) and found[1].reason.startswith(reason)
    assert "\n" not in found[1].reason


@pytest.mark.parametrize(("name", "kind"), [("json_lines", JsonLines), ("text_pairs", TextPairs)])
@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("missing", "No such file or directory"),
        (".", "Is a directory"),
        ("/dev/zero", "it is a device, not a file"),
        ("a\0b", "null"),
    ],
)
def test_error_files_that_cannot_be_read(tmp_path, monkeypatch, name, kind, file, reason):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError) as caught:
        list(read_lines(kind(path=file)))
    assert str(caught.value).startswith(f"data.source.{name}.path = {file!r} cannot be read (")
    assert reason in str(caught.value)


def spec_of(path, **settings):
    return DataSpec(source=TextPairs(path=str(path)), rows="padded", **settings)


def test_live_malformed_lines_are_refused_or_skipped_and_counted(path):
    path.write_bytes(b"".join(b"%d\tb\n" % i for i in range(300)) + b"\nno tab\n1\tc")
    with pytest.raises(SpecError) as caught:
        load(spec_of(path))
    assert str(caught.value) == (
        f"data.source.text_pairs.path = {str(path)!r}: line 301 is empty; correct it, or use "
        "data.malformed='skip' to leave out and count every such line."
    )
    corpus = load(spec_of(path, malformed="skip"))
    assert corpus.report == (2, 0, 0)
    assert len(corpus.train) + len(corpus.validation) + len(corpus.test) == 301


def test_null_skipping_changes_nothing_where_nothing_is_malformed(path):
    path.write_bytes(b"".join(b"%d\tb\n" % i for i in range(300)))
    corpus, skipping = load(spec_of(path)), load(spec_of(path, malformed="skip"))
    assert corpus.sha256 == skipping.sha256 and skipping.report == (0, 0, 0)


def test_the_order_of_examples_is_that_of_the_file(path):
    path.write_bytes(b"b\t1\na\t2\nc\t3\na\t2")
    examples, malformed = read_examples(spec_of(path))
    assert [example.source for example in examples] == ["b", "a", "c", "a"] and malformed == 0


@pytest.mark.parametrize("source", [Kjv(), TextFile(path="x")])
def test_error_one_text_has_no_examples(source):
    with pytest.raises(ValueError, match="is one text and has no examples"):
        read_examples(DataSpec(source=source))
