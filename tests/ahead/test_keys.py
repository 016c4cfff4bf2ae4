"""Tests for jtransformer.ahead.keys: what a compiler is told is part of what its findings go by."""

import importlib.metadata

import jax
import pytest

from jtransformer import ahead
from jtransformer.ahead.keys import FLAGS, OPTIONS, PACKAGES, digest_of, key_of
from jtransformer.ahead.programs import Lowered
from jtransformer.spec import Layout

OTHERS = {
    "jax_disable_most_optimizations": True,
    "jax_optimization_level": "O1",
    "jax_memory_fitting_level": "O1",
    "jax_exec_time_optimization_effort": 0.5,
    "jax_memory_fitting_effort": 0.5,
    "jax_compiler_enable_remat_pass": False,
    "jax_use_shardy_partitioner": False,
}


ALONE = Layout()


def digest(fingerprint="f" * 64, layout=ALONE):
    lowered = Lowered("train", None, {}, fingerprint, 0.0)
    return digest_of(key_of(lowered, ahead.topology("local"), layout))


def test_one_program_has_one_key_and_another_has_another():
    assert digest() == digest() and len(digest()) == 32
    assert len({digest(), digest("e" * 64), digest(layout=Layout(fsdp=2))}) == 3


@pytest.mark.parametrize("name", FLAGS)
def test_live_each_variable_is_another_key(monkeypatch, name):
    monkeypatch.setenv(name, "--one")
    first = digest()
    monkeypatch.setenv(name, "--two")
    assert digest() != first


@pytest.mark.parametrize("name", OPTIONS)
def test_live_each_option_is_another_key(name):
    if name not in jax.config.values:
        assert OTHERS[name] == 0.5  # JAX 0.12 has levels alone.
        return
    first, before = digest(), jax.config.values[name]
    jax.config.update(name, OTHERS[name])
    try:
        assert digest() != first
    finally:
        jax.config.update(name, before)
    assert digest() == first


@pytest.mark.parametrize("name", PACKAGES)
def test_live_each_release_is_another_key(monkeypatch, name):
    first, there = digest(), importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda asked: "99" if asked == name else there(asked)
    )
    assert digest() != first
