"""Tests that a report is current exactly while nothing that it shows has changed."""

from sweep_fixture import noisy_losses, write_sweep

from jtransformer.records import (
    RunFiles,
    SweepFiles,
    load_manifest,
    mark_report,
    report_is_current,
    state_of_records,
    write_json,
)


def test_a_probe_that_is_new_or_another_makes_a_report_old(tmp_path):
    write_sweep(tmp_path, noisy_losses({"pre": 0.0, "post": 0.1}, seeds=1))
    SweepFiles(tmp_path).report.mkdir()
    files = RunFiles(tmp_path / load_manifest(tmp_path)["cells"][0]["directory"])
    states = [state_of_records(tmp_path)]
    mark_report(tmp_path, states[0], "1")
    assert report_is_current(tmp_path, "1") and not report_is_current(tmp_path, "2")
    files.probes.mkdir()
    for step, loss in ((0, 3.0), (0, 2.0), (9, 2.0)):
        write_json(files.probe(step), {"step": step, "loss": loss})
        states.append(state_of_records(tmp_path))
        assert not report_is_current(tmp_path, "1")
    assert len(set(states)) == 4
