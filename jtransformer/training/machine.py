"""What the devices of this process can do and hold."""

import os
import time
from typing import Any

import jax
import jax.numpy as jnp

MEMORY_SHARE = 0.8
"""Of what a device has; evaluation and what the compiler did not foresee take from the rest."""
HOST_SHARE = 0.5
"""Of a host's memory, where the devices are its processors and other programs run beside."""
PRODUCTS = 3


def peak_flops() -> float:
    """Returns the floating-point operations per second of one matrix product on this device."""
    size = 1024 if jax.default_backend() == "cpu" else 4096
    square = jnp.ones((size, size), jnp.float32)
    product = jax.jit(jnp.matmul)
    jax.block_until_ready(product(square, square))
    seconds = []
    for _ in range(PRODUCTS):
        began = time.perf_counter()
        jax.block_until_ready(product(square, square))
        seconds.append(time.perf_counter() - began)
    return 2 * size**3 / min(seconds)


def usable_memory() -> int:
    """Returns the bytes that a group may take on one device."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(MEMORY_SHARE * stats["bytes_limit"])
    return int(HOST_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def program_bytes(program: Any) -> int:
    """Returns what a device holds while a compiled program runs."""
    sizes = program.memory_analysis()
    if sizes is None:
        return 0
    return (
        sizes.argument_size_in_bytes
        + sizes.output_size_in_bytes
        - sizes.alias_size_in_bytes
        + sizes.temp_size_in_bytes
    )
