"""Tests for jtransformer.ahead.traffic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jtransformer.ahead.hlo import parse
from jtransformer.ahead.traffic import memory_bytes

N = 256
NUMBER = 4


def compiled(f, *arguments):
    return jax.jit(f).lower(*arguments).compile()


def layers(x, weights, *, scan):
    def layer(x, w):
        return jnp.tanh(x @ w), None

    if scan:
        return jax.lax.scan(layer, x, weights)[0]
    for w in weights:
        x, _ = layer(x, w)
    return x


def test_without_a_loop_it_is_the_count_of_xla():
    """To one array in ninety: where one operand is used twice, XLA counts it twice."""

    def loss(weights, x, ids):
        return jnp.sum(layers(x[ids], weights, scan=False))

    weights, x = jnp.ones((5, N, N)), jnp.ones((2 * N, N))
    program = compiled(jax.value_and_grad(loss), weights, x, jnp.arange(N))
    theirs = program.cost_analysis()["bytes accessed"]
    found = memory_bytes(parse(program.as_text()))
    np.testing.assert_allclose(found, theirs, rtol=0, atol=NUMBER * N * N + 100)


@pytest.mark.parametrize("L", [2, 9])
def test_a_loop_reads_one_layer_a_turn(L):
    """Each turn reads a layer's matrix out of all of them, and not all of them."""
    program = compiled(
        lambda x, weights: layers(x, weights, scan=True), jnp.ones((1, N)), jnp.ones((L, N, N))
    )
    found = memory_bytes(parse(program.as_text()))
    matrix = NUMBER * N * N
    # At least once out of the stack; at most there, into a buffer of its own, and out of that.
    assert L * matrix <= found <= 3.2 * L * matrix
    assert program.cost_analysis()["bytes accessed"] < 4 * matrix


def test_what_is_written_in_place_counts_the_slice():
    def f(buffer, x):
        return jax.lax.dynamic_update_slice(buffer, x, (3, 0))

    buffer, x = jnp.ones((100 * N, N)), jnp.ones((2, N))
    program = jax.jit(f, donate_argnums=0).lower(buffer, x).compile()
    assert memory_bytes(parse(program.as_text())) < NUMBER * 10 * N


ON_CHIP = """HloModule jit_f, is_scheduled=true

ENTRY %main (x: f32[8,128]) -> f32[8,128] {
  %x = f32[8,128]{1,0:T(8,128)} parameter(0)
  %start = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%x)
  %done = f32[8,128]{1,0:T(8,128)S(1)} copy-done(%start)
  %y = f32[8,128]{1,0:T(8,128)S(1)} tanh(%done)
  ROOT %z = f32[8,128]{1,0:T(8,128)} tanh(%y)
}
"""


def test_what_stays_on_the_chip_counts_nothing():
    """Of four arrays in all one is fetched and one is written: 2 x 8 x 128 float32."""
    assert memory_bytes(parse(ON_CHIP)) == 2 * 8 * 128 * 4
