"""Tests for jtransformer.records.files."""

import math
import os
import struct

import numpy as np
import pytest

from jtransformer.records import append_row, read_json, read_rows, truncate_rows, write_json
from jtransformer.records import write_text as write_text_file

ROWS = [{"step": step, "train_nll": 3 / step} for step in range(1, 8)]
AWKWARD = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 2.0**53 + 2, 1e22, math.pi]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for row in ROWS:
        append_row(path, row)
    return path


def bits(value):
    return struct.pack("<d", value)


def test_json_round_trip(tmp_path):
    value = {"b": [1, 2.5, None, True], "a": {"ü": "“zwei”\n", "empty": {}}, "n": 10**30}
    path = tmp_path / "value.json"
    write_json(path, value)
    assert read_json(path) == value
    assert list(read_json(path)) == ["b", "a", "n"]
    assert path.read_text(encoding="utf-8").endswith("}\n") and "ü" in path.read_text("utf-8")
    write_json(path, (1, 2))
    assert read_json(path) == [1, 2]
    assert os.listdir(tmp_path) == ["value.json"]


def test_floats_keep_their_bits(tmp_path):
    rng = np.random.default_rng(0)
    numbers = [*AWKWARD, *rng.normal(size=500).tolist(), *np.exp(rng.normal(0, 90, 500)).tolist()]
    path, row_path = tmp_path / "numbers.json", tmp_path / "rows.jsonl"
    write_json(path, numbers)
    append_row(row_path, {"step": 1, "numbers": numbers})
    for _ in range(2):
        truncate_rows(row_path, 1)
    for found in (read_json(path), read_rows(row_path)[0]["numbers"]):
        assert [bits(one) for one in found] == [bits(one) for one in numbers]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, float(np.float32("nan"))])
def test_what_is_not_finite_becomes_null(tmp_path, value):
    path, row_path = tmp_path / "value.json", tmp_path / "rows.jsonl"
    write_json(path, {"a": value, "b": [{"c": (value, 1.0)}]})
    assert read_json(path) == {"a": None, "b": [{"c": [None, 1.0]}]}
    append_row(row_path, {"step": 1, "train_nll": value})
    assert read_rows(row_path) == [{"step": 1, "train_nll": None}]
    assert b"NaN" not in path.read_bytes() and b"Infinity" not in row_path.read_bytes()


def test_a_name_that_is_not_utf8_survives(tmp_path):
    name = os.fsdecode(b"text-\xff")
    write_json(tmp_path / "value.json", {"path": name})
    append_row(tmp_path / "rows.jsonl", {"step": 1, "path": name})
    assert read_json(tmp_path / "value.json") == {"path": name}
    assert read_rows(tmp_path / "rows.jsonl") == [{"step": 1, "path": name}]


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_kill_while_writing_leaves_the_old_file(tmp_path, monkeypatch, moment):
    path = tmp_path / "status.json"
    write_json(path, {"state": "old"})

    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, moment, kill)
        with pytest.raises(KeyboardInterrupt):
            write_json(path, {"state": "new"})
    assert read_json(path) == {"state": "old"}
    assert len(os.listdir(tmp_path)) == 2
    # What the kill left over is in nobody's way.
    write_json(path, {"state": "new"})
    assert read_json(path) == {"state": "new"}


def test_a_kill_before_the_first_file_leaves_none(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_json(tmp_path / "status.json", {"state": "done"})
    assert not (tmp_path / "status.json").exists()


def test_content_is_on_disk_before_its_name(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda *names: (order.append("replace"), replace(*names)))
    write_text_file(tmp_path / "page", "text")
    assert order == ["fsync", "replace", "fsync"]
    append_row(tmp_path / "rows.jsonl", {"step": 1})
    assert order[3:] == ["fsync"]


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"\xff\xfe", b"{'a': 1}"])
def test_error_damaged_json_is_named(tmp_path, content):
    path = tmp_path / "status.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="status.json is damaged .*; delete it"):
        read_json(path)


def test_error_missing_json(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "status.json")


def test_rows(rows, tmp_path):
    assert read_rows(rows) == ROWS
    assert rows.read_bytes().count(b"\n") == len(ROWS)
    assert read_rows(tmp_path / "missing.jsonl") == []


def test_a_line_torn_anywhere_is_dropped(rows):
    whole = rows.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for size in range(last, len(whole)):
        rows.write_bytes(whole[:size])
        assert read_rows(rows) == ROWS[:-1], whole[last:size]


@pytest.mark.parametrize("garbage", [b"{", b"\x00\xff\xfe", b"5", b"null", b"[1]", b'"text"', b""])
def test_garbage_in_the_middle_ends_the_rows(rows, garbage):
    lines = rows.read_bytes().split(b"\n")
    lines[3] = garbage
    rows.write_bytes(b"\n".join(lines))
    assert read_rows(rows) == ROWS[:3]
    truncate_rows(rows, 7)
    assert read_rows(rows) == ROWS[:3]


@pytest.mark.parametrize("torn", [b"", b'{"step": 8, "tra'])
def test_rows_after_a_resume_are_there_once_each(rows, torn):
    """SWEEP-06: steps 1 to 7 are logged, a checkpoint is at 5, the run goes on to 10."""
    rows.write_bytes(rows.read_bytes() + torn)
    truncate_rows(rows, 5)
    for step in range(6, 11):
        append_row(rows, {"step": step, "life": 2})
    assert [row["step"] for row in read_rows(rows)] == list(range(1, 11))
    assert [row["step"] for row in read_rows(rows) if row.get("life") == 2] == [6, 7, 8, 9, 10]
    assert read_rows(rows)[:5] == ROWS[:5]


def test_truncation_at_its_limits(rows, tmp_path):
    truncate_rows(rows, 99)
    assert read_rows(rows) == ROWS
    truncate_rows(rows, 0)
    assert rows.read_bytes() == b""
    truncate_rows(tmp_path / "missing.jsonl", 3)
    assert read_rows(tmp_path / "missing.jsonl") == []


def test_a_row_is_never_glued_to_a_torn_one(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "lo')
    append_row(path, {"step": 3})
    assert read_rows(path) == [{"step": 1}, {"step": 3}]
