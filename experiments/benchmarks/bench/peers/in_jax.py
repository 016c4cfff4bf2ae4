"""What peers on JAX share."""

import os

import jax
import jax.numpy as jnp

from .serving import best_flops

SIDE = 2048


def peak_flops() -> float:
    """Returns the operations per second of a matrix product in JAX, float32."""
    square = jnp.ones((SIDE, SIDE), jnp.float32)
    product = jax.jit(jnp.matmul)
    return best_flops(lambda: product(square, square).block_until_ready(), SIDE)


def threads() -> int:
    """Returns the threads that XLA computes with: one for each core that it may use."""
    return len(os.sched_getaffinity(0))


def count(parameters: object) -> int:
    """Counts the entries of all arrays of a tree."""
    return sum(leaf.size for leaf in jax.tree.leaves(parameters))
