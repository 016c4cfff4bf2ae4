"""Tests for jtransformer.records.layout."""

import json

import pytest

from jtransformer.records import (
    PROBE_PARTS,
    SCHEMA,
    DamagedRecord,
    RunFiles,
    SweepFiles,
    append_row,
    load_run,
    load_sweep,
    read_probe,
    write_json,
)
from jtransformer.records.layout import PARTS

CELL = {"arm": "pre", "seed": 0, "fingerprint": "ab" * 32, "directory": "runs/pre/seed0"}
OTHER = {"arm": "post", "seed": 0, "fingerprint": "cd" * 32, "directory": "runs/post/seed0"}
ROW = {"step": 20, "train_nll": 3.0}
STATUS = {"schema": SCHEMA, "fingerprint": CELL["fingerprint"], "state": "done"}
STATUS |= {"result": {}, "pairing": {}, "timing": {}}
FAILURE = {"error": "ValueError: no", "traceback": "…"}


@pytest.fixture
def files(tmp_path):
    return RunFiles(tmp_path)


def test_a_run_passes_through_its_states(files):
    def state():
        return load_run(files.directory, CELL).state

    assert load_run(files.directory / "missing", CELL).state == "pending"
    assert state() == "pending"
    write_json(files.spec, {})
    assert state() == "pending"
    append_row(files.metrics, ROW)
    assert state() == "running"
    write_json(files.failure, FAILURE)
    assert state() == "failed"
    write_json(files.status, STATUS)
    assert state() == "done"
    write_json(files.status, {**STATUS, "state": "diverged"})
    assert state() == "diverged"


def test_a_run_holds_what_is_on_disk(files):
    empty = load_run(files.directory, CELL)
    assert (empty.status, empty.metrics, empty.environment, empty.failure) == (None, [], None, None)
    assert empty.cell is CELL
    write_json(files.environment, {"jax": "0.10"})
    write_json(files.failure, FAILURE)
    append_row(files.metrics, ROW)
    files.metrics.write_bytes(files.metrics.read_bytes() + b'{"step": 40, ')
    write_json(files.status, STATUS)
    run = load_run(files.directory, CELL)
    assert (run.status, run.metrics) == (STATUS, [ROW])
    assert (run.environment, run.failure) == ({"jax": "0.10"}, FAILURE)


def test_a_status_that_was_being_written_is_none(files):
    append_row(files.metrics, ROW)
    (files.directory / ".status.json.123.tmp").write_text(json.dumps(STATUS))
    assert load_run(files.directory, CELL).state == "running"


def test_error_status_of_another_run(files):
    write_json(files.status, {**STATUS, "fingerprint": "ef" * 32})
    with pytest.raises(
        ValueError, match=f"status.json belongs to fingerprint {'ef' * 32}, the sweep"
    ):
        load_run(files.directory, CELL)


@pytest.mark.parametrize("name", ["status", "environment", "failure"])
@pytest.mark.parametrize("content", ["", "{", "null", "[]", "5", '"done"'])
def test_error_damaged_files_are_named(files, name, content):
    getattr(files, name).write_text(content)
    with pytest.raises(ValueError, match=rf"{name}.json is damaged .*; delete it"):
        load_run(files.directory, CELL)


def test_error_a_failure_that_says_nothing(files):
    write_json(files.failure, {})
    with pytest.raises(ValueError, match="failure.json is damaged .it lacks error.; delete it"):
        load_run(files.directory, CELL)


@pytest.mark.parametrize("state", ["running", "finished", None, 1])
def test_error_status_with_an_unknown_state(files, state):
    write_json(files.status, {**STATUS, "state": state})
    with pytest.raises(
        ValueError, match=f"status.json is damaged .its state is {state!r}.; delete"
    ):
        load_run(files.directory, CELL)


def test_a_sweep_keeps_the_order_of_its_manifest(tmp_path):
    for cells in ([CELL, OTHER], [OTHER, CELL]):
        manifest = dict.fromkeys(PARTS) | {"schema": SCHEMA, "cells": cells}
        write_json(SweepFiles(tmp_path).manifest, manifest)
        sweep = load_sweep(tmp_path)
        assert [run.cell for run in sweep.runs] == cells
        assert {run.state for run in sweep.runs} == {"pending"}
        assert sweep.manifest["cells"] == cells
    directory = tmp_path / CELL["directory"]
    directory.mkdir(parents=True)
    write_json(RunFiles(directory).status, STATUS)
    assert [run.state for run in load_sweep(tmp_path).runs] == ["pending", "done"]


@pytest.mark.parametrize("name", ["", "missing"])
def test_error_no_sweep(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=r"holds no sweep \(sweep.json is missing\)"):
        load_sweep(tmp_path / name)


@pytest.mark.parametrize("content", ["", "[]", "null", '{"schema": 1'])
def test_error_damaged_manifest(tmp_path, content):
    SweepFiles(tmp_path).manifest.write_text(content)
    with pytest.raises(ValueError, match="sweep.json is damaged"):
        load_sweep(tmp_path)


@pytest.mark.parametrize("schema", [SCHEMA + 1, None, "1"])
def test_error_manifest_of_another_format(tmp_path, schema):
    write_json(SweepFiles(tmp_path).manifest, {"schema": schema, "cells": []})
    with pytest.raises(ValueError, match=f"has format {schema!r}, this version .* reads {SCHEMA}"):
        load_sweep(tmp_path)


def test_paths_of_a_run_and_of_a_sweep_are_distinct(tmp_path):
    run, sweep = RunFiles(tmp_path), SweepFiles(tmp_path)
    names = ("spec", "environment", "metrics", "events", "status", "failure", "checkpoints")
    paths = [getattr(run, name) for name in names]
    paths += [sweep.manifest, sweep.lock, sweep.compile_cache, sweep.report]
    assert len(set(paths)) == len(paths) and {path.parent for path in paths} == {tmp_path}


def test_a_run_s_probes_are_listed_by_step(files):
    files.probes.mkdir()
    for step in (1_000_000, 400, 0):
        write_json(files.probe(step), dict.fromkeys(PROBE_PARTS, step))
    (files.probes / ".step_000900.json.77.tmp").write_text("torn")
    run = load_run(files.directory, CELL)
    assert [read_probe(path)["step"] for path in run.probes] == [0, 400, 1_000_000]
    assert load_run(files.directory / "missing", CELL).probes == ()


@pytest.mark.parametrize(
    ("text", "said"), [("[]", "lacks step"), ("{", "lacks step"), ("{}", "lacks step, rows")]
)
def test_error_a_damaged_probe_is_named(files, text, said):
    files.probes.mkdir()
    files.probe(3).write_text(text)
    with pytest.raises(DamagedRecord, match=rf"step_000003.json is damaged .*{said}"):
        read_probe(files.probe(3))
