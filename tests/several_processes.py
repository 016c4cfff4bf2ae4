"""Scripts that run as several JAX processes on 127.0.0.1, each with CPU devices of its own."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import children

PATIENCE_SECONDS = 240
BEGIN = """
import json, os, pathlib, sys
import jax
address, processes, process, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
if processes > 1:
    jax.distributed.initialize(
        address, processes, process, cluster_detection_method="deactivate",
        coordinator_bind_address=address, heartbeat_timeout_seconds=20,
    )
folder = pathlib.Path(folder)
def say(value):
    pathlib.Path(folder / f"said{process}").write_text(json.dumps(value))
"""


def environment(devices: int, **more: str) -> dict[str, str]:
    """Returns what a process of so many CPU devices and one thread is started with."""
    flags = os.environ.get("XLA_FLAGS", "")
    flags = f"{flags} --xla_force_host_platform_device_count={devices}".strip()
    return os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "NPROC": "1"} | more


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def start(code: str, folder: pathlib.Path, processes: int, devices: int) -> list[subprocess.Popen]:
    """Starts a script, which says its result by `say(value)` and works in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [free_address(), str(processes)]
    return [
        children.start(
            [sys.executable, "-W", "ignore", "-c", BEGIN + code, *words, str(process), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(devices),
        )
        for process in range(processes)
    ]


def run(code: str, folder: pathlib.Path, processes: int, devices: int) -> list:
    """Runs a script to its end and returns what each process has said."""
    started = start(code, folder, processes, devices)
    try:
        printed = [each.communicate(timeout=PATIENCE_SECONDS)[0] for each in started]
    finally:
        for each in started:
            each.kill()
    for each, text in zip(started, printed, strict=True):
        assert each.returncode == 0, text
    return [json.loads((folder / f"said{process}").read_text()) for process in range(processes)]
