"""The same sweep through a real Ray and a real Slurm, each losing a worker midway.

CONTRIBUTING.md says what these need and how they are run.
"""

import importlib.util
import subprocess
import sys
import time

import children
import pytest
import sweep_chaos as chaos
import tiny_slurm

from jtransformer.sweep import Ledger

pytestmark = pytest.mark.slow
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
node = cluster.add_node(num_cpus=1)
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.remove_node(node, allow_graceful=False)
print("removed", flush=True)
sys.stdin.readline()
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A config file and the results of its sweep in one process."""
    config = chaos.config_file(tmp_path_factory.mktemp("quiet"), chaos.SMALL)
    return config, chaos.finish(config, config.parent / "out")


def is_missing(name):
    return importlib.util.find_spec(name) is None


def some_run_has_ended(workdir):
    return lambda: len(chaos.completed(workdir)) > 0


@pytest.mark.skipif(
    is_missing("ray"), reason="needs the extra `ray` (owner: maintainers, 2026-11-30)"
)
def test_ray_goes_on_where_a_node_was_killed(quiet, tmp_path):
    config, expected = quiet
    workdir = tmp_path / "out"
    cluster = children.start(
        [sys.executable, "-W", "ignore", "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=chaos.environment(),
    )
    try:
        address = cluster.stdout.readline().strip()
        assert address, "no cluster was started"
        words = ("--launcher", "ray", "--workers", "2", "--option", f"address={address}")
        process = chaos.start(config, workdir, *words)
        chaos.wait_for(some_run_has_ended(workdir), process)
        done = chaos.completed(workdir)
        cluster.stdin.write("kill\n")
        cluster.stdin.flush()
        assert cluster.stdout.readline() == "removed\n"
        assert process.wait(timeout=chaos.PATIENCE_SECONDS) == 0, chaos.printed(config, workdir)
    finally:
        cluster.communicate("end\n", timeout=120)
    assert "lost: Ray task" in chaos.printed(config, workdir)
    after = chaos.completed(workdir)
    assert {path: after[path] for path in done} == done and len(after) == 6
    assert chaos.results(workdir) == expected


@pytest.mark.skipif(
    is_missing("ray"), reason="needs the extra `ray` (owner: maintainers, 2026-11-30)"
)
def test_ray_saves_and_releases_when_the_sweep_is_asked_to_stop(quiet, tmp_path):
    config, _ = quiet
    workdir = tmp_path / "out"
    process = chaos.start(config, workdir, "--launcher", "ray", "--workers", "2")
    chaos.wait_for(lambda: any(workdir.glob("runs/*/*/metrics.jsonl")), process)
    process.terminate()
    assert process.wait(timeout=120) == 75, chaos.printed(config, workdir)
    book = Ledger("after", "another")
    begun = [path.parent for path in workdir.glob("runs/*/*/claims")]
    assert {book.find(directory).standing for directory in begun} == {"released"}


@pytest.mark.skipif(
    is_missing("submitit") or not tiny_slurm.is_installed(),
    reason="needs the extra `slurm`, slurm-wlm, munge and root (owner: maintainers, 2026-11-30)",
)
def test_slurm_goes_on_where_a_job_was_preempted(quiet, tmp_path):
    config, expected = quiet
    workdir = tmp_path / "out"
    words = ("--launcher", "slurm", "--workers", "2", "--option", "partition=low")
    with tiny_slurm.running(tmp_path / "slurm") as slurm:
        found = {"SLURM_CONF": slurm["SLURM_CONF"]}
        wrong = (*words[:-1], "partition=nowhere")
        assert chaos.start(config, workdir, *wrong, **found).wait(timeout=300) == 2
        assert "could not submit" in chaos.printed(config, workdir)
        process = chaos.start(config, workdir, *words, **found)
        chaos.wait_for(some_run_has_ended(workdir), process)
        done = chaos.completed(workdir)
        jobs = tiny_slurm.ask(slurm, "squeue", "--array", "--noheader", "--format=%i").split()
        assert len(jobs) == 2
        urgent = [
            "sbatch",
            "--partition=high",
            "--exclusive",
            "--output=/dev/null",
            "--wrap=sleep 1",
        ]
        tiny_slurm.ask(slurm, *urgent)
        end = time.monotonic() + chaos.PATIENCE_SECONDS
        while process.poll() is None:
            assert time.monotonic() < end
            # A job that is queued again would wait for two minutes.
            for job in jobs:
                tiny_slurm.ask(slurm, "scontrol", "update", f"JobId={job}", "StartTime=now")
            time.sleep(1)
        assert process.returncode == 0, chaos.printed(config, workdir)
    restarts = [path.read_text() for path in (workdir / "workers/slurm").glob("*_log.out")]
    assert any(text.count("Starting with") > 1 for text in restarts), "no job was queued again"
    errors = [path.read_text() for path in (workdir / "workers/slurm").glob("*_log.err")]
    assert not any("Killed" in text for text in errors), "a job did not end when it was asked to"
    logs = [path.read_text() for path in (workdir / "workers").glob("slurm-*.log")]
    assert any("everything is saved" in text for text in logs)
    assert "lost:" not in chaos.printed(config, workdir)
    after = chaos.completed(workdir)
    assert {path: after[path] for path in done} == done and len(after) == 6
    assert chaos.results(workdir) == expected
