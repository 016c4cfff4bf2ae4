"""Tests for jtransformer.modules.sharded_attention: who computes what, and that all is equal."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh

from jtransformer.functional import Visibility
from jtransformer.modules.sharded_attention import choose, cuts
from jtransformer.spec import MESH_AXES

TESTS = pathlib.Path(__file__).parents[1]
T = 2048


def mesh_of(*sizes):
    return AbstractMesh(sizes, MESH_AXES)


def heads(B=8, N=8, K=4, T=T, H=64, dtype=jnp.bfloat16):
    return tuple(jax.ShapeDtypeStruct((B, T, n, H), dtype) for n in (N, K, K))


@pytest.mark.slow
def test_the_parts_of_eight_devices_equal_the_whole():
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    program = TESTS / "modules" / "sharded_attention_program.py"
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


CAUSAL = dict(mask=Visibility.of_places(T), bias=None, soft_cap=None)
ALL = CAUSAL | {"mask": None}
BIASED = CAUSAL | {"bias": jax.ShapeDtypeStruct((1, 8, T, T), jnp.float32)}
GIVEN = CAUSAL | {"mask": Visibility(jnp.arange(T)[None], jnp.arange(T)[None])}


@pytest.mark.parametrize(
    ("sizes", "arrays", "options", "platform", "backend", "cut"),
    [
        ((2, 2, 2, 1), heads(), CAUSAL, "tpu", "splash", "data fsdp; ; tensor"),
        ((2, 2, 2, 1), heads(), CAUSAL, "gpu", "fused", "data fsdp; ; tensor"),
        ((1, 1, 2, 4), heads(), CAUSAL, "tpu", "splash", "; ; tensor sequence"),
        ((1, 1, 2, 4), heads(N=4), CAUSAL, "tpu", "blockwise", "; sequence; tensor"),
        ((1, 1, 8, 1), heads(N=4), CAUSAL, "tpu", "splash", "; ; "),
        ((8, 1, 1, 1), heads(B=4), CAUSAL, "tpu", "splash", "; ; "),
        ((8, 1, 1, 1), heads(), BIASED, "tpu", "blockwise", "data; ; "),
        ((8, 1, 1, 1), heads(), GIVEN, "tpu", "blockwise", "data; ; "),
        ((2, 1, 1, 4), heads(N=2), ALL, "tpu", "splash", "data; sequence; "),
        # 2^26 scores, but 2^23 on each device: it is they that count.
        ((4, 2, 1, 1), heads(N=2), ALL, "cpu", "plain", "data fsdp; ; "),
        ((4, 1, 1, 1), heads(N=2), CAUSAL, "cpu", "blockwise", "data; ; "),
        ((2, 1, 1, 4), heads(N=2), CAUSAL, "cpu", "plain", "data; sequence; "),
    ],
)
def test_what_is_chosen_by_what_one_device_has(sizes, arrays, options, platform, backend, cut):
    found = choose(mesh_of(*sizes), arrays, platform, options)
    assert found.backend == backend
    assert "; ".join(" ".join(axes) for axes in found.cut[1:]) == cut


def test_each_device_has_the_keys_of_its_queries():
    q, k, _ = heads(N=8, K=2)
    whole, split = cuts(mesh_of(1, 1, 4, 1), q)
    assert whole.shape(q, is_query=True).shape == (8, T, 2, 64)
    assert whole.shape(k, is_query=False).shape == (8, T, 1, 64)
    assert jax.eval_shape(whole.repeated, k).shape == (8, T, 4, 64)
    assert split == whole
    keys = jnp.arange(2)[None, None, :, None]
    assert whole.repeated(keys)[0, 0, :, 0].tolist() == [0, 0, 1, 1]
