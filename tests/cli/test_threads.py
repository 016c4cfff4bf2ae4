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
from jtransformer import modules
from jtransformer.spec import presets
model = presets.decoder_lm(width=64, layers=2).model
tokens = jax.random.randint(jax.random.key(1), (16, 64), 0, model.vocabulary)
built = modules.build(model)
variables = built.init(jax.random.key(0), tokens)
loss = lambda v: -jax.nn.log_softmax(built.apply(v, tokens).logits)[..., 0].mean()
found = jax.tree.leaves(jax.jit(jax.grad(loss))(variables))
print(hashlib.sha256(b"".join(numpy.asarray(x).tobytes() for x in found)).hexdigest())
"""
TWO_CORES = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2,
    reason="one core cannot be beside two (owner: maintainers, 2026-11-30)",
)


def gradients(cores, **threads):
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""} | threads
    words = [sys.executable, "-c", GRADIENTS, str(cores)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.slow
@TWO_CORES
def test_live_and_null_the_threads_move_bits_and_the_cores_do_not():
    assert gradients(1, NPROC="2") == gradients(2, NPROC="2") != gradients(2, NPROC="1")


AS_XLA_READS_THEM = [
    ({}, None),
    ({"NPROC": "3"}, 3),
    ({"NPROC": " +3 "}, 3),
    ({"NPROC": "0"}, 1),
    ({"NPROC": "-3"}, 1),
    ({"NPROC": ""}, None),
    ({"NPROC": "x"}, None),
    ({"NPROC": "\uff13"}, None),
    ({"PJRT_NPROC": "1", "NPROC": "3"}, 1),
    ({"PJRT_NPROC": "x", "NPROC": "3"}, 3),
]


@pytest.mark.parametrize("environment, expected", AS_XLA_READS_THEM, ids=str)
def test_threads_are_the_users_or_one_a_core(environment, expected):
    assert records.cpu_threads(environment) == (expected or len(os.sched_getaffinity(0)))


@TWO_CORES
@pytest.mark.slow
def test_value_the_other_variable_counts_before_and_zero_is_one():
    """What XLA makes of them, by the bits that one and two threads leave."""
    one = gradients(2, NPROC="1")
    assert gradients(2, NPROC="2", PJRT_NPROC="1") == gradients(2, NPROC="0") == one
    assert gradients(2, NPROC="x") == gradients(2, NPROC="2") != one


def test_null_a_number_of_the_user_stays_and_what_is_none_does_not(monkeypatch):
    monkeypatch.setenv("NPROC", "7")
    records.use_cpu_threads(3)
    assert os.environ["NPROC"] == "7"
    monkeypatch.setenv("NPROC", "x")
    monkeypatch.setenv("PJRT_NPROC", "5")
    records.use_cpu_threads(3)
    assert os.environ["NPROC"] == "x"
    monkeypatch.delenv("PJRT_NPROC")
    records.use_cpu_threads(3)
    assert os.environ["NPROC"] == "3"
    monkeypatch.delenv("NPROC")
    records.use_cpu_threads(None)
    assert "NPROC" not in os.environ
    records.use_cpu_threads(3)
    assert os.environ.pop("NPROC") == "3"


@pytest.mark.slow
def test_a_sweep_keeps_the_threads_that_it_began_with(tmp_path, monkeypatch):
    sweep = dict(scientific={"model.ffn": ("relu", "gelu")}, seeds=(0,))
    config, workdir = tiny_run.config_file(tmp_path, sweep, ffn="relu"), tmp_path / "out"
    words = ["--workdir", str(workdir)]
    monkeypatch.setenv("NPROC", "5")
    assert main(["sweep", *words, "--config", str(config), "--workers", "0"]) == 0
    assert records.load_manifest(workdir)["threads"] == 5
    monkeypatch.delenv("NPROC")
    assert main(["worker", *words]) == 0
    for run in records.load_sweep(workdir).runs:
        assert run.environment["threads"] == 5
    assert os.environ.pop("NPROC") == "5"


def test_another_number_of_threads_is_a_change_of_the_device():
    (found,) = changes([{"threads": 1}], {"threads": 2})
    assert (found.name, found.kind) == ("threads", "device") and "threads" in found.explanation
