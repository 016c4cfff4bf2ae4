"""A sweep that grows by what it finds comes to the same end, killed or not."""

import json
import signal
import subprocess
import sys
import time

import pytest
import tiny_run

RATE = "optimizer.learning_rate"
ARMS = dict(arms={"relu": {}, "swiglu": {"model.ffn": "swiglu"}}, seeds=(0, 1))
# No rate above these diverges in ten updates, so the best is at the edge.
WIDENED = dict(nuisance={RATE: (1e-4, 2e-4)}, extend=dict(most=1))
HALVED = dict(
    nuisance={RATE: dict(low=1e-4, high=1e-2, scale="log")},
    search=dict(strategy="halving", trials=2, rungs=2, keep=2),
    scales={"narrow": {}, "wide": {"model.width": 32}},
)
COMMAND = "import sys; from jtransformer.cli import main; sys.exit(main())"


def start(config, workdir):
    words = ["sweep", "--config", str(config), "--workdir", str(workdir)]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(config, workdir):
    process = start(config, workdir)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said


def ended(workdir):
    return len(list(workdir.glob("runs/*/*/status.json")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "first", "last"), [(WIDENED, 8, 12), (HALVED, 16, 24)], ids=["widened", "halved"]
)
def test_a_staged_sweep_that_is_killed_ends_as_one_that_is_not(tmp_path, options, first, last):
    config = tiny_run.config_file(tmp_path, ARMS | options, ffn="relu")
    said = finish(config, tmp_path / "quiet")
    assert f"grows by {last - first} runs" in said and ended(tmp_path / "quiet") == last

    workdir = tmp_path / "killed"
    process = start(config, workdir)
    while ended(workdir) <= first and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    manifest = json.loads((workdir / "sweep.json").read_text())
    assert len(manifest["stages"]) == 1 and first < ended(workdir) < last
    # A result of the first stage is lost: what was decided from it stands.
    (workdir / manifest["cells"][0]["directory"] / "status.json").write_text("garbage")
    finish(config, workdir)
    assert json.loads((workdir / "sweep.json").read_text())["stages"] == manifest["stages"]
    results = [(folder / "report" / "results.csv").read_bytes() for folder in
               (tmp_path / "quiet", workdir)]  # fmt: skip
    assert results[0] == results[1]
    # Nothing is left to be decided.
    assert "grows" not in finish(config, workdir) and ended(workdir) == last
