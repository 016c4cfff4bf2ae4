"""Memory of updates on a CPU is used again: a process of its own, since it is changed for good."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from jtransformer.cli.allocation import reuse_memory
if sys.argv[1] == "reused":
    reuse_memory()
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


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc is told (maintainers, 2026-12-01)"
)
def test_an_update_does_not_ask_for_its_memory_again():
    # Where pieces come to lie differs from process to process: now and then one is asked for again.
    assert faults("reused") < PAGES / 2 < PAGES <= faults("left alone")
