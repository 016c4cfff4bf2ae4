"""Tests that TensorBoard's own reader finds each row once, whatever became of those who fed it."""

import numpy as np
import pytest
import tracked_sweep

from jtransformer import records
from jtransformer.trackers import feed, tracked_runs

pytest.importorskip("tensorboardX", reason="needs jtransformer[test] (maintainers, 2026-11-30)")
accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
hparams = pytest.importorskip("tensorboard.plugins.hparams.plugin_data_pb2")

EVERYTHING = {"scalars": 0, "tensors": 0}


def read(directory):
    reader = accumulators.EventAccumulator(str(directory), size_guidance=EVERYTHING)
    reader.Reload()
    return reader


def shown(into):
    """Returns every figure of every run by its directory: pairs of step and value."""
    found = {}
    for path in into.glob("*/*"):
        reader = read(path)
        for name in reader.Tags()["scalars"]:
            events = reader.Scalars(name)
            found[path.name, name] = [(event.step, event.value) for event in events]
    return found


def expected(workdir):
    """Returns the same from the records, in the precision that TensorBoard has."""
    found = {}
    for run in tracked_runs(workdir):
        path = run.name.rpartition("/")[2]
        for row in run.rows:
            for name, value in row.items():
                if name != "step" and value is not None:
                    pair = (row["step"], float(np.float32(value)))
                    found.setdefault((path, name), []).append(pair)
        if run.state == "done":
            value = float(np.float32(run.result["test_nll"]))
            found[path, "test_nll"] = [(run.rows[-1]["step"], value)]
    return found


def test_every_figure_is_there_once_and_nothing_is_added_twice(tmp_path):
    workdir, into = tracked_sweep.write(tmp_path), tmp_path / "shown"
    assert feed(workdir, "tensorboard", into) == tracked_sweep.ROWS
    assert shown(into) == expected(workdir) and len(shown(into)) == 7 + 6 + 6
    assert feed(workdir, "tensorboard", into) == 0
    assert shown(into) == expected(workdir)


def test_a_run_that_grows_is_the_same_run_with_more_rows(tmp_path):
    workdir, into = tracked_sweep.write(tmp_path), tmp_path / "shown"
    feed(workdir, "tensorboard", into)
    files = {path: path.read_bytes() for path in into.rglob("*tfevents*")}
    tracked_sweep.grow(workdir, 5)
    tracked_sweep.grow(workdir, 6)
    assert feed(workdir, "tensorboard", into) == 2
    assert set(into.rglob("*tfevents*")) == files.keys()
    assert all(path.read_bytes().startswith(before) for path, before in files.items())
    assert shown(into) == expected(workdir)


def test_a_run_that_goes_on_from_a_checkpoint_repeats_no_row(tmp_path):
    workdir, into = tracked_sweep.write(tmp_path), tmp_path / "shown"
    tracked_sweep.grow(workdir, 5)
    feed(workdir, "tensorboard", into)
    before = shown(into)
    records.truncate_rows(tracked_sweep.running(workdir) / "metrics.jsonl", 160)
    assert feed(workdir, "tensorboard", into) == 0 and shown(into) == before
    tracked_sweep.grow(workdir, 5)
    assert feed(workdir, "tensorboard", into) == 0 and shown(into) == before
    tracked_sweep.grow(workdir, 6)
    assert feed(workdir, "tensorboard", into) == 1 and shown(into) == expected(workdir)


def test_an_end_that_is_made_again_is_not_shown_again(tmp_path):
    workdir, into = tracked_sweep.write(tmp_path), tmp_path / "shown"
    feed(workdir, "tensorboard", into)
    before = shown(into)
    cell = records.read_json(workdir / "sweep.json")["cells"][0]
    status = workdir / cell["directory"] / "status.json"
    content = status.read_bytes()
    status.unlink()
    assert feed(workdir, "tensorboard", into) == 0
    status.write_bytes(content)
    assert feed(workdir, "tensorboard", into) == 0 and shown(into) == before


def test_settings_and_seed_are_the_configuration(tmp_path):
    workdir, into = tracked_sweep.write(tmp_path), tmp_path / "shown"
    feed(workdir, "tensorboard", into)
    (path,) = into.glob("pre-gelu/*-seed0-*")
    metadata = read(path).SummaryMetadata("_hparams_/session_start_info")
    content = hparams.HParamsPluginData.FromString(metadata.plugin_data.content)
    found = {
        name: value.string_value or value.number_value
        for name, value in content.session_start_info.hparams.items()
    }
    assert found == tracked_sweep.CONFIGURATION


def test_killed_at_every_moment_no_row_is_lost_and_none_is_there_twice(tmp_path):
    workdir, into = tracked_sweep.write(tmp_path), tmp_path / "shown"
    moments = tracked_sweep.feed_and_die(workdir, "tensorboard", tmp_path / "quiet", 0)
    assert moments == 3 * 4
    # One run's worth from the beginning, then one at a time into what the last one has left.
    for moment in (1, 2, 3, 4, 5, 2, 3, 4):
        tracked_sweep.feed_and_die(workdir, "tensorboard", into, moment)
    feed(workdir, "tensorboard", into)
    assert shown(into) == expected(workdir) == shown(tmp_path / "quiet")


def test_files_that_were_deleted_are_made_again(tmp_path):
    workdir, into = tracked_sweep.write(tmp_path), tmp_path / "shown"
    feed(workdir, "tensorboard", into)
    for path in (*into.glob("pre-gelu/*-seed0-*/*tfevents*"), *into.glob("pre-relu/*/fed.json")):
        path.unlink()
    assert feed(workdir, "tensorboard", into) == 10 + 4
    assert shown(into) == expected(workdir)
