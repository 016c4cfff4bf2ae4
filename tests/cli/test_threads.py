"""Tests that the bits of a run do not depend on how many cores its process was given."""

import os
import subprocess
import sys

import pytest
import tiny_run

from jtransformer import records
from jtransformer.cli import main
from jtransformer.cli.environments import changes

GRADIENTS = """
import hashlib, os, sys
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, cores[: int(sys.argv[1])])
import jax, numpy
x = jax.random.normal(jax.random.key(0), (1024, 64))
w = jax.random.normal(jax.random.key(1), (64, 256))
found = jax.jit(jax.grad(lambda w: (jax.nn.gelu(x @ w) ** 2).mean()))(w)
print(hashlib.sha256(numpy.asarray(found).tobytes()).hexdigest())
"""
TWO_CORES = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="one core cannot be beside two"
)


def gradients(cores, threads):
    environment = os.environ | {"NPROC": str(threads), "JAX_PLATFORMS": "cpu"}
    words = [sys.executable, "-c", GRADIENTS, str(cores)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@TWO_CORES
def test_live_and_null_the_threads_move_bits_and_the_cores_do_not():
    assert gradients(1, threads=2) == gradients(2, threads=2) != gradients(2, threads=1)


@pytest.mark.parametrize("text, expected", [("3", 3), ("", None), ("0", None), ("x", None)])
def test_threads_are_the_users_or_one_a_core(text, expected):
    assert records.cpu_threads({"NPROC": text}) == (expected or len(os.sched_getaffinity(0)))


def test_null_a_number_of_the_user_stays(monkeypatch):
    monkeypatch.setenv("NPROC", "7")
    records.use_cpu_threads(3)
    assert os.environ["NPROC"] == "7"
    monkeypatch.delenv("NPROC")
    records.use_cpu_threads(None)
    assert "NPROC" not in os.environ
    records.use_cpu_threads(3)
    assert os.environ.pop("NPROC") == "3"


def test_a_sweep_keeps_the_threads_that_it_began_with(tmp_path, monkeypatch):
    sweep = dict(scientific={"model.ffn": ("relu", "gelu")}, seeds=(0,))
    config, workdir = tiny_run.config_file(tmp_path, sweep, ffn="relu"), tmp_path / "out"
    words = ["sweep", "--config", str(config), "--workdir", str(workdir)]
    monkeypatch.setenv("NPROC", "5")
    assert main([*words, "--workers", "0"]) == 0
    assert records.load_manifest(workdir)["threads"] == 5
    monkeypatch.delenv("NPROC")
    assert main(words) == 0
    assert records.load_manifest(workdir)["threads"] == 5
    for run in records.load_sweep(workdir).runs:
        assert run.environment["threads"] == 5
    assert os.environ.pop("NPROC") == "5"


def test_another_number_of_threads_is_a_change_of_the_device():
    (found,) = changes([{"threads": 1}], {"threads": 2})
    assert (found.name, found.kind) == ("threads", "device") and "threads" in found.explanation
