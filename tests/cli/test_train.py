"""Tests for what jtransformer.cli.train says of a run."""

import pytest
import tiny_run

from jtransformer import records
from jtransformer.accounting import chip, flops
from jtransformer.cli.train import _Reached


@pytest.mark.parametrize(
    ("kind", "mode", "devices"),
    [("TPU v5 lite", "loop", 1), ("TPU v5 lite", "mesh, fsdp=4", 4), ("cpu", "loop", 1)],
)
def test_the_part_of_the_peak_is_that_of_the_recorded_devices_read_once(
    tmp_path, kind, mode, devices
):
    spec, files = tiny_run.run_spec(tmp_path), records.RunFiles(tmp_path / "run")
    reached = _Reached(spec, files)
    files.directory.mkdir()
    records.write_json(files.environment, {"device_kind": kind, "mode": mode})
    said = reached(1e9)
    share = 1e9 * flops(spec.model, length=16).training / (devices * chip("v5e").flops)
    assert said == ("" if kind == "cpu" else f", {share:.1%} of the peak of {devices} {kind}")
    files.environment.unlink()
    assert reached(1e9) == said
    assert _Reached(spec, files)(1e9) == ""
