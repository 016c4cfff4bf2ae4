"""A sweep of 24 tiny runs, started as users start it, and what its tests do to it."""

import os
import pathlib
import sys
import time

import children
import tiny_run

SWEEP = dict(
    scientific={"model.ffn": ("relu", "gelu", "swiglu")},
    nuisance={"optimizer.learning_rate": (0.01, 0.02)},
    seeds=(0, 1, 2, 3),
    match=dict(equal="parameters", by="model.ffn_width", multiple_of=1, tolerance=0.02),
)
SMALL = SWEEP | {"nuisance": {}, "seeds": (0, 1)}
LENGTH = ("steps=40", "evaluate_every=10", "checkpoint_every=4")
"""Long enough that a sweep is not over before it was disturbed."""
PATIENCE_SECONDS = 900


def command(config, workdir, *more):
    # The fastest mode is measured, and two measurements may differ: bits are compared within one.
    words = ["sweep", "--config", str(config), "--workdir", str(workdir), "--mode", "loop", *more]
    words += [f"--config.training.{setting}" for setting in LENGTH]
    return [sys.executable, "-m", "jtransformer", *words]


def environment(**changes):
    """Returns what a process started in any folder needs to find this source."""
    root = str(pathlib.Path(__file__).parents[1])
    paths = filter(None, [root, os.environ.get("PYTHONPATH")])
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | changes


def start(config, workdir, *more, **changes):
    """Starts a sweep; what it prints goes to a file beside its config."""
    with open(log_of(config, workdir), "ab") as output:
        words = command(config, workdir, *more)
        return children.start(words, stdout=output, stderr=output, env=environment(**changes))


def finish(config, workdir, *more, tries=1, **changes):
    """Runs a sweep to its end, again while it asks for it; returns its results."""
    for _ in range(tries):
        code = start(config, workdir, *more, **changes).wait(timeout=PATIENCE_SECONDS)
        if code == 0:
            return results(workdir)
    raise AssertionError(
        f"exit code {code} after {tries} tries:\n{printed(config, workdir)[-3000:]}"
    )


def log_of(config, workdir):
    return config.parent / f"{workdir.parent.name}-{workdir.name}.log"


def printed(config, workdir):
    """Returns what the sweeps of a work directory have printed."""
    return log_of(config, workdir).read_text()


def results(workdir):
    return (workdir / "report/results.csv").read_bytes()


def config_file(root, sweep=SWEEP):
    return tiny_run.config_file(root, sweep, ffn="relu")


def completed(workdir):
    """Returns the file of each complete run's status: another inode would be another completion."""
    found = {}
    for path in workdir.glob("runs/*/*/status.json"):
        about = path.stat()
        if about.st_size > 100:  # Less is the garbage of a test.
            found[path] = about.st_ino, about.st_mtime_ns
    return found


def workers_of(process):
    """Returns the workers of a sweep that are alive."""
    path = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        return [int(word) for word in path.read_text().split()]
    except OSError:
        return []


def hit(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # It ended by itself meanwhile.
        return False
    return True


def wait_for(condition, process):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None and time.monotonic() < end, "it never came to that"
        time.sleep(0.05)
