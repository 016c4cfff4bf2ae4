"""Memory of updates on a CPU is used again: a process of its own, since it is changed for good."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from jtransformer.cli.allocation import reuse_memory
from jtransformer.spec import ModelSpec, RunSpec
if sys.argv[1] != "left alone":
    reuse_memory(RunSpec(model=ModelSpec(layers=16 if sys.argv[1] == "large" else 2)))
import jax, jax.numpy as jnp
# 64 MiB of temporaries, which glibc would hand back to the system behind every call.
step = jax.jit(lambda x: (x @ x.T) @ x)
x = jnp.ones((4096, 16))
for _ in range(8):
    jax.block_until_ready(step(x))
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    jax.block_until_ready(step(x))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 8 * 64 * 2**20 // 4096


def faults(mode: str) -> int:
    """Returns how many pages eight calls asked the system for."""
    words = [sys.executable, "-c", PROGRAM, mode]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


needs_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc is told (maintainers, 2026-12-01)"
)


@needs_glibc
def test_an_update_does_not_ask_for_its_memory_again():
    # Where pieces come to lie differs from process to process: now and then one is asked for again.
    assert faults("large") < PAGES / 2 < PAGES <= faults("left alone")


@needs_glibc
def test_null_small_models_are_left_alone():
    assert faults("small") >= PAGES
