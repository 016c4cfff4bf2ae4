"""A sweep that grows by what it finds comes to the same end, killed or not."""

import json
import signal
import subprocess
import sys
import time

import children
import pytest
import tiny_run
from fake_training import status_of

from jtransformer import records
from jtransformer.cli import main
from jtransformer.sweep import cell_spec

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
    return children.start(
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


def end_all(workdir):
    """Ends every run that has not, as workers that were started by hand would have."""
    manifest = records.read_json(workdir / "sweep.json")
    for cell in manifest["cells"]:
        status = status_of(cell_spec(manifest, cell), cell["fingerprint"])
        status["result"] |= {"validation_nll": 1 / cell["nuisance"][RATE]}
        (workdir / cell["directory"]).mkdir(parents=True, exist_ok=True)
        records.create_json(workdir / cell["directory"] / "status.json", status)


def test_a_sweep_that_only_plans_decides_what_is_next_from_what_others_trained(tmp_path, capsys):
    config = tiny_run.config_file(tmp_path, ARMS | WIDENED, ffn="relu")
    workdir = tmp_path / "runs"
    words = ["sweep", "--config", str(config), "--workdir", str(workdir), "--workers", "0"]
    planned, said = [], ""
    for _ in range(3):
        assert main(words) == 0
        planned.append(len(records.read_json(workdir / "sweep.json")["cells"]))
        said = "".join(capsys.readouterr())
        end_all(workdir)
    assert planned == [8, 12, 12] and "Nothing is left to train" in said
