"""Tests that attention's kernel for TPUs compiles, by libtpu without a TPU."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None,
        reason="needs libtpu, of the extra tpu-plan (owner: maintainers, 2026-11-30)",
    ),
]

PROGRAM = pathlib.Path(__file__).with_name("tpu_kernels_program.py")


def test_the_kernel_compiles_alone_and_in_an_update_on_a_mesh():
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        # The tests' options of XLA for the CPU, which libtpu may lack and then gives up at.
        "XLA_FLAGS": "",
    }
    done = subprocess.run(
        [sys.executable, PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
