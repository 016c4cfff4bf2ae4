"""Compiles splash attention for a TPU, alone and in a model's update: run in its own process."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from jtransformer import functional as F
from jtransformer.data import Batch
from jtransformer.functional.tpu_attention import KEPT
from jtransformer.modules.stack import POLICIES
from jtransformer.spec import Layout, Precision, presets
from jtransformer.training import Program, arrange

T = 1024
KERNELS = ("splash_mha_fwd", "splash_mha_dq", "splash_mha_dkv")


def alone(device, *, N, K, H, Hv, dtype, **options):
    """The compiled forward and backward pass of attention on one device."""
    place = SingleDeviceSharding(device)
    arrays = [
        jax.ShapeDtypeStruct((2, T, n, width), dtype, sharding=place)
        for n, width in ((N, H), (K, H), (K, Hv))
    ]
    rows = [jax.ShapeDtypeStruct((2, T), kind, sharding=place) for kind in (jnp.int32, bool)]

    def both(arrays, segments, valid):
        mask = F.Visibility.of_places(T, segments=segments, valid=valid, **options)
        attend = functools.partial(F.dot_product_attention, mask=mask, soft_cap=30.0)
        out, pull = jax.vjp(functools.partial(attend, platform="tpu"), *arrays)
        return pull(out)

    return jax.jit(both).lower(arrays, *rows).compile()


def forward_runs(device, policy):
    """How often the forward kernel is run for a gradient of attention that is computed again."""
    place = SingleDeviceSharding(device)
    array = jax.ShapeDtypeStruct((1, 128, 2, 64), jnp.bfloat16, sharding=place)
    attend = functools.partial(F.dot_product_attention, platform="tpu")
    again = jax.checkpoint(attend, policy=policy)
    gradient = jax.grad(lambda *arrays: jnp.sin(again(*arrays)).astype(jnp.float32).sum())
    text = jax.jit(gradient).lower(array, array, array).compile().as_text()
    return len(re.findall(r"%splash_mha_fwd\S* = .* custom-call\(", text))


def update(devices, layout):
    """The compiled update of a small model, of layers that are scanned."""
    spec = presets.decoder_lm(width=256, layers=2)
    precision = Precision(stream="bfloat16", attention="bfloat16", ffn="bfloat16")
    model = dataclasses.replace(
        spec.model, heads=4, key_value_heads=2, scan_layers=True, precision=precision
    )
    data = dataclasses.replace(spec.data, length=T)
    training = dataclasses.replace(spec.training, batch_size=4)
    run = dataclasses.replace(spec, model=model, data=data, training=training)
    program = Program(run, arrangement=arrange(layout, devices))
    rows = [jax.ShapeDtypeStruct((4, T), kind) for kind in (jnp.int32, jnp.int32, jnp.float32)]
    return program.update.lower(*program.abstract(Batch(*rows))).compile()


def assert_kernels(compiled, scores):
    text = compiled.as_text()
    assert all(kernel in text for kernel in KERNELS)
    assert f"{T},{T}]" not in text, "scores or a mask of all queries and keys"
    assert compiled.memory_analysis().temp_size_in_bytes < scores


def main():
    devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    narrow = alone(devices[0], N=4, K=2, H=64, Hv=64, dtype=jnp.bfloat16)
    assert_kernels(narrow, 2 * 4 * T * T)
    wide = alone(devices[0], N=2, K=1, H=256, Hv=128, dtype=jnp.float32, window=300)
    assert_kernels(wide, 2 * 2 * T * T * 4)
    kept = jax.checkpoint_policies.save_only_these_names(KEPT)
    runs = [forward_runs(devices[0], x) for x in (None, kept, POLICIES["elementwise"])]
    assert runs == [2, 1, 1], runs
    assert_kernels(update(devices, Layout(fsdp=2, tensor=2)), 2**30)


if __name__ == "__main__":
    main()
