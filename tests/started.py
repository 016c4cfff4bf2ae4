"""`jtransformer train` as a user has it: started, waited for, and what it has left compared."""

import pathlib
import sys
import time

import children
import numpy as np
import several_processes
from tiny_run import deterministic

from jtransformer import records

PATIENCE_SECONDS = 280
STEPS, EVERY = 60, 3
LONG = [
    f"--config.training.{name}={value}"
    for name, value in dict(
        steps=STEPS, batch_size=12, log_every=EVERY, evaluate_every=STEPS // 2, checkpoint_every=6
    ).items()
]
LOSSES = ("train_nll", "train_loss", "validation_nll", "gradient_norm")


def kept(config):
    """What has programs compiled once, since a restart compiles what was compiled before."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(config.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def start(config, workdir, *words, devices=2):
    """Starts the command; what it prints goes to files beside its directory."""
    workdir.parent.mkdir(parents=True, exist_ok=True)
    with (
        open(f"{workdir}.out", "w", encoding="utf-8") as out,
        open(f"{workdir}.err", "w", encoding="utf-8") as errors,
    ):
        command = [sys.executable, "-m", "jtransformer", "train", "--config", str(config)]
        return children.start(
            [*command, "--workdir", str(workdir), *words],
            stdout=out,
            stderr=errors,
            env=several_processes.environment(devices, **kept(config)),
        )


def finish(process, workdir):
    """Waits for the command and returns its exit code and the lines it said to standard error."""
    try:
        code = process.wait(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    return code, pathlib.Path(f"{workdir}.err").read_text().splitlines()


def train(config, workdir, *words, devices=2):
    code, errors = finish(start(config, workdir, *words, devices=devices), workdir)
    assert code == 0, errors
    return deterministic(workdir)


def members(process):
    """The numbers of the processes that the command has started, in their order."""
    text = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(word) for word in text.split()]


def wait_until(is_true, process):
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        assert process.poll() is None, "it ended before its time"
        assert time.monotonic() < end
        time.sleep(0.01)


def has_rows(workdir, count):
    return lambda: len(records.read_rows(records.RunFiles(workdir).metrics)) >= count


def assert_close(found, expected, tolerance):
    """Equal in all that is counted, within a relative tolerance in all that is measured."""
    (status, rows), (other, others) = found, expected
    assert [row["step"] for row in rows] == [row["step"] for row in others]
    for row, counterpart in zip(rows, others, strict=True):
        assert row["scored_tokens"] == counterpart["scored_tokens"]
        for name in LOSSES:
            if counterpart[name] is not None:
                np.testing.assert_allclose(row[name], counterpart[name], rtol=tolerance)
    # The batches, and the initial values, to the bit.
    assert status["pairing"] == other["pairing"]
    assert status["fingerprint"] == other["fingerprint"]
